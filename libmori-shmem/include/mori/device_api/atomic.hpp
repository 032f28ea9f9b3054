// atomic.hpp - atomic operations on naturally aligned words of 4 or 8 bytes of a
// peer, all codes of mori/shmem.h. Issued by lane 0 of the group; every lane gets
// the value that was there before. Each is acquire and release at system scope
// and wakes whoever sleeps at the target. Behind a network the target applies it, in the
// order of the queue; without a result it is complete after quiet().
#pragma once

#include <mori/device_api/ring.hpp>

namespace mori::device_api {

template <class T>
struct atomic_request {
  T* to;          // symmetric address
  T value;        // operand
  i32 operation;  // MORI_SHMEM_AMO_*
  i32 pe;
  T compare = 0;  // MORI_SHMEM_AMO_COMPARE_SWAP: the expected value
  i32 queue_pair = 0;
};

template <class T>
struct atomic_result {
  T before;    // 0 if nothing was done
  i32 status;  // MORI_OK, or why nothing was done
};

MORI_HOT bool is_atomic_operation(i32 operation) {
  return (operation >= MORI_SHMEM_AMO_INC && operation <= MORI_SHMEM_AMO_XOR) ||
         (operation >= MORI_SHMEM_AMO_FETCH && operation <= MORI_SHMEM_AMO_COMPARE_SWAP);
}

// The operation itself, on an address of this machine; the code has been checked.
template <class T>
MORI_HOT T apply_atomic(T* word, const atomic_request<T>& request) {
  using namespace device;
  constexpr scope S = scope::system;
  constexpr order O = order::acq_rel;
  switch (request.operation) {
    case MORI_SHMEM_AMO_INC:
    case MORI_SHMEM_AMO_FETCH_INC: return fetch_add<S, O>(word, static_cast<T>(1));
    case MORI_SHMEM_AMO_ADD:
    case MORI_SHMEM_AMO_FETCH_ADD: return fetch_add<S, O>(word, request.value);
    case MORI_SHMEM_AMO_AND:
    case MORI_SHMEM_AMO_FETCH_AND: return fetch_and<S, O>(word, request.value);
    case MORI_SHMEM_AMO_OR:
    case MORI_SHMEM_AMO_FETCH_OR: return fetch_or<S, O>(word, request.value);
    case MORI_SHMEM_AMO_XOR:
    case MORI_SHMEM_AMO_FETCH_XOR: return fetch_xor<S, O>(word, request.value);
    case MORI_SHMEM_AMO_SET:
    case MORI_SHMEM_AMO_SWAP: return exchange<S, O>(word, request.value);
    case MORI_SHMEM_AMO_COMPARE_SWAP: {
      T expected = request.compare;
      compare_exchange<S, O>(word, expected, request.value);
      return expected;
    }
    default: return load<S, order::acquire>(word);  // MORI_SHMEM_AMO_FETCH
  }
}

// One lane waits for what was there before, and frees the cell for others.
MORI_COLD i32 await_answer(const state& s, const ring& of, u64 index, i32 pe, u64& value) {
  using namespace device;
  const mori_shmem_answer_v1* cell = answer_cell(of, index);
  const auto result = device::wait_until(
      &cell->turn, [index](u64 turn) { return turn == index + 1; }, limits_of(s),
      {MORI_SHMEM_OP_ATOMIC, pe, index + 1}, bell_of(of));
  if (!result.met) return ended_status(s);
  value = cell->value;
  store<scope::system, order::release>(busy_word(of, index), u64{0});
  ring_doorbell(bell_of(of));
  return MORI_OK;
}

// One lane; its earlier stores are published.
template <class T>
MORI_DEVICE atomic_result<T> atomic_by_network(const state& s, const atomic_request<T>& request,
                                               bool wants_answer) {
  device::fence<device::scope::system, device::order::release>();
  command what = command_for(s, MORI_SHMEM_COMMAND_ATOMIC, {request.to, sizeof(T), request.pe});
  what.operation = static_cast<u16>(request.operation);
  using word = typename device::word_of_size<sizeof(T)>::type;
  what.value = static_cast<word>(request.value);
  what.compare = static_cast<word>(request.compare);
  what.signal = wants_answer ? 1 : 0;
  u64 index = 0, before = 0;
  i32 status = post(s, {MORI_SHMEM_OP_ATOMIC, request.queue_pair, wants_answer}, what, index);
  if (status == MORI_OK && wants_answer)
    status = await_answer(s, ring_of(s, request.queue_pair), index, request.pe, before);
  return {static_cast<T>(before), status};
}

// What atomic_fetch and atomic_nonfetch share; lane 0.
template <class T>
MORI_HOT atomic_result<T> atomic_by_lane(const state& s, const atomic_request<T>& request,
                                         bool wants_answer) {
  const reached target = route(s, MORI_SHMEM_OP_ATOMIC, {request.to, sizeof(T), request.pe});
  if (target.status != MORI_OK && target.status != by_network) return {0, target.status};
  if (device::address(request.to) % sizeof(T) != 0)
    return {0, refuse_argument(s, MORI_SHMEM_OP_ATOMIC, request.pe, device::address(request.to),
                               sizeof(T))};
  if (!is_atomic_operation(request.operation))
    return {0, refuse_argument(s, MORI_SHMEM_OP_ATOMIC, request.pe,
                               static_cast<u64>(static_cast<i64>(request.operation)),
                               MORI_SHMEM_AMO_COMPARE_SWAP)};
  if (target.status == by_network) return atomic_by_network(s, request, wants_answer);
  const T before = apply_atomic(device::pointer<T>(target.address), request);
  device::ring_doorbell(doorbell_of(peer_sync(s, request.pe)));
  return {before, MORI_OK};
}

template <class Group, class T>
MORI_HOT atomic_result<T> atomic_fetch(const Group& group, const state& s,
                                       const atomic_request<T>& request) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  atomic_result<T> result{0, MORI_OK};
  if (group.rank() == 0) result = atomic_by_lane(s, request, true);
  result.before = group.broadcast(result.before);
  result.status = group.broadcast(result.status);
  return result;
}

template <class Group, class T>
MORI_HOT i32 atomic_nonfetch(const Group& group, const state& s, const atomic_request<T>& request) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  i32 status = MORI_OK;
  if (group.rank() == 0) status = atomic_by_lane(s, request, false).status;
  return group.broadcast(status);
}

template <class Group, class T>
MORI_HOT T atomic_fetch_add(const Group& group, const state& s, T* to, T value, i32 pe) {
  return atomic_fetch(group, s, atomic_request<T>{to, value, MORI_SHMEM_AMO_FETCH_ADD, pe}).before;
}

template <class Group, class T>
MORI_HOT i32 atomic_add(const Group& group, const state& s, T* to, T value, i32 pe) {
  return atomic_nonfetch(group, s, atomic_request<T>{to, value, MORI_SHMEM_AMO_ADD, pe});
}

}  // namespace mori::device_api
