// wire_fuzz.hpp - the fuzz targets of the wire layer, one for each file
// *_fuzz.cpp; wire_fuzz.cpp gives libFuzzer the one that is asked for. Run them
// with fuzz.py. What must hold is checked by `require`, which ends the program.
#pragma once

#include <cstdlib>

#include "samples.hpp"

namespace fuzz {

using mori::link::byte_span;

void descriptor(byte_span input);
void handshake(byte_span input);
void frame(byte_span input);

// libFuzzer takes the trap for a finding and keeps the input.
inline void require(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace fuzz
