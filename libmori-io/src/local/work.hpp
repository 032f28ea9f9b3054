// work.hpp - bytes to move between memory of this process and memory of another, and
// how far that has come. Offsets are checked by whoever made the pieces; every way of
// moving (mapping.hpp, attach.hpp, gpu_copy.hpp) takes them from here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/region.hpp"

namespace mori::io_core::local {

using memory::piece;

struct work {
  bool is_read = false;  // from there to here
  std::span<const piece> pieces;
  std::byte* local = nullptr;  // where the region's offsets count from
  uint64_t remote = 0;         // address there, or of its mapping here
};

// The next byte to move. At the end piece == pieces.size().
struct position {
  uint64_t piece = 0;
  uint64_t bytes = 0;  // of that piece that are done
};

// Moves `at` past `bytes`, and past pieces of no bytes.
inline void skip(const work& what, position& at, uint64_t bytes) {
  while (at.piece < what.pieces.size()) {
    const uint64_t left = what.pieces[at.piece].bytes - at.bytes;
    if (bytes < left) {
      at.bytes += bytes;
      return;
    }
    bytes -= left;
    at = {at.piece + 1, 0};
  }
}

inline bool is_over(const work& what, const position& at) { return at.piece >= what.pieces.size(); }

}  // namespace mori::io_core::local
