// lane_nvidia.hpp - lanes of the NVIDIA back end, by inline PTX alone. Included
// by group.hpp, which documents the interface.
//
// All 32 lanes take part in wave operations (the mask is full): code that
// calls them from divergent lanes is wrong on every back end.
#pragma once

#include <mori/device/lane_words.hpp>

namespace mori::device::lane {

inline constexpr bool wave_is_single = false;
inline constexpr u32 max_waves = 32;  // 1024 lanes in waves of 32

MORI_HOT u32 wave_rank() {
  u32 r;
  asm("mov.u32 %0, %%laneid;" : "=r"(r));
  return r;
}
MORI_HOT u32 wave_size() { return 32; }
MORI_HOT void wave_sync() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
MORI_HOT u64 ballot(bool flag) {
  u32 mask;
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }"
               : "=r"(mask)
               : "r"(static_cast<u32>(flag)));
  return mask;
}
MORI_HOT u32 shuffle(u32 word, u32 source) {
  u32 r;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;"
               : "=r"(r)
               : "r"(word), "r"(source));
  return r;
}
MORI_HOT u32 broadcast(u32 word, u32 root) { return shuffle(word, root); }
MORI_HOT u32 block_rank() {
  u32 r;
  asm("mov.u32 %0, %%tid.x;" : "=r"(r));
  return r;
}
MORI_HOT u32 block_size() {
  u32 r;
  asm("mov.u32 %0, %%ntid.x;" : "=r"(r));
  return r;
}
MORI_HOT u32 grid_rank() {
  u32 r;
  asm("mov.u32 %0, %%ctaid.x;" : "=r"(r));
  return r;
}
// Nothing: the fence that follows the meeting is cumulative by the PTX memory model.
MORI_HOT void drain_stores() {}
MORI_HOT void block_sync() { asm volatile("barrier.sync 0;" ::: "memory"); }

MORI_HOT bool block_any(bool flag) {
  u32 any;
  asm volatile(
      "{ .reg .pred p, q; setp.ne.u32 p, %1, 0; barrier.red.or.pred q, 0, p; selp.u32 %0, 1, 0, q; "
      "}"
      : "=r"(any)
      : "r"(static_cast<u32>(flag))
      : "memory");
  return any != 0;
}

}  // namespace mori::device::lane
