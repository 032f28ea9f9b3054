// frame.hpp - what makes bytes on a proven stream authentic, in order and, when
// wanted, secret. One sealer and one opener per stream, each with the key of
// its direction; frames have no gaps, so a frame's number is its nonce.
//
//   body bytes u32 | payload bytes u32 | number u32 | kind u8 | flags u8 | 0 u16
//   body
//   tag 16              Poly1305 over header and body
//   payload             straight from and to the memory of the transfer
//   tag 16              Poly1305 over the payload; absent in mode trusted
//
// All one-time keys come out of ChaCha20 under keys derived from the stream's:
// block n of the first holds frame n's Poly1305 key and the mask of its
// capability (16 blocks are made at once, which is what makes small frames
// cheap), half blocks of the second are the payloads' Poly1305 keys. Mode
// encrypt runs ChaCha20 under a third and a fourth over body and payload before
// their tags are made. No call allocates.
#pragma once

#include <mori/base/result.hpp>

#include <sodium.h>

#include "wire/handshake.hpp"

namespace mori::io_core::wire {

struct frame_head {
  uint32_t body_bytes = 0;
  uint32_t payload_bytes = 0;
  uint8_t kind = 0;
  uint8_t flags = 0;
};

// One-time keys of one direction by number, made in batches.
class key_stream {
 public:
  static constexpr size_t blocks = 16, block_bytes = 64;
  void start(const secret_key& key, std::string_view label);
  const uint8_t* block(uint64_t index);  // 64 bytes; valid until the next call

 private:
  secret_key key_;
  secret<blocks * block_bytes> made_;
  uint64_t first_ = UINT64_MAX;
};

// What sealer and opener share: the keys of one direction, the number of the next
// frame, and the payload in progress.
class direction {
 public:
  direction(const direction&) = delete;
  direction& operator=(const direction&) = delete;

  security_mode mode() const { return mode_; }
  uint64_t number() const { return number_; }  // of the next frame
  // Bytes behind a payload of that size: tag_bytes, or 0 in mode trusted and
  // behind an empty one.
  size_t payload_tag_bytes(uint64_t payload_bytes) const {
    return mode_ == security_mode::trusted || payload_bytes == 0 ? 0 : tag_bytes;
  }

 protected:
  using tag_room = std::span<uint8_t, tag_bytes>;
  direction(const secret_key& key, security_mode mode);
  ~direction();

  void mask(byte_room body);
  void crypt_body(byte_room body);
  void make_tag(byte_span header_and_body, tag_room tag);
  // Counts the frame, and gets ready for its payload.
  void end_frame(uint32_t payload_bytes);
  void crypt_payload(byte_span from, std::byte* to);
  void authenticate(byte_span bytes);
  void end_payload(tag_room tag);

  security_mode mode_;
  uint64_t number_ = 0;
  uint64_t payload_crypted_ = 0, payload_authenticated_ = 0, payload_bytes_ = 0;
  key_stream frame_keys_, payload_keys_;
  secret_key body_key_, payload_key_;
  secret<key_stream::block_bytes> pad_;  // the keystream block in which the last piece ended
  crypto_onetimeauth_poly1305_state payload_mac_{};
};

class sealer : public direction {
 public:
  sealer(const secret_key& sending, security_mode mode) : direction(sending, mode) {}

  // `frame` is header_bytes of room | head.body_bytes of body | tag_bytes of room.
  // In mode encrypt the body is encrypted in place. Returns what is to be sent. The
  // frame's payload, if any, is sealed before the next frame.
  byte_span seal(byte_room frame, const frame_head& head);

  // Payload: all its bytes in order, in pieces of any size, then the tag. Not in
  // mode trusted.
  // absorb: mode mac; the bytes have to stay as they are until they are sent.
  void absorb(byte_span from);
  // Writes what is to be sent: a copy that nobody changes in between (mac), the
  // encrypted bytes (encrypt). `to` may be from.data().
  void copy(byte_span from, std::byte* to);
  void payload_tag(std::span<std::byte, tag_bytes> tag);
};

class opener : public direction {
 public:
  opener(const secret_key& receiving, security_mode mode) : direction(receiving, mode) {}

  // Sizes in a header, not authentic yet, but within limits: how much to wait for.
  // MORI_E_PROTOCOL says value and limit. header: at least header_bytes.
  base::result<frame_head> peek(byte_span header) const;

  // `frame` is header | body | tag, whole. Decrypts in place; returns the body. The
  // frame's payload, if any, is opened before the next frame. MORI_E_PROTOCOL: not
  // authentic; the stream is of no more use.
  base::result<byte_room> open(byte_room frame);

  // Payload as it arrives, pieces of any size in order; decrypts in place in mode
  // encrypt. Not in mode trusted.
  void absorb(byte_room bytes);
  // Whether the whole payload was authentic. False harms this payload only: the
  // stream stays in step, since the frame said how long it is.
  [[nodiscard]] bool payload_authentic(std::span<const std::byte, tag_bytes> tag);
};

}  // namespace mori::io_core::wire
