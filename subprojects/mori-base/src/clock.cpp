// clock.cpp - see clock.hpp.
#include <mori/base/clock.hpp>

#include <ctime>

namespace mori::base {

uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * ns_per_s + static_cast<uint64_t>(t.tv_nsec);
}

int deadline::left_ms() const {
  constexpr uint64_t day_ms = 86'400'000;
  const uint64_t left = left_ns();
  const uint64_t ms = left / ns_per_ms + (left % ns_per_ms != 0 ? 1 : 0);
  return static_cast<int>(ms < day_ms ? ms : day_ms);
}

}  // namespace mori::base
