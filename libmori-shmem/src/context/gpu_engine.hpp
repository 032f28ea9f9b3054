// gpu_engine.hpp - host calls on a heap in GPU memory. Data is copied on a stream of
// the context's own; words are changed by a kernel of one lane, so that such
// operations are atomic with those of other kernels. See engine.hpp.
//
// What kernels read often (abort word, tables) is in the device's memory; the fault
// record and who has left are in host memory, where both sides reach them without
// asking the driver.
#pragma once

#include "context/engine.hpp"
#include "context/gpu_heap.hpp"
#include "context/gpu_modules.hpp"
#include "context/gpu_network.hpp"

#include <mori/device/runtime.hpp>

#include <atomic>
#include <mutex>

namespace mori::shmem_core {

class gpu_engine final : public engine {
 public:
  static base::result<std::unique_ptr<gpu_engine>> create(const settings& with, gpu_heap& memory,
                                                          health& faults);
  ~gpu_engine() override;

  base::result<network_site> open_network(const network::plan& what) override;
  base::status place(mori_shmem_device_state_v2& state) override;
  const mori_shmem_fault* kernel_record() const override;
  void mark_left(int pe) override;
  bool has_left(int pe) const override;
  void end_waits() override;

  base::result<int32_t> put(void* target, const void* source, uint64_t bytes, int pe) override;
  base::result<int32_t> get(void* target, const void* source, uint64_t bytes, int pe) override;
  base::result<int32_t> put_signal(const mori_shmem_put_signal_args& with) override;
  base::result<int32_t> atomic(const mori_shmem_atomic_args& with, uint64_t& before) override;
  base::result<waited> wait_until(const mori_shmem_wait_args& with,
                                  const std::function<base::status()>& still_sound) override;
  base::result<int32_t> quiet() override;
  base::status barrier_on_stream(void* stream) override;

  base::status init_module(void* module) override { return modules_.init(module, *state_); }
  base::status forget_module(void* module) override { return modules_.forget(module); }
  void end_modules() override { modules_.end(); }

  int32_t gpu_ordinal() const override { return memory_.gpu()->facts().ordinal; }
  int32_t gpu_sharer_count() const override { return memory_.sharer_count(); }

 private:
  struct words;  // offsets in device memory
  struct pinned;

  gpu_engine(const settings& with, gpu_heap& memory, health& faults);
  base::status make(const settings& with);
  uint32_t* left_words() const;
  uint64_t at_peer(const void* symmetric, int pe) const;
  bool is_mapped(int pe) const { return memory_.peers()[static_cast<size_t>(pe)].base != 0; }
  struct call;
  base::result<int32_t> run(const call& what, uint64_t& before);
  base::result<uint64_t> read_word(uint64_t address, uint64_t bytes);

  gpu_heap& memory_;
  health& faults_;
  const settings settings_;
  std::unique_ptr<device::runtime> kernels_;
  std::unique_ptr<gpu_network> network_;
  device::device_buffer device_words_;
  device::pinned_buffer host_words_;
  // The device's helper streams: kernels of host calls; the abort word.
  void* stream_ = nullptr;
  void* alarm_ = nullptr;
  std::mutex one_call_;
  gpu_modules modules_;
  const mori_shmem_device_state_v2* state_ = nullptr;
};

}  // namespace mori::shmem_core
