// keyed_hash.cpp - see keyed_hash.hpp.
#include "wire/keyed_hash.hpp"

#include <sodium.h>

namespace mori::link {
namespace {

void prepare_library() {
  static const int ready = sodium_init();
  (void)ready;  // fails only where there is no random source; randombytes then says so
}

}  // namespace

void keyed_hash(std::span<const uint8_t> key, std::string_view label,
                std::span<const byte_span> parts, std::span<uint8_t> out) {
  prepare_library();
  crypto_generichash_state state;
  crypto_generichash_init(&state, key.data(), key.size(), out.size());
  const auto add = [&](byte_span part) {
    crypto_generichash_update(&state, reinterpret_cast<const uint8_t*>(part.data()), part.size());
  };
  // The length separates a label from what follows it.
  const std::byte label_size{static_cast<unsigned char>(label.size())};
  add(byte_span(&label_size, 1));
  add(as_bytes(label));
  for (const byte_span part : parts) add(part);
  crypto_generichash_final(&state, out.data(), out.size());
}

bool equal_in_constant_time(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

void random_bytes(std::span<uint8_t> out) {
  prepare_library();
  randombytes_buf(out.data(), out.size());
}

void wipe(std::span<uint8_t> secret) { sodium_memzero(secret.data(), secret.size()); }

}  // namespace mori::link
