// host_engine.hpp - host calls on a heap in host memory: the same device functions
// that kernels run, as one lane. See engine.hpp.
#pragma once

#include "context/engine.hpp"
#include "context/health.hpp"
#include "context/node_memory.hpp"

#include <vector>

namespace mori::shmem_core {

class host_engine final : public engine {
 public:
  // spins: a core is left for the thread that serves the network.
  host_engine(node_memory& memory, health& faults, bool spins);

  base::result<network_site> open_network(const network::plan& what) override;
  base::status place(mori_shmem_device_state_v2& state) override;
  void mark_left(int pe) override;
  bool has_left(int pe) const override;

  base::result<int32_t> put(void* target, const void* source, uint64_t bytes, int pe) override;
  base::result<int32_t> get(void* target, const void* source, uint64_t bytes, int pe) override;
  base::result<int32_t> put_signal(const mori_shmem_put_signal_args& with) override;
  base::result<int32_t> atomic(const mori_shmem_atomic_args& with, uint64_t& before) override;
  base::result<waited> wait_until(const mori_shmem_wait_args& with,
                                  const std::function<base::status()>& still_sound) override;
  base::result<int32_t> quiet() override;
  bool has_barrier() const override { return true; }
  base::result<int32_t> barrier() override;
  base::status barrier_on_stream(void* stream) override;

 private:
  int32_t release_source(int32_t status, uint64_t bytes, int pe);

  node_memory& memory_;
  health& faults_;
  const bool spins_;
  const mori_shmem_device_state_v2* state_ = nullptr;
  std::unique_ptr<host_rings> rings_;
  mori_shmem_driver_v1 driver_{};
  std::vector<uint64_t> peer_bases_;
  std::vector<int32_t> transports_;
  std::vector<uint32_t> peer_left_;
};

}  // namespace mori::shmem_core
