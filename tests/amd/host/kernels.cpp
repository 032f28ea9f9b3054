// kernels.cpp - see kernels.hpp: the least of the host's instruction sets, which all give the same
// results.
#include "kernels.hpp"

#define MORI_AMD_TEST_KERNELS(one)                                                     \
  one(mori_amd_lane_programs) one(mori_amd_wave_programs) one(mori_amd_block_programs) \
      one(mori_shmem_barrier) one(mori_shmem_host_call) one(mori_shmem_all_operations) \
          one(mori_test_lockstep) one(mori_test_collectives) one(mori_test_rows)

#define MORI_AMD_TEST_DECLARE(name) extern "C" const mori_device_host_kernel name##_base;
MORI_AMD_TEST_KERNELS(MORI_AMD_TEST_DECLARE)

namespace mori::amd_test {

std::span<const mori_device_host_kernel* const> host_kernels() {
#define MORI_AMD_TEST_RECORD(name) &name##_base,
  static const mori_device_host_kernel* const all[] = {MORI_AMD_TEST_KERNELS(MORI_AMD_TEST_RECORD)};
  return all;
}

}  // namespace mori::amd_test
