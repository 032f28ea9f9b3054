// noise.hpp - the symmetric state of the Noise framework (revision 34) for
// 25519, ChaChaPoly and BLAKE2b: a chaining key, a running hash over everything
// said, and a cipher key. handshake.hpp drives it; nobody else needs it.
#pragma once

#include "wire/crypto.hpp"

namespace mori::io_core::wire {

class noise_state {
 public:
  static constexpr size_t tag_bytes = 16;

  noise_state() = default;
  // name: exactly 64 bytes or fewer, as the framework pads it.
  explicit noise_state(std::string_view name, byte_span prologue);

  void mix_hash(byte_span bytes);
  void mix_key(const secret_key& input);

  // Appends plain.size() + tag_bytes (once a key is mixed in) to `out`, which must have that room.
  void encrypt_and_hash(byte_span plain, byte_room out);
  // False: not authentic; the state is then of no more use.
  [[nodiscard]] bool decrypt_and_hash(byte_span sealed, byte_room out);

  void split(secret_key& forward, secret_key& backward) const;
  const digest& handshake_hash() const { return hash_; }
  void wipe();

 private:
  secret<64> chaining_;
  digest hash_{};
  secret_key key_;
  uint64_t nonce_ = 0;
};

}  // namespace mori::io_core::wire
