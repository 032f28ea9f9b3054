// pause_amd.hpp - how a waiting AMD lane passes the time. Included by wait.hpp.
//
// s_sleep n idles the wave for about 64 n clocks. The clock is the
// constant-rate counter that s_memrealtime reads: 100 MHz on gfx9, so 10 ns a tick.
#pragma once

#include <mori/device/core.hpp>

namespace mori::device::pause {

inline constexpr u64 ns_per_tick = 10;

MORI_HOT u64 now_ns() { return __builtin_readsteadycounter() * ns_per_tick; }

// Nobody sleeps on a futex here.
MORI_HOT void ring(u32*, u32*) {}
// Threads that serve a GPU look by themselves.
MORI_HOT void wake_thread(u32*, i32) {}

// Of the host's waits.
struct driver {
  u64 address;
  bool sleeps;
};

class state {
 public:
  MORI_HOT state(u64, u32*, u32*, driver) {}
  // Not at the first polls, which are the ones whose latency counts.
  MORI_HOT bool is_clock_due() const { return polls_ % 64 == 63; }
  MORI_HOT bool is_brief() const { return polls_ < 64; }
  template <class IsMet>
  MORI_HOT void next(IsMet) {
    if (++polls_ < spins)
      __builtin_amdgcn_s_sleep(1);
    else
      __builtin_amdgcn_s_sleep(16);
  }

 private:
  static constexpr u32 spins = 1024;
  u32 polls_ = 0;
};

}  // namespace mori::device::pause
