// crypto.hpp - what this library asks of libsodium, with sizes in the types.
// Secrets are wiped when they go; nothing here allocates. Everything that
// authenticates (handshake.hpp, frame.hpp) is built from these.
#pragma once

#include <mori/link/bytes.hpp>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

namespace mori::io_core::wire {

using link::byte_span;
using byte_room = std::span<std::byte>;
using public_key = std::array<uint8_t, 32>;
using digest = std::array<uint8_t, 64>;
using instance_id = std::array<uint8_t, 16>;
using capability = std::array<uint8_t, 16>;

// Bytes that are wiped when they go, and when another value replaces them.
template <size_t Size>
class secret {
 public:
  secret() = default;
  secret(const secret&) = default;
  secret& operator=(const secret&) = default;
  ~secret() { wipe(); }
  void wipe();

  uint8_t* data() { return bytes_.data(); }
  const uint8_t* data() const { return bytes_.data(); }
  static constexpr size_t size() { return Size; }
  std::span<const uint8_t, Size> view() const { return bytes_; }

 private:
  std::array<uint8_t, Size> bytes_{};
};

using secret_key = secret<32>;

// An engine's X25519 identity; the private half never leaves the process.
struct key_pair {
  wire::public_key public_key{};
  secret_key private_key;
  static key_pair make();
  static key_pair of(const secret_key& private_key);
};

// False for a low-order point: the shared secret would not depend on ours.
bool shared_secret(const secret_key& mine, const public_key& theirs, secret_key& out);

void random_bytes(std::span<uint8_t> out);
instance_id fresh_instance();
capability fresh_capability();
bool equal_in_constant_time(std::span<const uint8_t> a, std::span<const uint8_t> b);
void wipe_bytes(void* bytes, size_t size);

// BLAKE2b with a key (which may be empty) over a label with its length, then the
// parts. out: 16 .. 64 bytes.
void keyed_hash(std::span<const uint8_t> key, std::string_view label,
                std::initializer_list<byte_span> parts, std::span<uint8_t> out);

template <size_t Size>
void secret<Size>::wipe() {
  wipe_bytes(bytes_.data(), Size);
}

}  // namespace mori::io_core::wire
