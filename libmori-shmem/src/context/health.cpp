// health.cpp - see health.hpp.
#include "context/health.hpp"

#include <sched.h>

namespace mori::shmem_core {
namespace {

const char* operation_name(int32_t operation) {
  switch (operation) {
    case MORI_SHMEM_OP_PUT: return "put";
    case MORI_SHMEM_OP_GET: return "get";
    case MORI_SHMEM_OP_PUT_SIGNAL: return "put with signal";
    case MORI_SHMEM_OP_ATOMIC: return "atomic";
    case MORI_SHMEM_OP_WAIT: return "wait";
    case MORI_SHMEM_OP_QUIET: return "quiet";
    case MORI_SHMEM_OP_BARRIER: return "barrier";
    case MORI_SHMEM_OP_EP_COUNT: return "exchange of token counts";
    case MORI_SHMEM_OP_EP_PAYLOAD: return "arrival of dispatched tokens";
    case MORI_SHMEM_OP_EP_COMBINE: return "arrival of expert outputs";
    case MORI_SHMEM_OP_EP_RELEASE: return "release of combine buffers";
    default: return "operation";
  }
}

}  // namespace

std::string describe(const mori_shmem_fault& record) {
  const char* what = operation_name(record.operation);
  const std::string whom = record.pe < 0 ? "" : fmt::format(" PE {}", record.pe);
  switch (record.status) {
    case MORI_E_TIMEOUT:
      return fmt::format("{}: deadline passed while waiting for{}: expected {}, last saw {}", what,
                         whom.empty() ? " a value" : whom, record.awaited, record.seen);
    case MORI_E_PEER_DEAD:
      return fmt::format("{}:{} has left the group: expected {}, last saw {}", what, whom,
                         record.awaited, record.seen);
    case MORI_E_UNAVAILABLE: return fmt::format("{}:{} is not reachable", what, whom);
    case MORI_E_INVALID:
      return fmt::format("{}{}: argument {:#x} is outside the limit {:#x}", what,
                         whom.empty() ? "" : " to" + whom, record.awaited, record.seen);
    default: return fmt::format("{}{}: failed ({}, {})", what, whom, record.awaited, record.seen);
  }
}

void health::watch(const mori_shmem_fault* kernel_record, std::function<void()> end_waits) {
  kernel_record_ = kernel_record;
  end_waits_ = std::move(end_waits);
}

bool health::raise(const base::failure& why, int32_t operation, int pe) {
  bool mine = false;
  {
    // The text is there before the record says that it is complete.
    const std::lock_guard guard(lock_);
    uint64_t free = 0;
    mine = __atomic_compare_exchange_n(&record_.claimed, &free, 1, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
    if (mine) {
      text_ = why.text;
      os_errno_ = why.os_errno;
      record_.status = why.status;
      record_.operation = operation;
      record_.pe = pe;
      __atomic_store_n(&record_.claimed, 2, __ATOMIC_RELEASE);
    }
  }
  __atomic_store_n(&abort_word_, 1, __ATOMIC_RELEASE);
  if (mine && end_waits_) end_waits_();
  return mine;
}

base::status health::check() {
  if (kernel_record_ != nullptr && __atomic_load_n(&kernel_record_->claimed, __ATOMIC_ACQUIRE) == 2)
    raise({kernel_record_->status, 0, describe(*kernel_record_)}, kernel_record_->operation,
          kernel_record_->pe);
  uint64_t claimed = __atomic_load_n(&record_.claimed, __ATOMIC_ACQUIRE);
  if (claimed == 0) return {};
  // A kernel is between its claim and its last store: a handful of stores.
  for (int patience = 0; claimed == 1 && patience < 10'000; ++patience) {
    sched_yield();
    claimed = __atomic_load_n(&record_.claimed, __ATOMIC_ACQUIRE);
  }
  __atomic_store_n(&abort_word_, 1, __ATOMIC_RELEASE);
  if (claimed == 1) return base::fail(MORI_E_INTERNAL, "a fault is being recorded");
  const std::lock_guard guard(lock_);
  return base::failure{record_.status, os_errno_, text_.empty() ? describe(record_) : text_};
}

bool health::take_announcement() {
  const std::lock_guard guard(lock_);
  return !std::exchange(announced_, true);
}

}  // namespace mori::shmem_core
