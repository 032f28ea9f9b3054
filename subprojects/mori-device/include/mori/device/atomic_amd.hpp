// atomic_amd.hpp - atomics of the AMD back end (clang -x hip, no device
// libraries). Included by atomic.hpp, which documents the interface.
//
// Memory model notes (gfx90a, gfx942, gfx950):
//  * Scopes map to LLVM's sync scopes: wavefront, workgroup, agent (one GPU),
//    "" (system). The compiler turns a system-scope release into a write-back of
//    the L2 (buffer_wbl2 with the system bits) followed by a wait for
//    all outstanding stores, and a system-scope acquire into an invalidation
//    (buffer_inv). An agent-scope pair does not write the L2 back, so peers of
//    another GPU could miss the data: data for peers needs scope::system.
//  * Memory that several GPUs or the host share must be fine-grained (or
//    uncached) to be coherent while a kernel runs; the runtime allocates
//    it so. Coarse-grained memory is coherent at kernel boundaries only.
//  * 64 lanes of a wave run in lock step only as far as the compiler keeps them
//    together: lanes that exchange data through memory need wave::sync(), and a
//    loop in which one lane waits for another lane of its wave may never end.
//    So: never let a lane wait for a lane of its own wave.
#pragma once

#include <mori/device/core.hpp>

namespace mori::device {

template <class T>
inline constexpr bool atomic_size = sizeof(T) == 4 || sizeof(T) == 8;

// The builtins take literal scopes and orders; the conversions are constant expressions.
template <scope S>
inline constexpr int amd_scope = S == scope::thread   ? __HIP_MEMORY_SCOPE_SINGLETHREAD
                                 : S == scope::wave   ? __HIP_MEMORY_SCOPE_WAVEFRONT
                                 : S == scope::block  ? __HIP_MEMORY_SCOPE_WORKGROUP
                                 : S == scope::device ? __HIP_MEMORY_SCOPE_AGENT
                                                      : __HIP_MEMORY_SCOPE_SYSTEM;
template <order O>
inline constexpr int failure_order = O == order::relaxed || O == order::release ? __ATOMIC_RELAXED
                                     : O == order::acq_rel ? __ATOMIC_ACQUIRE
                                                           : static_cast<int>(O);

template <scope S, order O, class T>
MORI_HOT T load(const T* p) {
  static_assert(atomic_size<T>);
  return __hip_atomic_load(p, static_cast<int>(O), amd_scope<S>);
}
template <scope S, order O, class T>
MORI_HOT void store(T* p, T v) {
  static_assert(atomic_size<T>);
  __hip_atomic_store(p, v, static_cast<int>(O), amd_scope<S>);
}
template <scope S, order O, class T>
MORI_HOT T exchange(T* p, T v) {
  static_assert(atomic_size<T>);
  return __hip_atomic_exchange(p, v, static_cast<int>(O), amd_scope<S>);
}
template <scope S, order O, class T>
MORI_HOT T fetch_add(T* p, T v) {
  static_assert(atomic_size<T>);
  return __hip_atomic_fetch_add(p, v, static_cast<int>(O), amd_scope<S>);
}
template <scope S, order O, class T>
MORI_HOT T fetch_and(T* p, T v) {
  static_assert(atomic_size<T>);
  return __hip_atomic_fetch_and(p, v, static_cast<int>(O), amd_scope<S>);
}
template <scope S, order O, class T>
MORI_HOT T fetch_or(T* p, T v) {
  static_assert(atomic_size<T>);
  return __hip_atomic_fetch_or(p, v, static_cast<int>(O), amd_scope<S>);
}
template <scope S, order O, class T>
MORI_HOT T fetch_xor(T* p, T v) {
  static_assert(atomic_size<T>);
  return __hip_atomic_fetch_xor(p, v, static_cast<int>(O), amd_scope<S>);
}
template <scope S, order O, class T>
MORI_HOT bool compare_exchange(T* p, T& expected, T desired) {
  static_assert(atomic_size<T>);
  return __hip_atomic_compare_exchange_strong(p, &expected, desired, static_cast<int>(O),
                                              failure_order<O>, amd_scope<S>);
}

// __builtin_amdgcn_fence takes no template-dependent arguments: literals only.
#define MORI_AMD_FENCE(O, SCOPE)                                 \
  do {                                                           \
    if constexpr ((O) == order::acquire)                         \
      __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, SCOPE);           \
    else if constexpr ((O) == order::release)                    \
      __builtin_amdgcn_fence(__ATOMIC_RELEASE, SCOPE);           \
    else if constexpr ((O) == order::acq_rel)                    \
      __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, SCOPE);           \
    else                                                         \
      __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, SCOPE);           \
  } while (0)

template <scope S, order O>
MORI_HOT void fence() {
  static_assert(O != order::relaxed, "a relaxed fence orders nothing");
  if constexpr (S == scope::system)
    MORI_AMD_FENCE(O, "");
  else if constexpr (S == scope::device)
    MORI_AMD_FENCE(O, "agent");
  else if constexpr (S == scope::block)
    MORI_AMD_FENCE(O, "workgroup");
  else
    MORI_AMD_FENCE(O, "wavefront");
}
#undef MORI_AMD_FENCE

}  // namespace mori::device
