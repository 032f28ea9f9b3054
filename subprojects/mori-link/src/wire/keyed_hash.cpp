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

std::array<uint8_t, 16> bulk_tag(const key_bytes& key, uint64_t number, byte_span bulk) {
  prepare_library();
  static_assert(crypto_stream_chacha20_KEYBYTES == std::tuple_size_v<key_bytes> &&
                crypto_stream_chacha20_NONCEBYTES == sizeof number);
  std::array<uint8_t, crypto_stream_chacha20_NONCEBYTES> nonce{};
  for (size_t i = 0; i < nonce.size(); ++i) nonce[i] = static_cast<uint8_t>(number >> (8 * i));
  std::array<uint8_t, crypto_onetimeauth_KEYBYTES> once{};
  crypto_stream_chacha20(once.data(), once.size(), nonce.data(), key.data());
  std::array<uint8_t, crypto_onetimeauth_BYTES> tag{};
  crypto_onetimeauth(tag.data(), reinterpret_cast<const uint8_t*>(bulk.data()), bulk.size(),
                     once.data());
  wipe(once);
  return tag;
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
