// core.hpp - the language layer: what a kernel may assume on every processor.
// Fixed-width integers, the function and memory qualifiers of the language that
// is being compiled, memory scopes and orders. One kernel source is compiled
// for the host, for AMD (clang -x hip) and for NVIDIA (nvcc); this folder is the
// only place that knows which. No header here includes a standard header, so
// none needs a device library, and no inline library code that was compiled for
// one instruction set can replace another translation unit's copy.
//
// Read next: atomic.hpp (memory model), group.hpp (lanes, waves, blocks),
// kernel.hpp (how a kernel is written).
#pragma once

// The processor that this pass generates code for. nvcc's pass over host code parses the bodies of
// device functions too, and drops them: it has to see what they are on the GPU.
#if defined(__AMDGCN__)
#define MORI_TARGET_AMD 1
#elif defined(__CUDA_ARCH__) || defined(__NVPTX__) || defined(__CUDACC__)
#define MORI_TARGET_NVIDIA 1
#else
#define MORI_TARGET_HOST 1
#endif

// MORI_ARGUMENT: a kernel's parameter, read where the driver put it and never copied.
// MORI_DEVICE: a function that kernels call. MORI_SHARED: a variable that the
// lanes of a block share (on the host a block has one lane, so it is an
// ordinary local). MORI_HOT: inlined whatever the optimiser thinks. MORI_OUTLINE:
// a call, for code that is large and not on a fast path. MORI_COLD: the slow half
// of a fast function: a call on the host only, since on GPUs every call costs registers.
// MORI_EXPORTED: a function that kernels of other compilers call and inline.
// MORI_MODULE_STATE: a variable of a GPU module that the host sets and kernels only read; on the
// host each thread has its own, as each PE's module has.
#if defined(__HIP__) || defined(__CUDACC__) || defined(__CUDA__)
#define MORI_LANGUAGE_GPU 1
#define MORI_DEVICE __attribute__((device)) inline
#define MORI_HOT __attribute__((device)) inline
#define MORI_OUTLINE __attribute__((device)) __attribute__((noinline))
#define MORI_COLD __attribute__((device)) inline
#define MORI_SHARED __attribute__((shared))
#define MORI_GLOBAL __attribute__((global))
#define MORI_EXPORTED __attribute__((device, always_inline)) __attribute__((visibility("default")))
#define MORI_MODULE_STATE __attribute__((constant)) __attribute__((visibility("default")))
#if defined(__CUDACC__)
#define MORI_ARGUMENT __grid_constant__
#else
#define MORI_ARGUMENT
#endif
#define MORI_NO_UNROLL _Pragma("unroll 1")
#else
#define MORI_DEVICE inline
#define MORI_HOT inline __attribute__((always_inline))
#define MORI_OUTLINE __attribute__((noinline))
#define MORI_COLD inline __attribute__((noinline, cold))
#define MORI_SHARED
#define MORI_GLOBAL
#define MORI_EXPORTED __attribute__((visibility("default")))
#define MORI_MODULE_STATE thread_local
#define MORI_NO_UNROLL
#endif

// Set when the thread sanitizer watches; see fence() in atomic_host.hpp.
#if defined(__SANITIZE_THREAD__)
#define MORI_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MORI_TSAN 1
#endif
#endif

namespace mori::device {

using u8 = __UINT8_TYPE__;
using u16 = __UINT16_TYPE__;
using u32 = __UINT32_TYPE__;
using u64 = __UINT64_TYPE__;  // the type of uint64_t, so structs of the C headers mix freely
using i8 = __INT8_TYPE__;
using i16 = __INT16_TYPE__;
using i32 = __INT32_TYPE__;
using i64 = __INT64_TYPE__;
using usz = __SIZE_TYPE__;
using uptr = __UINTPTR_TYPE__;

// Who must agree on the order of two accesses. device: all blocks of one GPU.
// system: also other GPUs, the host and other processes.
enum class scope { thread, wave, block, device, system };

enum class order {
  relaxed = __ATOMIC_RELAXED,
  acquire = __ATOMIC_ACQUIRE,
  release = __ATOMIC_RELEASE,
  acq_rel = __ATOMIC_ACQ_REL,
  seq_cst = __ATOMIC_SEQ_CST
};

template <class T>
MORI_HOT T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
MORI_HOT T max(T a, T b) {
  return a < b ? b : a;
}
template <class T>
MORI_HOT T ceil_div(T value, T divisor) {
  return value / divisor + (value % divisor != 0 ? 1 : 0);
}

// States carry addresses as u64 (they cross language and process boundaries). They
// always point to global memory; saying so gives AMD global instead of flat accesses.
template <class T>
MORI_HOT T* pointer(u64 address) {
#if defined(MORI_TARGET_AMD)
  using global = __attribute__((address_space(1))) T;
  return (T*)reinterpret_cast<global*>(address);
#else
  return reinterpret_cast<T*>(static_cast<uptr>(address));
#endif
}
template <class T>
MORI_HOT u64 address(T* p) {
  return static_cast<u64>(reinterpret_cast<uptr>(p));
}

// Loads a word that nobody writes while kernels run (a table that was made before): the compiler
// may keep it over waits and fences.
MORI_HOT u64 load_constant(const u64* word) {
#if defined(MORI_TARGET_NVIDIA)
  u64 value;
  asm("ld.global.nc.b64 %0, [%1];" : "=l"(value) : "l"(word));
  return value;
#else
  return *word;
#endif
}

template <class To, class From>
MORI_HOT To bit_cast(From value) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
  return __builtin_bit_cast(To, value);
}

// The unsigned integer of 4 or 8 bytes.
template <usz Bytes>
struct word_of_size;
template <>
struct word_of_size<4> {
  using type = u32;
};
template <>
struct word_of_size<8> {
  using type = u64;
};

template <class A, class B>
inline constexpr bool same_type = false;
template <class A>
inline constexpr bool same_type<A, A> = true;

}  // namespace mori::device

#include <mori/device/atomic.hpp>
