// lane_host.hpp - lanes of the host back end: one per wave, one wave per block.
// Included by group.hpp, which documents the interface.
#pragma once

#include <mori/device/lane_words.hpp>

namespace mori::device::lane {

inline constexpr bool wave_is_single = true;
inline constexpr u32 max_waves = 1;

MORI_HOT u32 wave_rank() { return 0; }
MORI_HOT u32 wave_size() { return 1; }
MORI_HOT void wave_sync() {}
MORI_HOT u64 ballot(bool flag) { return flag ? 1 : 0; }
MORI_HOT u32 shuffle(u32 word, u32) { return word; }
MORI_HOT u32 broadcast(u32 word, u32) { return word; }
MORI_HOT u32 block_rank() { return 0; }
MORI_HOT u32 block_size() { return 1; }
MORI_HOT void block_sync() {}
MORI_HOT bool block_any(bool flag) { return flag; }
MORI_HOT void drain_stores() {}

}  // namespace mori::device::lane
