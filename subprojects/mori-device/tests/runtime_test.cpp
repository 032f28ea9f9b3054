// Tests of the host runtime: launch, grid barrier, variants, probes.
#include "runtime_kernels.hpp"

#include <mori/device/runtime.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace device = mori::device;
namespace device_test = mori::device_test;

MORI_KERNEL_DECLARE(mori_test_lockstep);
MORI_KERNEL_DECLARE(mori_test_deserter);
MORI_KERNEL_DECLARE(mori_test_saxpy);

TEST_CASE("blocks run in lockstep over the grid barrier") {
  for (const uint32_t workers : {1u, 2u, 3u, 8u}) {
    auto pool = device::runtime::create({.worker_count = workers});
    REQUIRE(pool);
    std::vector<uint64_t> cells(workers);
    uint64_t wrong = 0;
    auto blocks = (*pool)->launch(MORI_KERNEL_HANDLE(mori_test_lockstep), {.block_count = workers},
                                  device_test::lockstep_args{cells.data(), 500, &wrong});
    REQUIRE(blocks);
    CHECK(*blocks == workers);
    CHECK(wrong == 0);
    CHECK(cells.back() == 500);
  }
}
