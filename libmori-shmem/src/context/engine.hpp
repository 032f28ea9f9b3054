// engine.hpp - what a context does differently on host memory and on a GPU: where the
// tables and words that kernels read are, and how a host call moves data. Arguments
// have been checked by the context. Two implementations: host_engine.hpp runs the
// device functions in place, gpu_engine.hpp copies and launches.
#pragma once

#include "context/heap_memory.hpp"
#include "context/network.hpp"
#include "context/settings.hpp"

#include <mori/shmem.h>
#include <mori/base/clock.hpp>
#include <mori/base/result.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace mori::shmem_core {

class engine {
 public:
  struct waited {
    uint64_t seen = 0;
    bool met = false;
    bool has_left = false;  // the PE that was waited for, if that is not recorded yet
  };

  virtual ~engine() = default;

  // Makes the rings and lends the own memory to the proxy, which ends before the engine does.
  // Called at most once, before place().
  virtual base::result<network_site> open_network(const network::plan& what) = 0;
  // Fills in the addresses that kernels use. Called once.
  virtual base::status place(mori_shmem_device_state_v2& state) = 0;
  // Where kernels record a fault; null: in the context's own record.
  virtual const mori_shmem_fault* kernel_record() const { return nullptr; }
  // Any thread: kernels that wait see that PE has left, or that the context has ended.
  virtual void mark_left(int pe) = 0;
  virtual bool has_left(int pe) const = 0;
  virtual void end_waits() {}

  // A device status each (MORI_OK, or what the fault record explains), or a driver's failure.
  virtual base::result<int32_t> put(void* target, const void* source, uint64_t bytes, int pe) = 0;
  virtual base::result<int32_t> get(void* target, const void* source, uint64_t bytes, int pe) = 0;
  virtual base::result<int32_t> put_signal(const mori_shmem_put_signal_args& with) = 0;
  virtual base::result<int32_t> atomic(const mori_shmem_atomic_args& with, uint64_t& before) = 0;
  // still_sound: the context's check(), asked between polls.
  virtual base::result<waited> wait_until(const mori_shmem_wait_args& with,
                                          const std::function<base::status()>& still_sound) = 0;
  virtual base::result<int32_t> quiet() = 0;
  // Of all PEs. Not called where the engine has none (has_barrier false).
  virtual bool has_barrier() const { return false; }
  virtual base::result<int32_t> barrier() { return static_cast<int32_t>(MORI_E_INTERNAL); }
  // Enqueues a barrier, or says that there are no streams.
  virtual base::status barrier_on_stream(void* stream) = 0;

  // Modules that kernels of other compilers are in; see gpu_modules.hpp.
  virtual base::status init_module(void*) { return no_modules(); }
  virtual base::status forget_module(void*) { return no_modules(); }
  virtual void end_modules() {}

  virtual int32_t gpu_ordinal() const { return -1; }
  virtual int32_t gpu_sharer_count() const { return 0; }

 private:
  static base::status no_modules() {
    return base::fail(MORI_E_UNAVAILABLE, "the host back end has no device modules");
  }
};

}  // namespace mori::shmem_core
