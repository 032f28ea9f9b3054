// copy_host.hpp - bulk copy of the host back end. Included by copy.hpp.
//
// copy() is the C library's memcpy, which knows the machine. copy_streaming()
// writes with non-temporal stores: the target lines are not read first and do not
// push the copier's working set out of its caches.
#pragma once

#include <mori/device/core.hpp>

namespace mori::device::bulk {

MORI_HOT void copy(u32, u32, u8* to, const u8* from, usz bytes) {
  __builtin_memcpy(to, from, bytes);
}

// Sanitizers see only the plain copy: they do not instrument non-temporal stores.
#if defined(__x86_64__) && !defined(MORI_TSAN) && !defined(__SANITIZE_ADDRESS__)

#if defined(__AVX512F__)
using vector_bytes = long long __attribute__((vector_size(64)));
#elif defined(__AVX__)
using vector_bytes = long long __attribute__((vector_size(32)));
#else
using vector_bytes = long long __attribute__((vector_size(16)));
#endif

MORI_HOT void store_streaming(u8* to, vector_bytes value) {
#if defined(__clang__)
  __builtin_nontemporal_store(value, reinterpret_cast<vector_bytes*>(to));
#elif defined(__AVX512F__)
  __builtin_ia32_movntdq512(reinterpret_cast<vector_bytes*>(to), value);
#elif defined(__AVX__)
  __builtin_ia32_movntdq256(reinterpret_cast<vector_bytes*>(to), value);
#else
  __builtin_ia32_movntdq(reinterpret_cast<vector_bytes*>(to), value);
#endif
}

// Below this a streaming copy only pays for its partial lines.
inline constexpr usz streaming_minimum_bytes = 1024;
inline constexpr usz line_bytes = 64;

MORI_DEVICE void copy_streaming(u32, u32, u8* to, const u8* from, usz bytes) {
  if (bytes < streaming_minimum_bytes) {
    __builtin_memcpy(to, from, bytes);
    return;
  }
  const usz head = (line_bytes - reinterpret_cast<uptr>(to) % line_bytes) % line_bytes;
  __builtin_memcpy(to, from, head);
  usz at = head;
  constexpr usz width = sizeof(vector_bytes);
  constexpr usz round = 256;
  for (; at + round <= bytes; at += round) {
    vector_bytes part[round / width];
    __builtin_memcpy(part, from + at, round);
    for (usz i = 0; i < round / width; ++i) store_streaming(to + at + i * width, part[i]);
  }
  for (; at + width <= bytes; at += width) {
    vector_bytes part;
    __builtin_memcpy(&part, from + at, width);
    store_streaming(to + at, part);
  }
  __builtin_memcpy(to + at, from + at, bytes - at);
}

#else

MORI_HOT void copy_streaming(u32, u32, u8* to, const u8* from, usz bytes) {
  __builtin_memcpy(to, from, bytes);
}

#endif

}  // namespace mori::device::bulk
