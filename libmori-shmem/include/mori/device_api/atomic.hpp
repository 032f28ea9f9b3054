// atomic.hpp - atomic operations on naturally aligned words of 4 or 8 bytes of a
// peer, all codes of mori/shmem.h. Issued by lane 0 of the group; every lane gets
// the value that was there before. Each is acquire and release at system scope
// and wakes whoever sleeps at the target.
#pragma once

#include <mori/device_api/state.hpp>

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

template <class Group, class T>
MORI_HOT atomic_result<T> atomic_fetch(const Group& group, const state& s,
                                       const atomic_request<T>& request) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  atomic_result<T> result{0, MORI_OK};
  if (group.rank() == 0) {
    const reached target = reach(s, MORI_SHMEM_OP_ATOMIC, {request.to, sizeof(T), request.pe});
    result.status = target.status;
    if (target.status == MORI_OK && target.address % sizeof(T) != 0)
      result.status = refuse_argument(s, MORI_SHMEM_OP_ATOMIC, request.pe,
                                      device::address(request.to), sizeof(T));
    else if (target.status == MORI_OK && !is_atomic_operation(request.operation))
      result.status = refuse_argument(s, MORI_SHMEM_OP_ATOMIC, request.pe,
                                      static_cast<u64>(static_cast<i64>(request.operation)),
                                      MORI_SHMEM_AMO_COMPARE_SWAP);
    if (result.status == MORI_OK) {
      result.before = apply_atomic(device::pointer<T>(target.address), request);
      device::ring_doorbell(doorbell_of(peer_sync(s, request.pe)));
    }
  }
  result.before = group.broadcast(result.before);
  result.status = group.broadcast(result.status);
  return result;
}

template <class Group, class T>
MORI_HOT i32 atomic_nonfetch(const Group& group, const state& s, const atomic_request<T>& request) {
  return atomic_fetch(group, s, request).status;
}

template <class Group, class T>
MORI_HOT T atomic_fetch_add(const Group& group, const state& s, T* to, T value, i32 pe) {
  return atomic_fetch(group, s, atomic_request<T>{to, value, MORI_SHMEM_AMO_FETCH_ADD, pe}).before;
}

template <class Group, class T>
MORI_HOT i32 atomic_add(const Group& group, const state& s, T* to, T value, i32 pe) {
  return atomic_fetch(group, s, atomic_request<T>{to, value, MORI_SHMEM_AMO_ADD, pe}).status;
}

}  // namespace mori::device_api
