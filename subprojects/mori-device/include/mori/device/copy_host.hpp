// copy_host.hpp - bulk copy of the host back end. Included by copy.hpp.
//
// copy() is the C library's memcpy, which knows the machine, but for one trap that it
// falls into. copy_streaming()
// writes with non-temporal stores: the target lines are not read first and do not
// push the copier's working set out of its caches.
#pragma once

#include <mori/device/core.hpp>

namespace mori::device::bulk {

inline constexpr usz line_bytes = 64;
inline constexpr usz page_bytes = 4096;

// From 2 KiB or more on, memcpy becomes `rep movsb` where the processor calls that fast. Some (AMD
// Zen 3) then need 30 times as long if the target starts within a line after the source, whole
// pages aside; from a heap to a large block of malloc() that is no rare case. Smaller pieces are
// copied by vectors, at least as fast.
inline constexpr usz piece_bytes = 31 * line_bytes;

MORI_DEVICE __attribute__((noinline)) void copy_in_pieces(u8* to, const u8* from, usz bytes) {
  while (bytes != 0) {
    usz part = min(bytes, piece_bytes);
    // A compiler that knows how small the part is copies it by the same instruction.
    __asm__("" : "+r"(part));
    __builtin_memcpy(to, from, part);
    to += part;
    from += part;
    bytes -= part;
  }
}

MORI_HOT void copy(u8* to, const u8* from, usz bytes) {
  const usz ahead = (reinterpret_cast<uptr>(to) - reinterpret_cast<uptr>(from)) % page_bytes;
  if (bytes > piece_bytes && ahead - 1 < line_bytes - 1)
    copy_in_pieces(to, from, bytes);
  else
    __builtin_memcpy(to, from, bytes);
}

// How far ahead sources are fetched; without it the loads wait in each page anew.
inline constexpr usz prefetch_bytes = 512;

// Sanitizers see only the plain copy: they do not instrument non-temporal stores.
#if defined(__x86_64__) && !defined(MORI_TSAN) && !defined(__SANITIZE_ADDRESS__)

#if defined(__AVX512F__)
inline constexpr usz vector_width = 64;
#elif defined(__AVX__)
inline constexpr usz vector_width = 32;
#else
inline constexpr usz vector_width = 16;
#endif
using vector_bytes = long long __attribute__((vector_size(vector_width)));

MORI_HOT vector_bytes load_loose(const u8* from) {
  vector_bytes value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

// to is aligned to the vector's width.
MORI_HOT void store_streaming(u8* to, vector_bytes value) {
  auto* target = reinterpret_cast<vector_bytes*>(to);
#if defined(__clang__)
  __builtin_nontemporal_store(value, target);
#elif defined(__AVX512F__)
  __builtin_ia32_movntdq512(target, value);
#elif defined(__AVX__)
  __builtin_ia32_movntdq256(target, value);
#else
  __builtin_ia32_movntdq(target, value);
#endif
}

// Below this a streaming copy only pays for its partial lines.
inline constexpr usz streaming_minimum_bytes = 1024;

// Vectors of one round; all loads before the stores, so that they overlap.
template <usz... I>
struct vector_list {};
using round_vectors = vector_list<0, 1, 2, 3, 4, 5, 6, 7>;
inline constexpr usz round_bytes = 8 * vector_width;

template <usz... I>
MORI_HOT void stream_round(u8* to, const u8* from, vector_list<I...>) {
  for (usz ahead = 0; ahead < round_bytes; ahead += line_bytes)
    __builtin_prefetch(from + prefetch_bytes + ahead, 0, 0);
  const vector_bytes parts[] = {load_loose(from + I * vector_width)...};
  (store_streaming(to + I * vector_width, parts[I]), ...);
}

MORI_DEVICE void copy_streaming(u8* to, const u8* from, usz bytes) {
  if (bytes < streaming_minimum_bytes) {
    __builtin_memcpy(to, from, bytes);
    return;
  }
  const usz head = (line_bytes - reinterpret_cast<uptr>(to) % line_bytes) % line_bytes;
  __builtin_memcpy(to, from, head);
  usz at = head;
  for (; at + round_bytes <= bytes; at += round_bytes)
    stream_round(to + at, from + at, round_vectors{});
  for (; at + vector_width <= bytes; at += vector_width)
    store_streaming(to + at, load_loose(from + at));
  __builtin_memcpy(to + at, from + at, bytes - at);
}

#else

MORI_HOT void copy_streaming(u8* to, const u8* from, usz bytes) {
  __builtin_memcpy(to, from, bytes);
}

#endif

}  // namespace mori::device::bulk
