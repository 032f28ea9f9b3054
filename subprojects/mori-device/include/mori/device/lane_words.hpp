// lane_words.hpp - moving values of 4 or 8 bytes through 32-bit lane operations.
// Included by the lane_*.hpp of each back end.
#pragma once

#include <mori/device/core.hpp>

namespace mori::device::lane {

// Applies move(u32) to each 32-bit half of a value.
template <class T, class Move>
MORI_HOT T over_words(T value, Move move) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "lane operations move 4 or 8 bytes");
  if constexpr (sizeof(T) == 4) {
    return bit_cast<T>(move(bit_cast<u32>(value)));
  } else {
    const u64 bits = bit_cast<u64>(value);
    const u64 low = move(static_cast<u32>(bits));
    const u64 high = move(static_cast<u32>(bits >> 32));
    return bit_cast<T>(high << 32 | low);
  }
}

template <class T>
MORI_HOT u64 widen(T value) {
  if constexpr (sizeof(T) == 4)
    return bit_cast<u32>(value);
  else
    return bit_cast<u64>(value);
}
template <class T>
MORI_HOT T narrow(u64 bits) {
  if constexpr (sizeof(T) == 4)
    return bit_cast<T>(static_cast<u32>(bits));
  else
    return bit_cast<T>(bits);
}

}  // namespace mori::device::lane
