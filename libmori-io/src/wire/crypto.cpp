// crypto.cpp - see crypto.hpp.
#include "wire/crypto.hpp"

#include <sodium.h>

namespace mori::io_core::wire {
namespace {

void prepare_library() {
  static const int ready = sodium_init();
  (void)ready;  // fails only where there is no random source; randombytes then says so
}

const uint8_t* data_of(byte_span bytes) { return reinterpret_cast<const uint8_t*>(bytes.data()); }

}  // namespace

key_pair key_pair::make() {
  secret_key fresh;
  random_bytes({fresh.data(), fresh.size()});
  return of(fresh);
}

key_pair key_pair::of(const secret_key& private_key) {
  prepare_library();
  key_pair made;
  made.private_key = private_key;
  crypto_scalarmult_base(made.public_key.data(), private_key.data());
  return made;
}

bool shared_secret(const secret_key& mine, const public_key& theirs, secret_key& out) {
  prepare_library();
  return crypto_scalarmult(out.data(), mine.data(), theirs.data()) == 0;
}

void random_bytes(std::span<uint8_t> out) {
  prepare_library();
  randombytes_buf(out.data(), out.size());
}

instance_id fresh_instance() {
  instance_id made{};
  random_bytes(made);
  return made;
}

capability fresh_capability() {
  capability made{};
  random_bytes(made);
  return made;
}

bool equal_in_constant_time(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

void wipe_bytes(void* bytes, size_t size) { sodium_memzero(bytes, size); }

void keyed_hash(std::span<const uint8_t> key, std::string_view label,
                std::initializer_list<byte_span> parts, std::span<uint8_t> out) {
  prepare_library();
  crypto_generichash_blake2b_state state;
  crypto_generichash_blake2b_init(&state, key.data(), key.size(), out.size());
  // The length separates a label from what follows it.
  const auto label_size = static_cast<uint8_t>(label.size());
  crypto_generichash_blake2b_update(&state, &label_size, 1);
  crypto_generichash_blake2b_update(&state, data_of(link::as_bytes(label)), label.size());
  for (const byte_span part : parts)
    crypto_generichash_blake2b_update(&state, data_of(part), part.size());
  crypto_generichash_blake2b_final(&state, out.data(), out.size());
  sodium_memzero(&state, sizeof state);
}

}  // namespace mori::io_core::wire
