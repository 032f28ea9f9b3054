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

// The body begins with a capability, which nobody on the path may read.
inline constexpr uint8_t frame_masked = 0x80;

// One-time keys of one direction by number, made in batches.
class key_stream {
 public:
  static constexpr size_t blocks = 16, block_bytes = 64;
  void start(const secret_key& key) { key_ = key, first_ = UINT64_MAX; }
  // 64 bytes; valid until the next call.
  const uint8_t* block(uint64_t index);

 private:
  secret_key key_;
  secret<blocks * block_bytes> made_;
  uint64_t first_ = UINT64_MAX;
};

// Keys of one direction and the state of the frame and payload in progress.
class direction {
 public:
  direction(const secret_key& key, security_mode mode);
  direction(const direction&) = delete;
  direction& operator=(const direction&) = delete;
  ~direction();

  security_mode mode() const { return mode_; }
  // Tag bytes behind a payload: 16, or 0 in mode trusted. None behind an empty one.
  size_t payload_tag_bytes() const { return mode_ == security_mode::trusted ? 0 : tag_bytes; }
  uint64_t number() const { return number_; }  // of the next frame

 protected:
  void make_tag(byte_span header_and_body, std::span<uint8_t, 16> tag);
  void mask(byte_room body);
  void crypt_body(byte_room body);
  void begin_payload(uint32_t bytes);
  void crypt_payload(byte_span from, std::byte* to);
  void authenticate_payload(byte_span bytes);
  void finish_payload_tag(std::span<uint8_t, 16> tag);

  security_mode mode_;
  uint64_t number_ = 0;
  uint64_t payload_number_ = 0;
  uint64_t payload_done_ = 0;   // bytes of the current payload
  uint64_t payload_bytes_ = 0;  //
  key_stream frame_keys_, payload_keys_;
  secret_key body_cipher_, payload_cipher_;
  crypto_onetimeauth_poly1305_state payload_mac_{};
};

class sealer : public direction {
 public:
  sealer(const secret_key& sending, security_mode mode) : direction(sending, mode) {}

  // `frame` is header_bytes of room | body_bytes of body | tag_bytes of room. In
  // mode encrypt the body is encrypted in place. Returns the part to send. The
  // frame's payload, if any, is sealed next, before the next frame.
  byte_span seal(byte_room frame, const frame_head& head);

  // The payload, all its bytes in order, in pieces of any size; then its tag. Not
  // in mode trusted, where payloads are sent as they are.
  //   absorb: mac only; the bytes must stay as they are until they are sent
  //   copy:   also copies, so what is sent is what the tag is of
  //   In mode encrypt only copy: `to` gets the encrypted bytes (may be `from`).
  void absorb(byte_span from) { authenticate_payload(from); }
  void copy(byte_span from, std::byte* to);
  void payload_tag(std::span<std::byte, tag_bytes> tag);
};

class opener : public direction {
 public:
  opener(const secret_key& receiving, security_mode mode) : direction(receiving, mode) {}

  // The sizes in a header, not authentic yet: how much to wait for. Bounded:
  // MORI_E_PROTOCOL says value and limit.
  base::result<frame_head> peek(byte_span header) const;

  // `frame` is the whole header | body | tag. MORI_E_PROTOCOL: not authentic, the
  // stream is of no more use. Decrypts in place; returns the body. The payload,
  // if any, is opened next.
  base::result<byte_room> open(byte_room frame);

  // Payload as it arrives, pieces of any size in order; decrypts in place in mode
  // encrypt. Not in mode trusted.
  void absorb(byte_room bytes);
  // Whether the payload was authentic; once all of it was absorbed. False harms
  // only this payload: the stream stays in step.
  [[nodiscard]] bool payload_authentic(std::span<const std::byte, tag_bytes> tag);
};

}  // namespace mori::io_core::wire
