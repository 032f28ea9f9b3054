// wait.hpp - waiting for a word of the own heap. The waits acquire: what the
// writer had released before it stored the word is seen after. They end when the
// comparison holds, when the context has ended, or when the budget has passed;
// the result says which value was seen last and whether the comparison held.
#pragma once

#include <mori/device_api/state.hpp>

namespace mori::device_api {

template <class T>
struct wait_request {
  const T* word;  // in the own heap, naturally aligned
  i32 compare;    // MORI_SHMEM_CMP_*, of T's own signedness
  T value;
  i32 pe = -1;        // whom a fault names; its leaving ends the wait. -1: nobody
  u64 budget_ns = 0;  // 0: the state's, and its passing is a fault; else it is not
};

template <class T>
MORI_HOT bool compares(T seen, i32 compare, T value) {
  switch (compare) {
    case MORI_SHMEM_CMP_EQ: return seen == value;
    case MORI_SHMEM_CMP_NE: return seen != value;
    case MORI_SHMEM_CMP_GT: return seen > value;
    case MORI_SHMEM_CMP_GE: return seen >= value;
    case MORI_SHMEM_CMP_LT: return seen < value;
    default: return seen <= value;
  }
}

template <class Group, class T>
MORI_HOT device::wait_result<T> wait_until(const Group& group, const state& s,
                                           const wait_request<T>& request) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  const extent word{request.word, sizeof(T), s.my_pe};
  i32 refused = MORI_OK;
  if (!is_in_heap(s, word.symmetric, word.bytes))
    refused = refuse(s, MORI_SHMEM_OP_WAIT, word);
  else if (device::address(request.word) % sizeof(T) != 0)
    refused = refuse_argument(s, MORI_SHMEM_OP_WAIT, request.pe, device::address(request.word),
                              sizeof(T));
  else if (request.compare < MORI_SHMEM_CMP_EQ || request.compare > MORI_SHMEM_CMP_LE)
    refused =
        refuse_argument(s, MORI_SHMEM_OP_WAIT, request.pe,
                        static_cast<u64>(static_cast<i64>(request.compare)), MORI_SHMEM_CMP_LE);
  // The arguments are the same for all lanes, so all of them leave here.
  if (refused != MORI_OK) return {0, false};
  device::wait_limits limits = limits_of(s);
  if (request.budget_ns != 0) {
    limits.budget_ns = request.budget_ns;
    limits.timeout_is_fault = false;
  }
  return device::group_wait_until(
      group, request.word,
      [request](T seen) { return compares(seen, request.compare, request.value); }, limits,
      {MORI_SHMEM_OP_WAIT, request.pe, static_cast<u64>(request.value)}, heap_bell_of(s));
}

template <class Group, class T>
MORI_HOT i32 wait_until_equals(const Group& group, const state& s, const T* word, T value) {
  const auto result = wait_until(group, s, wait_request<T>{word, MORI_SHMEM_CMP_EQ, value});
  return result.met ? static_cast<i32>(MORI_OK) : ended_status(s);
}

// Returns the value seen.
template <class Group, class T>
MORI_HOT T wait_until_greater_than(const Group& group, const state& s, const T* word, T value) {
  return wait_until(group, s, wait_request<T>{word, MORI_SHMEM_CMP_GT, value}).seen;
}

}  // namespace mori::device_api
