// atomic_host.hpp - atomics of the host back end: the compiler's __atomic
// builtins. Included by atomic.hpp, which documents the interface.
//
// The scope has no meaning here: coherence covers all processes that map the
// same memory, so every access is at system scope.
//
// x86-64: ordinary stores are seen in program order, so release costs nothing.
// Streaming (non-temporal) stores of copy_streaming() are the exception: they
// sit in write-combining buffers and may be seen after a later flag store, a
// release one too. Hence fence<scope::system, release or stronger>() also
// drains them (sfence); narrower scopes do not pay for it.
#pragma once

#include <mori/device/core.hpp>

namespace mori::device {

template <class T>
inline constexpr bool atomic_size = sizeof(T) == 4 || sizeof(T) == 8;

constexpr int failure_order(order o) {
  return o == order::relaxed || o == order::release ? __ATOMIC_RELAXED
         : o == order::acq_rel                      ? __ATOMIC_ACQUIRE
                                                    : static_cast<int>(o);
}

template <scope, order O, class T>
MORI_HOT T load(const T* p) {
  static_assert(atomic_size<T>);
  return __atomic_load_n(p, static_cast<int>(O));
}
template <scope, order O, class T>
MORI_HOT void store(T* p, T v) {
  static_assert(atomic_size<T>);
  __atomic_store_n(p, v, static_cast<int>(O));
}
template <scope, order O, class T>
MORI_HOT T exchange(T* p, T v) {
  static_assert(atomic_size<T>);
  return __atomic_exchange_n(p, v, static_cast<int>(O));
}
template <scope, order O, class T>
MORI_HOT T fetch_add(T* p, T v) {
  static_assert(atomic_size<T>);
  return __atomic_fetch_add(p, v, static_cast<int>(O));
}
template <scope, order O, class T>
MORI_HOT T fetch_and(T* p, T v) {
  static_assert(atomic_size<T>);
  return __atomic_fetch_and(p, v, static_cast<int>(O));
}
template <scope, order O, class T>
MORI_HOT T fetch_or(T* p, T v) {
  static_assert(atomic_size<T>);
  return __atomic_fetch_or(p, v, static_cast<int>(O));
}
template <scope, order O, class T>
MORI_HOT T fetch_xor(T* p, T v) {
  static_assert(atomic_size<T>);
  return __atomic_fetch_xor(p, v, static_cast<int>(O));
}
template <scope, order O, class T>
MORI_HOT bool compare_exchange(T* p, T& expected, T desired) {
  static_assert(atomic_size<T>);
  return __atomic_compare_exchange_n(p, &expected, desired, false, static_cast<int>(O),
                                     failure_order(O));
}

#if defined(MORI_TSAN)
// The thread sanitizer does not model fences (g++ refuses them under it). A
// read-modify-write of one word stands in: it orders at least as much as the
// fence does, so correct code stays free of reports.
inline u32 fence_word = 0;
#endif

template <scope S, order O>
MORI_HOT void fence() {
#if defined(__x86_64__)
  if constexpr (S == scope::system && O != order::acquire && O != order::relaxed)
    __builtin_ia32_sfence();
#endif
#if defined(MORI_TSAN)
  __atomic_fetch_add(&fence_word, 0u, __ATOMIC_SEQ_CST);
#else
  __atomic_thread_fence(static_cast<int>(O));
#endif
}

}  // namespace mori::device
