// atomic_nvidia.hpp - atomics of the NVIDIA back end as inline PTX. Included by
// atomic.hpp, which documents the interface.
//
// Why inline PTX: it says order and scope itself, so it means the same in every
// compiler (LLVM's own lowering of atomicrmw for this target drops both).
//
// Memory model notes (sm_70 and later):
//  * Scopes are .cta, .gpu and .sys. Flags that a peer GPU or the host polls
//    need .sys on both sides: a .gpu release is not ordered for them.
//  * fence.acq_rel.sys by the lane that stored the data, then the barrier of the
//    block, then the flag store of one lane: causality is transitive, so the
//    flag's observer sees the data of all lanes. The barrier itself orders at
//    .cta scope only.
//  * seq_cst is fence.sc before the access (a total order of all such fences
//    of the scope); acq_rel alone would allow store-load reordering.
//  * A lane may wait for another lane of its own warp (independent thread
//    scheduling), but AMD lanes may not, so kernels never do.
#pragma once

#include <mori/device/core.hpp>

namespace mori::device {

template <class T>
inline constexpr bool atomic_size = sizeof(T) == 4 || sizeof(T) == 8;

// Expands STATEMENT(".sys") and so on for the scope S in effect.
#define MORI_PTX_SCOPE(STATEMENT)            \
  if constexpr (S == scope::system) {        \
    STATEMENT(".sys");                       \
  } else if constexpr (S == scope::device) { \
    STATEMENT(".gpu");                       \
  } else {                                   \
    STATEMENT(".cta");                       \
  }

template <scope S, order O>
MORI_HOT void fence() {
  static_assert(O != order::relaxed, "a relaxed fence orders nothing");
#define MORI_PTX(SC)                              \
  if constexpr (O == order::seq_cst)              \
    asm volatile("fence.sc" SC ";" ::: "memory"); \
  else                                            \
    asm volatile("fence.acq_rel" SC ";" ::: "memory")
  MORI_PTX_SCOPE(MORI_PTX)
#undef MORI_PTX
}

template <scope S, order O, class T>
MORI_HOT T load(const T* p) {
  static_assert(atomic_size<T>);
  static_assert(O != order::release && O != order::acq_rel, "a load cannot release");
  if constexpr (O == order::seq_cst) fence<S, order::seq_cst>();
  T v;
#define MORI_PTX_SIZED(SEM)                                                \
  if constexpr (sizeof(T) == 4)                                            \
    asm volatile("ld" SEM ".b32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); \
  else                                                                     \
    asm volatile("ld" SEM ".b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory")
#define MORI_PTX(SC)                   \
  if constexpr (O == order::relaxed) { \
    MORI_PTX_SIZED(".relaxed" SC);     \
  } else {                             \
    MORI_PTX_SIZED(".acquire" SC);     \
  }
  MORI_PTX_SCOPE(MORI_PTX)
#undef MORI_PTX
#undef MORI_PTX_SIZED
  return v;
}

template <scope S, order O, class T>
MORI_HOT void store(T* p, T v) {
  static_assert(atomic_size<T>);
  static_assert(O != order::acquire && O != order::acq_rel, "a store cannot acquire");
  if constexpr (O == order::seq_cst) fence<S, order::seq_cst>();
#define MORI_PTX_SIZED(SEM)                                              \
  if constexpr (sizeof(T) == 4)                                          \
    asm volatile("st" SEM ".b32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); \
  else                                                                   \
    asm volatile("st" SEM ".b64 [%0], %1;" ::"l"(p), "l"(v) : "memory")
#define MORI_PTX(SC)                   \
  if constexpr (O == order::relaxed) { \
    MORI_PTX_SIZED(".relaxed" SC);     \
  } else {                             \
    MORI_PTX_SIZED(".release" SC);     \
  }
  MORI_PTX_SCOPE(MORI_PTX)
#undef MORI_PTX
#undef MORI_PTX_SIZED
}

// One read-modify-write: atom.<sem>.<scope>.<op> with 32- and 64-bit forms.
#define MORI_PTX_RMW_ONE(SEM, OP32, OP64)                                                 \
  if constexpr (sizeof(T) == 4)                                                           \
    asm volatile("atom" SEM OP32 " %0, [%1], %2;" : "=r"(r) : "l"(p), "r"(v) : "memory"); \
  else                                                                                    \
    asm volatile("atom" SEM OP64 " %0, [%1], %2;" : "=l"(r) : "l"(p), "l"(v) : "memory")
#define MORI_PTX_RMW_ORDER(SC, OP32, OP64)       \
  if constexpr (O == order::relaxed) {           \
    MORI_PTX_RMW_ONE(".relaxed" SC, OP32, OP64); \
  } else if constexpr (O == order::acquire) {    \
    MORI_PTX_RMW_ONE(".acquire" SC, OP32, OP64); \
  } else if constexpr (O == order::release) {    \
    MORI_PTX_RMW_ONE(".release" SC, OP32, OP64); \
  } else {                                       \
    MORI_PTX_RMW_ONE(".acq_rel" SC, OP32, OP64); \
  }
#define MORI_PTX_RMW(NAME, OP32, OP64)                             \
  template <scope S, order O, class T>                             \
  MORI_HOT T NAME(T* p, T v) {                                     \
    static_assert(atomic_size<T>);                                 \
    if constexpr (O == order::seq_cst) fence<S, order::seq_cst>(); \
    T r;                                                           \
    if constexpr (S == scope::system) {                            \
      MORI_PTX_RMW_ORDER(".sys", OP32, OP64)                       \
    } else if constexpr (S == scope::device) {                     \
      MORI_PTX_RMW_ORDER(".gpu", OP32, OP64)                       \
    } else {                                                       \
      MORI_PTX_RMW_ORDER(".cta", OP32, OP64)                       \
    }                                                              \
    return r;                                                      \
  }
MORI_PTX_RMW(exchange, ".exch.b32", ".exch.b64")
MORI_PTX_RMW(fetch_add, ".add.u32", ".add.u64")
MORI_PTX_RMW(fetch_and, ".and.b32", ".and.b64")
MORI_PTX_RMW(fetch_or, ".or.b32", ".or.b64")
MORI_PTX_RMW(fetch_xor, ".xor.b32", ".xor.b64")
#undef MORI_PTX_RMW
#undef MORI_PTX_RMW_ORDER
#undef MORI_PTX_RMW_ONE

template <scope S, order O, class T>
MORI_HOT bool compare_exchange(T* p, T& expected, T desired) {
  static_assert(atomic_size<T>);
  if constexpr (O == order::seq_cst) fence<S, order::seq_cst>();
  const T want = expected;
  T r;
#define MORI_PTX_SIZED(SEM)                              \
  if constexpr (sizeof(T) == 4)                          \
    asm volatile("atom" SEM ".cas.b32 %0, [%1], %2, %3;" \
                 : "=r"(r)                               \
                 : "l"(p), "r"(want), "r"(desired)       \
                 : "memory");                            \
  else                                                   \
    asm volatile("atom" SEM ".cas.b64 %0, [%1], %2, %3;" \
                 : "=l"(r)                               \
                 : "l"(p), "l"(want), "l"(desired)       \
                 : "memory")
#define MORI_PTX(SC)                          \
  if constexpr (O == order::relaxed) {        \
    MORI_PTX_SIZED(".relaxed" SC);            \
  } else if constexpr (O == order::acquire) { \
    MORI_PTX_SIZED(".acquire" SC);            \
  } else if constexpr (O == order::release) { \
    MORI_PTX_SIZED(".release" SC);            \
  } else {                                    \
    MORI_PTX_SIZED(".acq_rel" SC);            \
  }
  MORI_PTX_SCOPE(MORI_PTX)
#undef MORI_PTX
#undef MORI_PTX_SIZED
  expected = r;
  return r == want;
}
#undef MORI_PTX_SCOPE

}  // namespace mori::device
