// work_number.hpp - what a completion brings back of its work request: whose it was
// and which one. Packed into the 64 bits that the device returns.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mori::link::verbs {

struct work_number {
  static constexpr size_t max_slots = 1 << 16;
  static constexpr uint64_t number_mask = (uint64_t{1} << 47) - 1;

  uint16_t slot = 0;  // of the queue pair in its completion queue
  bool is_receive = false;
  uint64_t number = 0;  // 47 bits: at 100 million a second they last for two weeks

  uint64_t pack() const {
    return uint64_t{slot} << 48 | uint64_t{is_receive} << 47 | (number & number_mask);
  }
  static work_number unpack(uint64_t bits) {
    return {static_cast<uint16_t>(bits >> 48), (bits >> 47 & 1) != 0, bits & number_mask};
  }
};

}  // namespace mori::link::verbs
