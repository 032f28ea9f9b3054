// copy_lanes.hpp - bulk copy by many lanes, for the GPU back ends: each lane moves
// 16 bytes at a time, neighbouring lanes neighbouring chunks, four chunks in flight.
// Included by copy.hpp; plain C++, so the host tests run it lane by lane.
#pragma once

#include <mori/device/core.hpp>

namespace mori::device::lanes {

struct alignas(16) chunk16 {
  u32 word[4];
};

// Word by word, which becomes one load of 16 bytes. Copied as a whole, chunks that are in flight
// would be private variables to clang: on AMD they went through shared or scratch memory.
MORI_HOT chunk16 fetch(const chunk16& from) {
  return {{from.word[0], from.word[1], from.word[2], from.word[3]}};
}

// Chunks of 16 bytes: all four loads of a round before its stores.
MORI_HOT void copy_chunks(u32 rank, u32 size, chunk16* to, const chunk16* from, usz count) {
  const usz step = size;
  usz i = rank;
  MORI_NO_UNROLL
  for (; i + 3 * step < count; i += 4 * step) {
    const chunk16 a = fetch(from[i]);
    const chunk16 b = fetch(from[i + step]);
    const chunk16 c = fetch(from[i + 2 * step]);
    const chunk16 d = fetch(from[i + 3 * step]);
    to[i] = a;
    to[i + step] = b;
    to[i + 2 * step] = c;
    to[i + 3 * step] = d;
  }
  MORI_NO_UNROLL
  for (; i < count; i += step) to[i] = fetch(from[i]);
}

template <class E>
MORI_HOT void copy_elements(u32 rank, u32 size, E* to, const E* from, usz count) {
  MORI_NO_UNROLL
  for (usz i = rank; i < count; i += size) to[i] = from[i];
}

// Head up to the target's alignment, body in the widest element that both pointers can
// be aligned to together, tail. Rows of tokens always take the 16-byte body alone.
MORI_DEVICE void copy(u32 rank, u32 size, u8* to, const u8* from, usz bytes) {
  const uptr skew = reinterpret_cast<uptr>(to) ^ reinterpret_cast<uptr>(from);
  const usz width = skew % 16 == 0 ? 16 : skew % 4 == 0 ? 4 : 1;
  const usz head = min<usz>((width - reinterpret_cast<uptr>(to) % width) % width, bytes);
  const usz count = (bytes - head) / width;
  if (head != 0) copy_elements(rank, size, to, from, head);
  to += head;
  from += head;
  if (width == 16)
    copy_chunks(rank, size, reinterpret_cast<chunk16*>(to), reinterpret_cast<const chunk16*>(from),
                count);
  else if (width == 4)
    copy_elements(rank, size, reinterpret_cast<u32*>(to), reinterpret_cast<const u32*>(from),
                  count);
  else
    copy_elements(rank, size, to, from, count);
  const usz done = count * width;
  if (head + done != bytes) copy_elements(rank, size, to + done, from + done, bytes - head - done);
}

// One source to `count` targets, lane i of the wave knowing target i: each chunk is read once. All
// are aligned to 16 bytes, and so is the size. The loads of a round come before its stores, so
// that a wave has four rows of chunks in flight however many targets there are.
template <class Wave>
MORI_DEVICE void copy_chunks_to_many(const Wave& wave, u32 count, u64 my_target,
                                     const chunk16* from, usz chunk_count) {
  const usz step = wave.size();
  usz i = wave.rank();
  MORI_NO_UNROLL
  for (usz round = 0; round + 4 * step <= chunk_count; round += 4 * step, i += 4 * step) {
    const chunk16 a = fetch(from[i]);
    const chunk16 b = fetch(from[i + step]);
    const chunk16 c = fetch(from[i + 2 * step]);
    const chunk16 d = fetch(from[i + 3 * step]);
    MORI_NO_UNROLL
    for (u32 t = 0; t < count; ++t) {
      auto* to = pointer<chunk16>(wave.broadcast(my_target, t));
      to[i] = a;
      to[i + step] = b;
      to[i + 2 * step] = c;
      to[i + 3 * step] = d;
    }
  }
  // Rounds of one chunk per lane, of which the last may leave lanes without one.
  MORI_NO_UNROLL
  for (usz round = chunk_count / (4 * step) * (4 * step); round < chunk_count;
       round += step, i += step) {
    const bool is_mine = i < chunk_count;
    chunk16 a{};
    if (is_mine) a = fetch(from[i]);
    MORI_NO_UNROLL
    for (u32 t = 0; t < count; ++t) {
      auto* to = pointer<chunk16>(wave.broadcast(my_target, t));
      if (is_mine) to[i] = a;
    }
  }
}

}  // namespace mori::device::lanes
