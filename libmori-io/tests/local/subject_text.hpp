// subject_text.hpp - what the tests and subject_program.cpp both know: cards and bytes as
// words, memory filled by a seed, sums of it.
#pragma once

#include "local/process.hpp"

#include <mori/link/bytes.hpp>

#include <charconv>
#include <cstring>
#include <string>

namespace mori::io_test {

inline std::string hex(link::byte_span bytes) {
  std::string text;
  for (const std::byte each : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(each));
  return text;
}

inline link::byte_vector unhex(const std::string& text) {
  link::byte_vector bytes(text.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i) {
    unsigned value = 0;
    std::from_chars(text.data() + 2 * i, text.data() + 2 * i + 2, value, 16);
    bytes[i] = static_cast<std::byte>(value);
  }
  return bytes;
}

inline std::string card_text(const io_core::local::process_card& card) {
  return hex(std::as_bytes(std::span(&card, 1)));
}

inline io_core::local::process_card card_of(const std::string& text) {
  io_core::local::process_card card;
  const link::byte_vector bytes = unhex(text);
  if (bytes.size() == sizeof card) std::memcpy(&card, bytes.data(), sizeof card);
  return card;
}

// A byte that depends on its place and the seed.
inline std::byte byte_of(uint64_t place, uint64_t seed) {
  const uint64_t mixed = (place + seed * 0x9e3779b97f4a7c15) * 0xd1342543de82ef95;
  return static_cast<std::byte>(mixed >> 56);
}

inline void fill(std::byte* to, uint64_t bytes, uint64_t seed) {
  for (uint64_t i = 0; i < bytes; ++i) to[i] = byte_of(i, seed);
}

inline uint64_t sum(const std::byte* from, uint64_t bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (uint64_t i = 0; i < bytes; ++i)
    hash = (hash ^ static_cast<uint64_t>(from[i])) * 0x100000001b3;
  return hash;
}

}  // namespace mori::io_test
