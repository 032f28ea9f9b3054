// Tests of the bulk copies: every combination of small sizes and alignments, and
// sizes around the rounds of each implementation, with the bytes around the
// target watched. The GPU form is run lane by lane.
#include <mori/device/copy.hpp>
#include <mori/device/copy_lanes.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace device = mori::device;

namespace {

constexpr size_t guard_bytes = 64;

struct layout {
  size_t to_skew, from_skew, bytes;
};

constexpr size_t area_bytes = 20'000;

const uint8_t* pattern() {
  static const std::vector<uint8_t> bytes = [] {
    std::vector<uint8_t> made(area_bytes);
    for (size_t i = 0; i < made.size(); ++i) made[i] = static_cast<uint8_t>(i * 7 + i / 251 + 1);
    return made;
  }();
  return bytes.data();
}

// Runs copy(to, from, bytes); whether the target and its surroundings are right.
template <class Copy>
bool is_right(const layout& l, Copy copy) {
  alignas(64) static uint8_t from[area_bytes], to[area_bytes], expected[area_bytes];
  const size_t touched = l.bytes + 2 * guard_bytes + 64;
  std::memcpy(from, pattern(), touched);
  std::memset(to, 0xee, touched);
  std::memset(expected, 0xee, touched);
  std::memcpy(expected + guard_bytes + l.to_skew, from + l.from_skew, l.bytes);
  copy(to + guard_bytes + l.to_skew, from + l.from_skew, l.bytes);
  return std::memcmp(to, expected, touched) == 0;
}

template <class Copy>
void check_all(Copy copy) {
  size_t failures = 0;
  for (size_t bytes = 0; bytes <= 80; ++bytes)
    for (size_t to_skew = 0; to_skew < 16; ++to_skew)
      for (size_t from_skew = 0; from_skew < 16; ++from_skew)
        failures += is_right({to_skew, from_skew, bytes}, copy) ? 0 : 1;
  for (const size_t bytes :
       {127,  128,  129,  255,  256,  257,  511,  512,  513,   1023,  1024, 1025,
        1087, 1088, 1090, 2047, 2048, 4095, 4096, 8191, 14336, 14337, 16383})
    for (const size_t to_skew : {0, 1, 4, 8, 15, 16, 31, 33, 48, 63})
      for (const size_t from_skew : {0, 1, 4, 8, 15, 16, 33})
        failures += is_right({to_skew, from_skew, bytes}, copy) ? 0 : 1;
  CHECK(failures == 0);
}

}  // namespace

TEST_CASE("copy moves any size at any alignment and nothing else") {
  check_all([](uint8_t* to, const uint8_t* from, size_t bytes) {
    device::copy(device::one_lane{}, to, from, bytes);
  });
}

TEST_CASE("streaming copy moves any size at any alignment and nothing else") {
  check_all([](uint8_t* to, const uint8_t* from, size_t bytes) {
    device::copy_streaming(device::block{}, to, from, bytes);
    device::fence<device::scope::system, device::order::release>();
  });
}

TEST_CASE("the copy of many lanes covers every byte exactly once") {
  for (const uint32_t lanes : {1u, 32u, 64u})
    check_all([lanes](uint8_t* to, const uint8_t* from, size_t bytes) {
      for (uint32_t rank = 0; rank < lanes; ++rank)
        device::lanes::copy(rank, lanes, to, from, bytes);
    });
}
