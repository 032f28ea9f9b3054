// pause_nvidia.hpp - how a waiting NVIDIA lane passes the time. Included by
// wait.hpp. nanosleep suspends the lane for about the time asked for (sm_70
// and later); %globaltimer counts nanoseconds, in steps of up to about a microsecond.
#pragma once

#include <mori/device/core.hpp>

namespace mori::device::pause {

MORI_HOT u64 now_ns() {
  u64 t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

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
    if (++polls_ < spins) return;
    asm volatile("nanosleep.u32 %0;" ::"r"(sleep_ns_));
    if (sleep_ns_ < 1024) sleep_ns_ *= 2;
  }

 private:
  static constexpr u32 spins = 1024;  // a poll at system scope takes about half a microsecond
  u32 polls_ = 0;
  u32 sleep_ns_ = 32;
};

}  // namespace mori::device::pause
