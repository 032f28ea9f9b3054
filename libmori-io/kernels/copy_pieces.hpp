// copy_pieces.hpp - many copies by one kernel: for pieces that are so small that a copy
// each would cost more to start than to run. A wave takes one piece after the other;
// whoever makes the list cuts long ones, so that waves end together.
#pragma once

#include <mori/device/kernel.hpp>

namespace mori::io_core {

struct copy_entry {
  device::u64 to;
  device::u64 from;
  device::u64 bytes;
};

struct copy_pieces_args {
  device::u64 entries;  // address of copy_entry[count]
  device::u64 count;
};

MORI_DEVICE void copy_pieces(const device::grid& g, const copy_pieces_args& args) {
  const auto* entries = device::pointer<const copy_entry>(args.entries);
  for (device::u64 i = g.wave_index(); i < args.count; i += g.wave_count()) {
    const copy_entry each = entries[i];
    device::copy(g.this_wave(), device::pointer<void>(each.to),
                 device::pointer<const void>(each.from), each.bytes);
  }
}

}  // namespace mori::io_core
