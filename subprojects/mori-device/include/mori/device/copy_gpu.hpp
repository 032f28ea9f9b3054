// copy_gpu.hpp - bulk copy of the GPU back ends: each lane moves 16 bytes at a
// time, neighbouring lanes neighbouring chunks, four chunks in flight. Included by copy.hpp.
#pragma once

#include <mori/device/core.hpp>

namespace mori::device::bulk {

struct alignas(16) chunk16 {
  u32 word[4];
};

inline constexpr usz unroll = 4;

// Elements of type E from both pointers aligned to it; all loads of a round before its stores.
template <class E>
MORI_DEVICE void copy_elements(u32 rank, u32 size, E* to, const E* from, usz count) {
  usz i = rank;
  const usz step = size;
  for (; i + (unroll - 1) * step < count; i += unroll * step) {
    const E a = from[i];
    const E b = from[i + step];
    const E c = from[i + 2 * step];
    const E d = from[i + 3 * step];
    to[i] = a;
    to[i + step] = b;
    to[i + 2 * step] = c;
    to[i + 3 * step] = d;
  }
  for (; i < count; i += step) to[i] = from[i];
}

// Head up to alignment, body in elements of E, tail.
template <class E>
MORI_DEVICE void copy_aligned(u32 rank, u32 size, u8* to, const u8* from, usz bytes) {
  const usz head = min<usz>((sizeof(E) - reinterpret_cast<uptr>(to) % sizeof(E)) % sizeof(E), bytes);
  const usz count = (bytes - head) / sizeof(E);
  const usz body = count * sizeof(E);
  if (head != 0) copy_elements<u8>(rank, size, to, from, head);
  copy_elements<E>(rank, size, reinterpret_cast<E*>(to + head),
                   reinterpret_cast<const E*>(from + head), count);
  if (head + body != bytes)
    copy_elements<u8>(rank, size, to + head + body, from + head + body, bytes - head - body);
}

// The widest element that both pointers can be aligned to together.
MORI_DEVICE void copy(u32 rank, u32 size, u8* to, const u8* from, usz bytes) {
  const uptr skew = reinterpret_cast<uptr>(to) ^ reinterpret_cast<uptr>(from);
  if (skew % 16 == 0)
    copy_aligned<chunk16>(rank, size, to, from, bytes);
  else if (skew % 8 == 0)
    copy_aligned<u64>(rank, size, to, from, bytes);
  else if (skew % 4 == 0)
    copy_aligned<u32>(rank, size, to, from, bytes);
  else
    copy_elements<u8>(rank, size, to, from, bytes);
}

// Peer memory is not cached by the copier, so there is nothing to bypass.
MORI_DEVICE void copy_streaming(u32 rank, u32 size, u8* to, const u8* from, usz bytes) {
  copy(rank, size, to, from, bytes);
}

}  // namespace mori::device::bulk
