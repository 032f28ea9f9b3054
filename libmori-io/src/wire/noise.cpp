// noise.cpp - see noise.hpp. HMAC and HKDF are the framework's, over BLAKE2b,
// which libsodium has only without them.
#include "wire/noise.hpp"

#include <sodium.h>

#include <algorithm>
#include <cstring>

namespace mori::io_core::wire {
namespace {

constexpr size_t hash_bytes = 64;
constexpr size_t hash_block_bytes = 128;

using hash_state = crypto_generichash_blake2b_state;

void add(hash_state& state, std::span<const uint8_t> bytes) {
  crypto_generichash_blake2b_update(&state, bytes.data(), bytes.size());
}

void begin(hash_state& state) { crypto_generichash_blake2b_init(&state, nullptr, 0, hash_bytes); }

void end(hash_state& state, std::span<uint8_t, hash_bytes> out) {
  crypto_generichash_blake2b_final(&state, out.data(), out.size());
}

// key: at most a block, as all of ours are.
void hmac(std::span<const uint8_t> key, std::initializer_list<std::span<const uint8_t>> parts,
          secret<hash_bytes>& out) {
  secret<hash_block_bytes> inner, outer;
  std::copy(key.begin(), key.end(), inner.data());
  std::copy(key.begin(), key.end(), outer.data());
  for (size_t i = 0; i < hash_block_bytes; ++i) {
    inner.data()[i] ^= 0x36;
    outer.data()[i] ^= 0x5C;
  }
  secret<hash_bytes> middle;
  hash_state state;
  begin(state);
  add(state, inner.view());
  for (const auto part : parts) add(state, part);
  end(state, std::span<uint8_t, hash_bytes>(middle.data(), hash_bytes));
  begin(state);
  add(state, outer.view());
  add(state, middle.view());
  end(state, std::span<uint8_t, hash_bytes>(out.data(), hash_bytes));
  sodium_memzero(&state, sizeof state);
}

// The framework's HKDF with two outputs.
void derive(const secret<hash_bytes>& chaining, std::span<const uint8_t> input,
            secret<hash_bytes>& first, secret<hash_bytes>& second) {
  constexpr uint8_t one[] = {1}, two[] = {2};
  secret<hash_bytes> extracted;
  hmac(chaining.view(), {input}, extracted);
  hmac(extracted.view(), {one}, first);
  hmac(extracted.view(), {first.view(), two}, second);
}

void cut(const secret<hash_bytes>& from, secret_key& to) {
  std::copy_n(from.data(), to.size(), to.data());
}

// ChaChaPoly of the framework: 4 zero bytes, then the counter, little-endian.
std::array<uint8_t, 12> nonce_of(uint64_t number) {
  std::array<uint8_t, 12> nonce{};
  for (size_t i = 0; i < 8; ++i) nonce[4 + i] = static_cast<uint8_t>(number >> (8 * i));
  return nonce;
}

const uint8_t* data_of(byte_span bytes) { return reinterpret_cast<const uint8_t*>(bytes.data()); }
uint8_t* data_of(byte_room bytes) { return reinterpret_cast<uint8_t*>(bytes.data()); }

}  // namespace

noise_state::noise_state(std::string_view name, byte_span prologue) {
  std::copy(name.begin(), name.end(), hash_.begin());
  std::copy(hash_.begin(), hash_.end(), chaining_.data());
  mix_hash(prologue);
}

void noise_state::mix_hash(byte_span bytes) {
  hash_state state;
  begin(state);
  add(state, hash_);
  add(state, {data_of(bytes), bytes.size()});
  end(state, hash_);
}

void noise_state::mix_key(const secret_key& input) {
  secret<hash_bytes> key;
  derive(chaining_, input.view(), chaining_, key);
  cut(key, key_);
  nonce_ = 0;
}

void noise_state::encrypt_and_hash(byte_span plain, byte_room out) {
  const auto nonce = nonce_of(nonce_++);
  crypto_aead_chacha20poly1305_ietf_encrypt(data_of(out), nullptr, data_of(plain), plain.size(),
                                            hash_.data(), hash_.size(), nullptr, nonce.data(),
                                            key_.data());
  mix_hash(out.first(plain.size() + tag_bytes));
}

bool noise_state::decrypt_and_hash(byte_span sealed, byte_room out) {
  const auto nonce = nonce_of(nonce_++);
  if (crypto_aead_chacha20poly1305_ietf_decrypt(data_of(out), nullptr, nullptr, data_of(sealed),
                                                sealed.size(), hash_.data(), hash_.size(),
                                                nonce.data(), key_.data()) != 0)
    return false;
  mix_hash(sealed);
  return true;
}

void noise_state::split(secret_key& forward, secret_key& backward) const {
  secret<hash_bytes> first, second;
  derive(chaining_, {}, first, second);
  cut(first, forward);
  cut(second, backward);
}

void noise_state::wipe() {
  chaining_.wipe();
  key_.wipe();
}

}  // namespace mori::io_core::wire
