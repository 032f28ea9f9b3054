// lane_amd.hpp - lanes of the AMD back end, by compiler builtins alone. Included
// by group.hpp, which documents the interface.
//
// gfx9 waves have 64 lanes; nothing here assumes it (the builtins that give a
// 64-bit mask do so for both sizes). The block's size comes from the implicit
// kernel arguments of code object version 5.
#pragma once

#include <mori/device/lane_words.hpp>

namespace mori::device::lane {

inline constexpr bool wave_is_single = false;
inline constexpr u32 max_waves = 32;  // 1024 lanes in waves of at least 32

MORI_HOT u32 wave_rank() {
  return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
}
MORI_HOT u32 wave_size() { return __builtin_amdgcn_wavefrontsize(); }
MORI_HOT void wave_sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
MORI_HOT u64 ballot(bool flag) { return __builtin_amdgcn_ballot_w64(flag); }
MORI_HOT u32 shuffle(u32 word, u32 source) {
  return static_cast<u32>(
      __builtin_amdgcn_ds_bpermute(static_cast<int>(source * 4), static_cast<int>(word)));
}
MORI_HOT u32 broadcast(u32 word, u32 root) {
  return static_cast<u32>(
      __builtin_amdgcn_readlane(static_cast<int>(word), static_cast<int>(root)));
}
MORI_HOT u32 block_rank() { return __builtin_amdgcn_workitem_id_x(); }
MORI_HOT u32 block_size() { return __builtin_amdgcn_workgroup_size_x(); }
MORI_HOT u32 grid_rank() { return __builtin_amdgcn_workgroup_id_x(); }
// The stores of this wave have left it: s_waitcnt vmcnt(0). The workgroup fence of the meeting
// leaves that out where waves of a group share an L1, and the write-back of the L2 that follows
// is issued by one of them.
MORI_HOT void drain_stores() { asm volatile("s_waitcnt vmcnt(0)" ::: "memory"); }
MORI_HOT void block_sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

MORI_DEVICE bool block_any(bool flag) {
  MORI_SHARED u32 votes[max_waves];
  const u32 waves = block_size() / wave_size();
  const u32 vote = ballot(flag) != 0 ? 1 : 0;
  if (wave_rank() == 0) votes[block_rank() / wave_size()] = vote;
  block_sync();
  u32 any = 0;
  for (u32 i = 0; i < waves; ++i) any |= votes[i];
  block_sync();
  return any != 0;
}

}  // namespace mori::device::lane
