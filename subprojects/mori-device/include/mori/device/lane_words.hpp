// lane_words.hpp - moving values of 4 to 16 bytes through 32-bit lane operations.
// Included by the lane_*.hpp of each back end.
#pragma once

#include <mori/device/core.hpp>

namespace mori::device::lane {

template <usz Count>
struct words {
  u32 word[Count];
};

// Applies move(u32) to each 32-bit word of a value.
template <class T, class Move>
MORI_HOT T over_words(T value, Move move) {
  static_assert(sizeof(T) % 4 == 0 && sizeof(T) <= 16, "lane operations move 4, 8, 12 or 16 bytes");
  using parts = words<sizeof(T) / 4>;
  parts moved = bit_cast<parts>(value);
  for (u32& word : moved.word) word = move(word);
  return bit_cast<T>(moved);
}

}  // namespace mori::device::lane
