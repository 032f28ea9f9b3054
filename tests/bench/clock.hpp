// clock.hpp - times of a measurement: nanoseconds of the machine's monotonic
// clock, which all processes share, and the cheap per-operation stamp that
// ucx_perftest takes too, so that what is compared with it pays the same.
#pragma once

#include <time.h>

#include <cstdint>

namespace mori_bench {

inline std::uint64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

inline std::uint64_t stamp() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return now_ns();
#endif
}

// A queue of the last operations' durations, as ucx_perftest keeps one.
class stamps {
 public:
  void take() {
    const std::uint64_t now = stamp();
    durations_[next_] = now - last_;
    next_ = (next_ + 1) % queue_length;
    last_ = now;
  }

 private:
  static constexpr unsigned queue_length = 1024;
  volatile std::uint64_t durations_[queue_length]{};
  unsigned next_ = 0;
  std::uint64_t last_ = 0;
};

}  // namespace mori_bench
