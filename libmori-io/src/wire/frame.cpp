// frame.cpp - see frame.hpp.
#include "wire/frame.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "wire/codec.hpp"

namespace mori::io_core::wire {
namespace {

constexpr size_t mac_key_bytes = crypto_onetimeauth_poly1305_KEYBYTES;
constexpr size_t mask_at = mac_key_bytes;  // in a frame's block
constexpr size_t block_bytes = key_stream::block_bytes;

const uint8_t* data_of(byte_span bytes) { return reinterpret_cast<const uint8_t*>(bytes.data()); }
uint8_t* data_of(byte_room bytes) { return reinterpret_cast<uint8_t*>(bytes.data()); }

// ChaCha20 with a 64-bit nonce and a 64-bit block counter.
void chacha20(const secret_key& key, uint64_t nonce, uint64_t block, const uint8_t* from,
              size_t bytes, uint8_t* to) {
  uint8_t number[crypto_stream_chacha20_NONCEBYTES];
  std::memcpy(number, &nonce, sizeof number);
  crypto_stream_chacha20_xor_ic(to, from, bytes, number, block, key.data());
}

void derive(const secret_key& from, std::string_view label, secret_key& to) {
  keyed_hash(from.view(), label, {}, {to.data(), to.size()});
}

}  // namespace

void key_stream::start(const secret_key& key, std::string_view label) {
  derive(key, label, key_);
  first_ = UINT64_MAX;
}

const uint8_t* key_stream::block(uint64_t index) {
  const uint64_t first = index / blocks * blocks;
  if (first != first_) {
    std::memset(made_.data(), 0, made_.size());
    chacha20(key_, 0, first, made_.data(), made_.size(), made_.data());
    first_ = first;
  }
  return made_.data() + (index - first) * block_bytes;
}

direction::direction(const secret_key& key, security_mode mode) : mode_(mode) {
  frame_keys_.start(key, "mori-io frame keys");
  payload_keys_.start(key, "mori-io payload keys");
  derive(key, "mori-io bodies", body_key_);
  derive(key, "mori-io payloads", payload_key_);
}

direction::~direction() { wipe_bytes(&payload_mac_, sizeof payload_mac_); }

void direction::mask(byte_room body) {
  const uint8_t* pad = frame_keys_.block(number_) + mask_at;
  for (size_t i = 0; i < sizeof(capability); ++i) body[i] ^= std::byte{pad[i]};
}

void direction::crypt_body(byte_room body) {
  chacha20(body_key_, number_, 0, data_of(body), body.size(), data_of(body));
}

void direction::make_tag(byte_span header_and_body, tag_room tag) {
  crypto_onetimeauth_poly1305(tag.data(), data_of(header_and_body), header_and_body.size(),
                              frame_keys_.block(number_));
}

void direction::end_frame(uint32_t payload_bytes) {
  assert(payload_authenticated_ == payload_bytes_);
  payload_bytes_ = mode_ == security_mode::trusted ? 0 : payload_bytes;
  payload_crypted_ = payload_authenticated_ = 0;
  if (payload_bytes_ > 0)
    crypto_onetimeauth_poly1305_init(
        &payload_mac_, payload_keys_.block(number_ / 2) + number_ % 2 * mac_key_bytes);
  ++number_;
}

// The payload's nonce is its frame's number, which end_frame has left behind.
void direction::crypt_payload(byte_span from, std::byte* to) {
  const uint64_t nonce = number_ - 1;
  const uint8_t* in = data_of(from);
  auto* out = reinterpret_cast<uint8_t*>(to);
  size_t left = from.size();
  if (const size_t at = payload_crypted_ % block_bytes; at != 0) {
    const size_t taken = std::min(left, block_bytes - at);
    for (size_t i = 0; i < taken; ++i) out[i] = in[i] ^ pad_.data()[at + i];
    in += taken, out += taken, left -= taken, payload_crypted_ += taken;
  }
  const size_t whole = left / block_bytes * block_bytes;
  if (whole > 0) {
    chacha20(payload_key_, nonce, payload_crypted_ / block_bytes, in, whole, out);
    in += whole, out += whole, left -= whole, payload_crypted_ += whole;
  }
  if (left > 0) {
    std::memset(pad_.data(), 0, block_bytes);
    chacha20(payload_key_, nonce, payload_crypted_ / block_bytes, pad_.data(), block_bytes,
             pad_.data());
    for (size_t i = 0; i < left; ++i) out[i] = in[i] ^ pad_.data()[i];
    payload_crypted_ += left;
  }
}

void direction::authenticate(byte_span bytes) {
  payload_authenticated_ += bytes.size();
  assert(payload_authenticated_ <= payload_bytes_);
  crypto_onetimeauth_poly1305_update(&payload_mac_, data_of(bytes), bytes.size());
}

void direction::end_payload(tag_room tag) {
  assert(payload_authenticated_ == payload_bytes_);
  crypto_onetimeauth_poly1305_final(&payload_mac_, tag.data());
}

byte_span sealer::seal(byte_room frame, const frame_head& head) {
  assert(head.body_bytes <= max_body_bytes && head.payload_bytes <= max_payload_bytes);
  assert(frame.size() >= header_bytes + head.body_bytes + tag_bytes);
  room_writer out(frame);
  out.u32(head.body_bytes);
  out.u32(head.payload_bytes);
  out.u32(static_cast<uint32_t>(number_));
  out.u8(head.kind);
  out.u8(head.flags);
  out.u16(0);
  const byte_room body = frame.subspan(header_bytes, head.body_bytes);
  if (mode_ == security_mode::encrypt)
    crypt_body(body);
  else if ((head.flags & frame_masked) != 0)
    mask(body);
  uint8_t tag[tag_bytes];
  make_tag(frame.first(header_bytes + body.size()), tag);
  std::memcpy(frame.data() + header_bytes + body.size(), tag, sizeof tag);
  end_frame(head.payload_bytes);
  return frame.first(header_bytes + body.size() + tag_bytes);
}

void sealer::absorb(byte_span from) {
  assert(mode_ == security_mode::mac);
  authenticate(from);
}

void sealer::copy(byte_span from, std::byte* to) {
  if (mode_ == security_mode::encrypt)
    crypt_payload(from, to);
  else if (to != from.data() && !from.empty())
    std::memcpy(to, from.data(), from.size());
  authenticate({to, from.size()});
}

void sealer::payload_tag(std::span<std::byte, tag_bytes> tag) {
  uint8_t made[tag_bytes];
  end_payload(made);
  std::memcpy(tag.data(), made, sizeof made);
}

base::result<frame_head> opener::peek(byte_span header) const {
  assert(header.size() >= header_bytes);
  link::byte_reader in(header);
  frame_head head;
  head.body_bytes = in.u32();
  head.payload_bytes = in.u32();
  const uint32_t number = in.u32();
  head.kind = in.u8();
  head.flags = in.u8();
  const uint16_t zero = in.u16();
  if (head.body_bytes > max_body_bytes)
    return base::fail(MORI_E_PROTOCOL, "a frame of {} bytes, the limit is {}", head.body_bytes,
                      max_body_bytes);
  if (head.payload_bytes > max_payload_bytes)
    return base::fail(MORI_E_PROTOCOL, "a payload of {} bytes, the limit is {}", head.payload_bytes,
                      max_payload_bytes);
  if (number != static_cast<uint32_t>(number_))
    return base::fail(MORI_E_PROTOCOL, "frame {} came as frame {}", number,
                      static_cast<uint32_t>(number_));
  if (zero != 0 || (head.flags & ~frame_masked) != 0)
    return base::fail(MORI_E_PROTOCOL, "a frame with flags {:#x} and {:#x}, not all of them known",
                      head.flags, zero);
  if ((head.flags & frame_masked) != 0 && head.body_bytes < sizeof(capability))
    return base::fail(MORI_E_PROTOCOL, "a masked frame of {} bytes, a capability has {}",
                      head.body_bytes, sizeof(capability));
  return head;
}

base::result<byte_room> opener::open(byte_room frame) {
  if (frame.size() < header_bytes + tag_bytes)
    return base::fail(MORI_E_PROTOCOL, "a frame of {} bytes, it has at least {}", frame.size(),
                      header_bytes + tag_bytes);
  MORI_TRY(const frame_head head, peek(frame));
  if (frame.size() != header_bytes + head.body_bytes + tag_bytes)
    return base::fail(MORI_E_PROTOCOL, "a frame of {} bytes says that it has {}", frame.size(),
                      header_bytes + head.body_bytes + tag_bytes);
  uint8_t tag[tag_bytes];
  make_tag(frame.first(header_bytes + head.body_bytes), tag);
  if (crypto_verify_16(tag, data_of(frame) + header_bytes + head.body_bytes) != 0)
    return base::fail(MORI_E_PROTOCOL, "frame {} is not authentic", number_);
  const byte_room body = frame.subspan(header_bytes, head.body_bytes);
  if (mode_ == security_mode::encrypt)
    crypt_body(body);
  else if ((head.flags & frame_masked) != 0)
    mask(body);
  end_frame(head.payload_bytes);
  return body;
}

void opener::absorb(byte_room bytes) {
  authenticate(bytes);
  if (mode_ == security_mode::encrypt) crypt_payload(bytes, bytes.data());
}

bool opener::payload_authentic(std::span<const std::byte, tag_bytes> tag) {
  uint8_t made[tag_bytes];
  end_payload(made);
  return crypto_verify_16(made, data_of(tag)) == 0;
}

}  // namespace mori::io_core::wire
