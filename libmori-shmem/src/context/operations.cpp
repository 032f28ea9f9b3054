// operations.cpp - host calls of the device operations. They check what a
// kernel could not report well, then run the same device functions that
// kernels run, as one lane.
#include "context/context.hpp"

#include <mori/device_api/atomic.hpp>

namespace mori::shmem_core {
namespace {

base::status check_word(const void* address, uint64_t size_bytes) {
  if (size_bytes != 4 && size_bytes != 8)
    return base::fail(MORI_E_INVALID, "size_bytes {} is neither 4 nor 8", size_bytes);
  if (reinterpret_cast<uint64_t>(address) % size_bytes != 0)
    return base::fail(MORI_E_INVALID, "address {} is not aligned to {}", address, size_bytes);
  return {};
}

}  // namespace

// A device status that came with a recorded fault (an abort, a wait that
// expired) is the context's; anything else was refused here already.
base::status context::outcome_of(int32_t device_status) {
  if (device_status == MORI_OK) return {};
  if (auto ended = check(); !ended) {
    // The caller's buffers are the caller's again.
    if (network_) network_->await_rest();
    return ended;
  }
  return base::fail(device_status, "operation refused");
}

// The peer is reachable and the range lies in the heap: what a kernel would
// record as a fault is a plain refusal here.
base::status context::check_remote(const void* symmetric, uint64_t size_bytes, int pe) const {
  MORI_CHECK(check_pe(pe));
  MORI_TRY([[maybe_unused]] const uint64_t offset, heap_offset(symmetric, size_bytes));
  const peer_access& peer = memory_->peers()[static_cast<size_t>(pe)];
  if (peer.transport == MORI_SHMEM_TRANSPORT_NONE)
    return base::fail(MORI_E_UNAVAILABLE, "PE {} is not reachable ({})", pe, peer.reason);
  return {};
}

base::status context::barrier_all() {
  const std::lock_guard one_at_a_time(barrier_lock_);
  MORI_CHECK(quiet());
  if (!engine_->has_barrier())
    return sticky(group_->barrier(base::deadline::after(settings_.wait_timeout_ns)),
                  MORI_SHMEM_OP_BARRIER);
  MORI_TRY(const int32_t status, engine_->barrier());
  return outcome_of(status);
}

base::status context::barrier_on_stream(void* stream) {
  if (settings_.backend == MORI_BACKEND_HOST && stream == nullptr) return barrier_all();
  if (settings_.backend != MORI_BACKEND_HOST && !memory_->all_mapped() && !network_)
    return base::fail(MORI_E_UNAVAILABLE,
                      "not all PEs are mapped: a barrier on a stream needs that");
  return engine_->barrier_on_stream(stream);
}

base::status context::put(void* target, const void* source, uint64_t size_bytes, int pe) {
  MORI_CHECK(check_remote(target, size_bytes, pe));
  if (source == nullptr && size_bytes != 0)
    return base::fail(MORI_E_INVALID, "source is NULL, {} bytes asked for", size_bytes);
  MORI_TRY(const int32_t status, engine_->put(target, source, size_bytes, pe));
  return outcome_of(status);
}

base::status context::get(void* target, const void* source, uint64_t size_bytes, int pe) {
  MORI_CHECK(check_remote(source, size_bytes, pe));
  if (target == nullptr && size_bytes != 0)
    return base::fail(MORI_E_INVALID, "target is NULL, {} bytes asked for", size_bytes);
  MORI_TRY(const int32_t status, engine_->get(target, source, size_bytes, pe));
  return outcome_of(status);
}

base::status context::put_signal(const mori_shmem_put_signal_args& with) {
  if (with.size_bytes != 0) {
    MORI_CHECK(check_remote(with.target, with.size_bytes, with.pe));
    if (with.source == nullptr)
      return base::fail(MORI_E_INVALID, "source is NULL, {} bytes asked for", with.size_bytes);
  }
  MORI_CHECK(check_remote(with.signal, sizeof(uint64_t), with.pe));
  MORI_CHECK(check_word(with.signal, sizeof(uint64_t)));
  if (with.signal_op != MORI_SHMEM_SIGNAL_SET && with.signal_op != MORI_SHMEM_SIGNAL_ADD)
    return base::fail(MORI_E_INVALID,
                      "signal_op {} is neither MORI_SHMEM_SIGNAL_SET (9) nor _ADD (10)",
                      with.signal_op);
  MORI_TRY(const int32_t status, engine_->put_signal(with));
  return outcome_of(status);
}

base::result<uint64_t> context::atomic(const mori_shmem_atomic_args& with) {
  MORI_CHECK(check_word(with.target, with.size_bytes));
  MORI_CHECK(check_remote(with.target, with.size_bytes, with.pe));
  if (!device_api::is_atomic_operation(with.op))
    return base::fail(MORI_E_INVALID, "op {} is none of MORI_SHMEM_AMO_*", with.op);
  uint64_t before = 0;
  MORI_TRY(const int32_t status, engine_->atomic(with, before));
  MORI_CHECK(outcome_of(status));
  return before;
}

base::result<uint64_t> context::wait_until(const mori_shmem_wait_args& with) {
  MORI_CHECK(check_word(with.address, with.size_bytes));
  MORI_TRY([[maybe_unused]] const uint64_t offset, heap_offset(with.address, with.size_bytes));
  if (with.compare < MORI_SHMEM_CMP_EQ || with.compare > MORI_SHMEM_CMP_LE)
    return base::fail(MORI_E_INVALID, "compare {} is none of MORI_SHMEM_CMP_*", with.compare);
  if (with.pe < -1 || with.pe >= settings_.pe_count)
    return base::fail(MORI_E_INVALID, "pe {} is outside -1 .. {}", with.pe, settings_.pe_count - 1);
  MORI_TRY(const engine::waited result, engine_->wait_until(with, [this] { return check(); }));
  if (result.met) return result.seen;
  MORI_CHECK(check());
  const mori_shmem_fault expired{.claimed = 0,
                                 .status = result.has_left ? MORI_E_PEER_DEAD : MORI_E_TIMEOUT,
                                 .operation = MORI_SHMEM_OP_WAIT,
                                 .pe = with.pe,
                                 .reserved = 0,
                                 .awaited = with.value,
                                 .seen = result.seen};
  base::status outcome = base::fail(expired.status, "{}", describe(expired));
  // The call's own deadline is not a fault of the context.
  const bool is_own = with.timeout_ns != 0 && !result.has_left;
  return is_own ? std::move(outcome.error())
                : sticky(std::move(outcome), MORI_SHMEM_OP_WAIT).error();
}

base::status context::quiet() {
  MORI_TRY(const int32_t status, engine_->quiet());
  return outcome_of(status);
}

}  // namespace mori::shmem_core
