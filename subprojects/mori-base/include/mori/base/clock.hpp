// clock.hpp - time as plain nanoseconds, and deadlines that cannot overflow.
// Every wait in the libraries takes a `deadline`; code that must run under a
// simulator takes `now_ns` as an argument instead of reading the clock.
#pragma once

#include <cstdint>

namespace mori::base {

inline constexpr uint64_t ns_per_us = 1'000;
inline constexpr uint64_t ns_per_ms = 1'000'000;
inline constexpr uint64_t ns_per_s = 1'000'000'000;

// CLOCK_MONOTONIC.
uint64_t now_ns();

// A point of CLOCK_MONOTONIC. Budgets near 2^64 saturate instead of wrapping.
class deadline {
 public:
  static deadline after(uint64_t budget_ns) { return at(saturating_add(now_ns(), budget_ns)); }
  static deadline at(uint64_t when_ns) { return deadline(when_ns); }

  uint64_t when_ns() const { return when_ns_; }
  bool passed() const { return now_ns() >= when_ns_; }
  uint64_t left_ns() const {
    const uint64_t now = now_ns();
    return now >= when_ns_ ? 0 : when_ns_ - now;
  }
  // For poll(): rounded up, so that a wait never spins on a fraction; at most a day.
  int left_ms() const;

  static uint64_t saturating_add(uint64_t a, uint64_t b) { return a + b < a ? UINT64_MAX : a + b; }

 private:
  explicit deadline(uint64_t when_ns) : when_ns_(when_ns) {}
  uint64_t when_ns_;
};

}  // namespace mori::base
