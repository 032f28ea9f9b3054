// gpu_modules.hpp - modules of other compilers that are linked with the device bitcode:
// each holds a state variable of its own, which a context sets and, at its end, marks dead, so that
// kernels launched later do nothing. A module belongs to one context at a time: PEs that are
// threads of one process need a module each.
#pragma once

#include <mori/shmem_device.h>
#include <mori/base/result.hpp>
#include <mori/device/gpu.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace mori::shmem_core {

class gpu_modules {
 public:
  gpu_modules(std::shared_ptr<device::gpu> gpu, int pe) : gpu_(std::move(gpu)), pe_(pe) {}
  ~gpu_modules() { end(); }
  gpu_modules(const gpu_modules&) = delete;
  gpu_modules& operator=(const gpu_modules&) = delete;

  // Sets the module's state; again, after it was loaded anew, too. Fails with MORI_E_NOT_FOUND
  // (no such variable), MORI_E_VERSION (of another size), MORI_E_STATE (it is another context's).
  base::status init(void* module, const mori_shmem_device_state_v2& state);
  // The module is about to be unloaded.
  base::status forget(void* module);
  // Marks all of them dead; no module is taken any more.
  void end();

 private:
  base::status write(uint64_t address, const mori_shmem_device_state_v2& state);
  void mark_dead(uint64_t address);

  const std::shared_ptr<device::gpu> gpu_;
  const int pe_;
  std::mutex lock_;  // of the following
  bool ended_ = false;
  mori_shmem_device_state_v2 state_{};
  std::map<void*, uint64_t> addresses_;  // module -> its variable
};

}  // namespace mori::shmem_core
