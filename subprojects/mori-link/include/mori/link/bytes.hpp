// bytes.hpp - how structs become bytes on a wire: little-endian, no padding,
// written and read field by field. A reader never runs past its end: the first
// short field makes it fail for good, and the caller asks once, at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mori::link {

using byte_span = std::span<const std::byte>;
using byte_vector = std::vector<std::byte>;

inline byte_span as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class byte_writer {
 public:
  // Room for most messages: one allocation, and g++ 12 then sees no overflow where there is none.
  byte_writer() { bytes_.reserve(64); }
  void u8(uint8_t value) { number(value, 1); }
  void u16(uint16_t value) { number(value, 2); }
  void u32(uint32_t value) { number(value, 4); }
  void u64(uint64_t value) { number(value, 8); }
  void i32(int32_t value) { number(static_cast<uint32_t>(value), 4); }
  void raw(byte_span bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  // Cut at 65535 bytes.
  void text(std::string_view value) {
    value = value.substr(0, UINT16_MAX);
    u16(static_cast<uint16_t>(value.size()));
    raw(as_bytes(value));
  }

  byte_span view() const { return bytes_; }
  byte_vector take() { return std::move(bytes_); }

 private:
  void number(uint64_t value, int width) {
    for (int i = 0; i < width; ++i) bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
  }
  byte_vector bytes_;
};

class byte_reader {
 public:
  explicit byte_reader(byte_span bytes) : left_(bytes) {}

  uint8_t u8() { return static_cast<uint8_t>(number(1)); }
  uint16_t u16() { return static_cast<uint16_t>(number(2)); }
  uint32_t u32() { return static_cast<uint32_t>(number(4)); }
  uint64_t u64() { return number(8); }
  int32_t i32() { return static_cast<int32_t>(u32()); }
  byte_span raw(size_t bytes) {
    if (bytes > left_.size()) good_ = false;
    if (!good_) return {};
    const byte_span taken = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return taken;
  }
  std::string text(size_t most_bytes) {
    const size_t size = u16();
    if (size > most_bytes) good_ = false;
    const byte_span taken = raw(size);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

  bool good() const { return good_; }
  // All fields were there and nothing is left over.
  bool complete() const { return good_ && left_.empty(); }
  byte_span rest() const { return left_; }

 private:
  uint64_t number(size_t width) {
    const byte_span taken = raw(width);
    uint64_t value = 0;
    for (size_t i = 0; i < taken.size(); ++i) value |= static_cast<uint64_t>(taken[i]) << (8 * i);
    return value;
  }
  byte_span left_;
  bool good_ = true;
};

}  // namespace mori::link
