// atomic_amd.hpp - atomics of the AMD back end (clang -x hip, no device
// libraries). Included by atomic.hpp, which documents the interface.
//
// Memory model notes (gfx90a, gfx942, gfx950):
//  * Scopes map to LLVM's sync scopes: wavefront, workgroup, agent (one GPU),
//    "" (system). On gfx942 a system-scope release is buffer_wbl2 sc0 sc1 (write
//    the L2 back) and a wait for it, a system-scope acquire is buffer_inv sc0 sc1;
//    at agent scope both carry sc1 alone, so peers on another GPU could miss
//    the data: data for peers needs scope::system.
//  * Memory that several GPUs or the host share must be fine-grained (or
//    uncached) to be coherent while a kernel runs; whoever allocates it sees to it.
//    Coarse-grained memory is coherent at kernel boundaries only.
//  * 64 lanes of a wave run in lock step only as far as the compiler keeps them
//    together: lanes that exchange data through memory need wave::sync(), and a
//    loop in which one lane waits for another lane of its wave may never end.
//    So: never let a lane wait for a lane of its own wave.
//  * LLVM before 23 drops the wait after buffer_wbl2 when no other access is
//    outstanding (llvm/llvm-project pull request 178316), so the flag could
//    overtake the write-back. Every release here is therefore a fence with a wait of its own,
//    followed by an operation that does not release; a test looks at
//    the disassembly.
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
inline constexpr bool releases = O == order::release || O == order::acq_rel || O == order::seq_cst;
// What is left of an order once a fence has released.
template <order O>
inline constexpr int amd_order =
    O == order::relaxed || O == order::release ? __ATOMIC_RELAXED : __ATOMIC_ACQUIRE;

// __builtin_amdgcn_fence takes no template-dependent arguments: literals only.
template <scope S>
MORI_HOT void release_fence() {
  if constexpr (S == scope::system || S == scope::device) {
    if constexpr (S == scope::system)
      __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
    else
      __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
    asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
  } else if constexpr (S == scope::block) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  } else {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  }
}
template <scope S>
MORI_HOT void acquire_fence() {
  if constexpr (S == scope::system)
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
  else if constexpr (S == scope::device)
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
  else if constexpr (S == scope::block)
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  else
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

// seq_cst: the wait of the release half ends all earlier stores before any later load.
template <scope S, order O>
MORI_HOT void fence() {
  static_assert(O != order::relaxed, "a relaxed fence orders nothing");
  if constexpr (releases<O>) release_fence<S>();
  if constexpr (O != order::release) acquire_fence<S>();
}

// What a releasing or sequentially consistent operation begins with.
template <scope S, order O>
MORI_HOT void before_operation() {
  if constexpr (O == order::seq_cst)
    fence<S, O>();
  else if constexpr (releases<O>)
    release_fence<S>();
}

template <scope S, order O, class T>
MORI_HOT T load(const T* p) {
  static_assert(atomic_size<T>);
  static_assert(O != order::release && O != order::acq_rel, "a load cannot release");
  if constexpr (O == order::seq_cst) fence<S, O>();
  return __hip_atomic_load(p, amd_order<O>, amd_scope<S>);
}
template <scope S, order O, class T>
MORI_HOT void store(T* p, T v) {
  static_assert(atomic_size<T>);
  static_assert(O != order::acquire && O != order::acq_rel, "a store cannot acquire");
  before_operation<S, O>();
  __hip_atomic_store(p, v, __ATOMIC_RELAXED, amd_scope<S>);
}
template <scope S, order O, class T>
MORI_HOT T exchange(T* p, T v) {
  static_assert(atomic_size<T>);
  before_operation<S, O>();
  return __hip_atomic_exchange(p, v, amd_order<O>, amd_scope<S>);
}
template <scope S, order O, class T>
MORI_HOT T fetch_add(T* p, T v) {
  static_assert(atomic_size<T>);
  before_operation<S, O>();
  return __hip_atomic_fetch_add(p, v, amd_order<O>, amd_scope<S>);
}
template <scope S, order O, class T>
MORI_HOT T fetch_and(T* p, T v) {
  static_assert(atomic_size<T>);
  before_operation<S, O>();
  return __hip_atomic_fetch_and(p, v, amd_order<O>, amd_scope<S>);
}
template <scope S, order O, class T>
MORI_HOT T fetch_or(T* p, T v) {
  static_assert(atomic_size<T>);
  before_operation<S, O>();
  return __hip_atomic_fetch_or(p, v, amd_order<O>, amd_scope<S>);
}
template <scope S, order O, class T>
MORI_HOT T fetch_xor(T* p, T v) {
  static_assert(atomic_size<T>);
  before_operation<S, O>();
  return __hip_atomic_fetch_xor(p, v, amd_order<O>, amd_scope<S>);
}
template <scope S, order O, class T>
MORI_HOT bool compare_exchange(T* p, T& expected, T desired) {
  static_assert(atomic_size<T>);
  before_operation<S, O>();
  return __hip_atomic_compare_exchange_strong(p, &expected, desired, amd_order<O>, amd_order<O>,
                                              amd_scope<S>);
}

}  // namespace mori::device
