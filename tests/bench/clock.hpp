// clock.hpp - times of a measurement: nanoseconds of the machine's monotonic
// clock, which all processes share, and the cheap per-operation stamp that
// ucx_perftest takes too, so that what is compared with it pays the same.
#pragma once

#include <time.h>

#include <algorithm>
#include <array>
#include <cstddef>
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

// Durations of the last operations, in a queue as long as ucx_perftest's.
class stamps {
 public:
  void begin() {
    start_ns_ = now_ns();
    start_ = last_ = stamp();
    count_ = 0;
  }

  void take() {
    const std::uint64_t now = stamp();
    durations_[count_++ % queue_length] = now - last_;
    last_ = now;
  }

  // Nanoseconds of the operation in the middle, of the last ones since begin().
  double median_ns() {
    const double ns_per_tick =
        static_cast<double>(now_ns() - start_ns_) / static_cast<double>(stamp() - start_);
    const auto end = durations_.begin() +
                     static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(count_, queue_length));
    const auto middle = durations_.begin() + (end - durations_.begin()) / 2;
    std::nth_element(durations_.begin(), middle, end);
    return static_cast<double>(*middle) * ns_per_tick;
  }

 private:
  static constexpr std::uint64_t queue_length = 2048;
  std::array<std::uint64_t, queue_length> durations_{};
  std::uint64_t count_ = 0;
  std::uint64_t start_ns_ = 0, start_ = 0, last_ = 0;
};

}  // namespace mori_bench
