// gpu_session.hpp - contexts on a driver whose devices are host memory (fake_driver.hpp of
// mori-device), for the tests of what a context does on a GPU. Kernels are the host's.
#pragma once

#include "fake_driver.hpp"

#include <mori/shmem.h>
#include <mori/device/runtime.hpp>

#include <doctest/doctest.h>

#include <map>
#include <mutex>
#include <string>

MORI_KERNEL_DECLARE(mori_shmem_apply);
MORI_KERNEL_DECLARE(mori_shmem_barrier);
MORI_KERNEL_DECLARE(mori_shmem_host_call);

namespace mori_test {

namespace fake = mori::fake;

inline fake::driver& driver() {
  static fake::driver opened(FAKE_NVIDIA);
  return opened;
}

// Launches of each kernel that do nothing: the first ones.
inline std::map<std::string, int>& idle_launches() {
  static std::map<std::string, int> counts;
  return counts;
}
inline std::mutex counting;

inline fake::kernel_body host_variant(const mori_device_host_kernel& kernel) {
  return [&kernel](const fake::launched& how, void** arguments) {
    const auto* const launch = static_cast<const mori_device_launch*>(arguments[1]);
    CHECK(how.block_count == 1);
    CHECK(how.block_lanes == 32);
    if (launch->block_count != 0) return kernel.run(arguments[0], launch, 0);
    const std::lock_guard guard(counting);
    ++idle_launches()[kernel.name];
  };
}

// A fresh world; at the end nothing lives in it but the helper streams, which stay.
class gpu_session {
 public:
  gpu_session() {
    REQUIRE(driver().is_open());
    world().set = {};
    world().seen = {};
    world().set.fail_with = 999;
    world().set.kernels = {{"mori_shmem_apply", host_variant(mori_shmem_apply_base)},
                           {"mori_shmem_barrier", host_variant(mori_shmem_barrier_base)},
                           {"mori_shmem_host_call", host_variant(mori_shmem_host_call_base)}};
  }
  ~gpu_session() {
    for (const auto& [kind, handle] : world().alive) CHECK(kind == "stream");
    CHECK(world().alive.size() <= 4);  // two devices
  }
  gpu_session(const gpu_session&) = delete;
  gpu_session& operator=(const gpu_session&) = delete;

  fake::world& world() const { return driver().world(); }
};

inline void on_nvidia(mori_shmem_options& with) { with.backend = MORI_BACKEND_NVIDIA; }

}  // namespace mori_test
