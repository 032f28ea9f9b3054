// keyed_hash.hpp - what we ask of libsodium: BLAKE2b with a key, Poly1305 for what is large, and
// random bytes. Everything that authenticates (handshake.hpp, frame.hpp) is
// built from these.
#pragma once

#include <mori/link/bytes.hpp>

#include <array>

namespace mori::link {

using key_bytes = std::array<uint8_t, 32>;

// Hash of `label` and the parts under a key. out: 16 .. 64 bytes.
void keyed_hash(std::span<const uint8_t> key, std::string_view label,
                std::span<const byte_span> parts, std::span<uint8_t> out);
// Poly1305 with a key that `key` and `number` make; a number is used once.
std::array<uint8_t, 16> bulk_tag(const key_bytes& key, uint64_t number, byte_span bulk);
bool equal_in_constant_time(std::span<const uint8_t> a, std::span<const uint8_t> b);
void random_bytes(std::span<uint8_t> out);
void wipe(std::span<uint8_t> secret);

}  // namespace mori::link
