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
  host_engine(node_memory& memory, health& faults);

  void place(mori_shmem_device_state_v1& state) override;
  void mark_left(int pe) override;

  base::result<int32_t> put(void* target, const void* source, uint64_t bytes, int pe) override;
  base::result<int32_t> get(void* target, const void* source, uint64_t bytes, int pe) override;
  base::result<int32_t> put_signal(const mori_shmem_put_signal_args& with) override;
  base::result<int32_t> atomic(const mori_shmem_atomic_args& with, uint64_t& before) override;
  base::result<waited> wait_until(const mori_shmem_wait_args& with,
                                  const std::function<base::status()>& still_sound) override;
  base::result<int32_t> quiet() override;
  bool has_barrier() const override { return memory_.all_mapped(); }
  base::result<int32_t> barrier() override;
  base::status barrier_on_stream(void* stream) override;

 private:
  node_memory& memory_;
  health& faults_;
  const mori_shmem_device_state_v1* state_ = nullptr;
  std::vector<uint64_t> peer_bases_;
  std::vector<int32_t> transports_;
  std::vector<uint32_t> peer_left_;
};

}  // namespace mori::shmem_core
