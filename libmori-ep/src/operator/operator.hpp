// operator.hpp - an operator of this rank: owns its memory and worker pool,
// knows which call came last, launches the kernels and puts their verdicts into
// words. One call at a time (a second one at once is refused). The protocol
// between ranks is in kernels/; read kernels/plan.hpp and kernels/dispatch.hpp.
#pragma once

#include "kernels/plan.hpp"
#include "layout/buffers.hpp"
#include "layout/settings.hpp"
#include "operator/private_memory.hpp"
#include "request/request.hpp"

#include <mori/ep.h>
#include <mori/shmem.h>
#include <mori/base/result.hpp>
#include <mori/device/runtime.hpp>

#include <atomic>
#include <memory>

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

  plan& the_plan() const { return *reinterpret_cast<plan*>(private_.at(private_at_.plan)); }
  extent receive_buffers() const;
  combine_facts facts() const;
  uint64_t recv_count() const { return static_cast<uint64_t>(the_plan().recv_count); }

  template <class Args>
  base::result<uint32_t> launch(const device::kernel& kernel, uint32_t block_count,
                                const Args& args);
  // Epochs of the call that has ended: its own, and the plan's last begun and finished ones.
  struct call_end {
    uint64_t epoch, begun, finished;
  };
  base::status explain_end(const call_end& end) const;

  mori_shmem* const shmem_;  // the caller's; must outlive this, checked at each call
  const settings settings_;
  const lease lease_;  // kernels may still run when the caller destroys the context
  const symmetric_layout symmetric_at_;
  const private_layout private_at_;
  private_memory private_;
  std::unique_ptr<device::runtime> runtime_;
  void* symmetric_ = nullptr;
  void* registered_ = nullptr;  // of combine_buffer(), when not part of symmetric_
  places places_{};
  bool dispatched_ = false;
  uint64_t token_count_ = 0;  // of the last dispatch
  std::atomic<bool> busy_{false};
};

}  // namespace mori::ep_core
