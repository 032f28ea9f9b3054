// codec.hpp - writing fields into room that somebody else owns, and what the
// codecs of this folder share. Reading is mori/link/bytes.hpp's byte_reader.
#pragma once

#include <mori/base.h>
#include <mori/link/bytes.hpp>

#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "wire/crypto.hpp"

namespace mori::io_core::wire {

static_assert(std::endian::native == std::endian::little,
              "the codecs copy integers as they lie in memory");

// Writes fields in order; what does not fit is left out and makes it fail for good.
class room_writer {
 public:
  explicit room_writer(byte_room room) : room_(room) {}

  void u8(uint8_t value) { put(&value, sizeof value); }
  void u16(uint16_t value) { put(&value, sizeof value); }
  void u32(uint32_t value) { put(&value, sizeof value); }
  void u64(uint64_t value) { put(&value, sizeof value); }
  void i32(int32_t value) { put(&value, sizeof value); }
  void raw(byte_span bytes) { put(bytes.data(), bytes.size()); }
  template <size_t Size>
  void raw(const std::array<uint8_t, Size>& bytes) {
    put(bytes.data(), Size);
  }

  bool good() const { return good_; }
  size_t used() const { return used_; }
  // Bytes written, 0 when something did not fit.
  size_t size() const { return good_ ? used_ : 0; }

 private:
  void put(const void* from, size_t bytes) {
    if (bytes > room_.size() - used_) good_ = false;
    if (!good_ || bytes == 0) return;
    std::memcpy(room_.data() + used_, from, bytes);
    used_ += bytes;
  }
  byte_room room_;
  size_t used_ = 0;
  bool good_ = true;
};

template <class Number>
Number load(const std::byte* from) {
  Number value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <size_t Size>
void read_raw(link::byte_reader& in, std::array<uint8_t, Size>& to) {
  const byte_span bytes = in.raw(Size);
  if (bytes.size() == Size) std::memcpy(to.data(), bytes.data(), Size);
}

inline std::string_view as_text(byte_span bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A status that a peer sent: what this library does not know is a failure.
inline mori_status known_status(int32_t value) {
  return value >= MORI_OK && value <= MORI_E_INTERNAL ? value
                                                      : static_cast<mori_status>(MORI_E_INTERNAL);
}

// Text from a peer, fit for a log line: control characters and bytes that are no
// UTF-8 become '?'.
std::string printable(std::string_view text);
// The first most_bytes of it or fewer, cut between characters.
std::string_view cut_text(std::string_view text, size_t most_bytes);

}  // namespace mori::io_core::wire
