// gpu_network.hpp - network peers of a context on a GPU: rings for its kernels, whose
// words are where each side reaches them, and a ring for host calls, which is the host's alone.
// Host calls run the device functions in place, on a state of their own.
#pragma once

#include "context/gpu_port.hpp"
#include "context/health.hpp"
#include "context/network.hpp"

#include <mori/device/gpu_memory.hpp>

#include <memory>
#include <vector>

namespace mori::shmem_core {

class gpu_network {
 public:
  static base::result<std::unique_ptr<gpu_network>> create(std::shared_ptr<device::gpu> gpu,
                                                           device::runtime& kernels,
                                                           const network::plan& what);
  // For the proxy; once.
  network_site take_site();

  // The kernels' rings go into `state`, which is complete but for them; the own one comes from it.
  void place(mori_shmem_device_state_v2& state, const heap_memory& memory, health& faults);

  // As engine's, for a PE that is not mapped.
  int32_t put(void* target, const void* source, uint64_t bytes, int pe);
  int32_t get(void* target, const void* source, uint64_t bytes, int pe);
  int32_t put_signal(const mori_shmem_put_signal_args& with);
  int32_t atomic(const mori_shmem_atomic_args& with, uint64_t& before);
  // Commands of host calls and of kernels.
  base::result<int32_t> quiet();

 private:
  gpu_network() = default;
  int32_t post_and_wait(int32_t operation, const mori_shmem_command_v1& what);
  // A fault that a wait recorded becomes the context's, so that kernels hear of it.
  int32_t report(int32_t status);

  std::shared_ptr<device::gpu> gpu_;
  std::unique_ptr<gpu_port> port_;
  std::unique_ptr<host_rings> host_ring_;
  device::pinned_buffer shared_;
  device::device_buffer own_;
  device::device_buffer table_;  // of kernel_rings_
  std::vector<mori_shmem_ring_v1> kernel_rings_;

  health* faults_ = nullptr;
  mori_shmem_device_state_v2 state_{};
  mori_shmem_fault record_{};
  std::vector<uint64_t> peer_bases_;
  std::vector<int32_t> transports_;
};

}  // namespace mori::shmem_core
