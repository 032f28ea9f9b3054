// operator.hpp - an operator of this rank: owns its memory and what runs its
// kernels, knows which call came last, launches and puts verdicts into words.
// One call at a time (a second one at once is refused). The protocol between ranks is
// in kernels/; read kernels/plan.hpp and kernels/dispatch.hpp.
//
// Calls are synchronous on the host, and on a GPU with MORI_CHECK=sync: they
// return when the kernel has ended, with what went wrong in it. Else they enqueue and
// know nothing of what the device found: it is raised by a later call, before that one
// launches anything. No host code depends on it, so a call may be captured.
#pragma once

#include "kernels/plan.hpp"
#include "layout/buffers.hpp"
#include "layout/settings.hpp"
#include "operator/kernel_memory.hpp"
#include "operator/mishaps.hpp"
#include "operator/streams.hpp"
#include "request/request.hpp"

#include <mori/ep.h>
#include <mori/shmem.h>
#include <mori/base/result.hpp>
#include <mori/device/runtime.hpp>

#include <atomic>
#include <memory>
#include <vector>

namespace mori::ep_core {

// Keeps the context's memory mapped.
struct end_lease {
  void operator()(mori_shmem_lease* held) const { mori_shmem_lease_destroy(held); }
};
using lease = std::unique_ptr<mori_shmem_lease, end_lease>;

class ep_operator {
 public:
  // Collective. `config` is the caller's, or why it could not even be read.
  static base::result<std::shared_ptr<ep_operator>> create(
      mori_shmem* shmem, const base::result<mori_ep_config>& config);
  ~ep_operator();

  base::status dispatch(const mori_ep_dispatch_args& args, mori_ep_dispatch_result& result);
  base::status combine(const mori_ep_combine_args& args, mori_ep_combine_result& result);
  base::result<extent> combine_buffer();
  // Writes at most `capacity_count` positions, returns the receive count.
  base::result<uint64_t> source_positions(int32_t* positions, uint64_t capacity_count);
  base::status reset();
  base::status check() const;

 private:
  struct prepared;
  ep_operator(mori_shmem* shmem, prepared&& from);
  static base::result<prepared> prepare(mori_shmem* shmem,
                                        const base::result<mori_ep_config>& config);
  base::status attach(int32_t rank, const mori_shmem_device_state_v1& state);
  base::status clear_sync_words();

  extent receive_buffers() const;
  base::result<combine_facts> facts() const;
  dispatch_args kernel_arguments(const mori_ep_dispatch_args& args,
                                 const dispatch_request& request) const;
  combine_args kernel_arguments(const mori_ep_combine_args& args,
                                const combine_request& request) const;

  // A synchronous call, from the epoch that it is to have to its end.
  struct finished_call {
    bool finished;         // ran to its end, and every rank's with it
    base::status outcome;  // what went wrong in it
    plan seen;
  };
  using epoch_in_plan = u64 plan::*;
  base::result<plan> read_plan() const;
  base::result<uint64_t> next_epoch(epoch_in_plan finished) const;
  base::result<finished_call> end_call(void* stream, epoch_in_plan finished, uint64_t epoch);

  base::status check_context() const;
  base::status begin_call(void* stream) const;
  template <class Args>
  base::result<uint32_t> launch(const device::kernel& kernel, const launch_request& how,
                                const Args& args);

  mori_shmem* const shmem_;  // the caller's; must outlive this, checked at each call
  const settings settings_;
  const lease lease_;  // kernels may still run when the caller destroys the context
  const symmetric_layout symmetric_at_;
  const private_layout private_at_;
  kernel_memory private_;
  const mishaps mishaps_;
  streams streams_;
  const bool is_synchronous_;
  std::unique_ptr<device::runtime> runtime_;
  void* symmetric_ = nullptr;
  void* registered_ = nullptr;  // of combine_buffer(), when not part of symmetric_
  places places_{};
  std::vector<uint32_t> source_begin_;  // room for source_positions()
  bool dispatched_ = false;
  uint64_t token_count_ = 0;  // of the last dispatch
  std::atomic<bool> busy_{false};
};

}  // namespace mori::ep_core
