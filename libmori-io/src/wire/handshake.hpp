// handshake.hpp - how the two ends of a fresh connection prove who they are and
// agree on keys. State machines without socket and clock: bytes in, bytes out.
// It is Noise_IK_25519_ChaChaPoly_BLAKE2b between messages of fixed size, and a
// confirmation behind it:
//
//   initiator (knows the target's public key)      responder
//     hello: e, es, s, ss, identity, stamp    ->   opens it, asks its owner
//                                             <-   answer: e, ee, se, verdict
//     confirmation, then frames               ->   done
//
// The stamp is a keyed hash under the responder's public key: who does not have
// its descriptor costs it one hash and no curve operation. A replayed hello
// costs it one answer; without the private keys nobody makes the confirmation,
// and before that the responder is not done: act on an identity only then.
// Modes and versions are in the authenticated messages, so nobody in between can
// change what is agreed.
#pragma once

#include <mori/base/result.hpp>

#include <string>

#include "wire/limits.hpp"
#include "wire/noise.hpp"

namespace mori::io_core::wire {

enum class stream_purpose : uint8_t { control = 1, data = 2 };

// The values of MORI_IO_SECURITY_*.
enum class security_mode : uint8_t { mac = 1, encrypt = 2, trusted = 3 };
const char* name_of(security_mode mode);

// Encrypt when either side wants it, trusted only when both do, else mac.
security_mode agree(security_mode a, security_mode b);

// What the initiator says about itself and about the connection.
struct identity {
  std::string key;
  instance_id instance{};
  instance_id wanted_instance{};  // of the target, from its descriptor
  stream_purpose purpose = stream_purpose::control;
  security_mode mode = security_mode::mac;
  uint16_t stream_index = 0;
  uint16_t stream_count = 0;  // data streams of this generation
  uint64_t generation = 0;
  uint16_t least_version = least_protocol_version;
  uint16_t version = protocol_version;
  bool operator==(const identity&) const = default;
};

// What both sides know when the handshake is done; the keys are for frame.hpp.
struct agreement {
  security_mode mode = security_mode::mac;
  uint16_t version = protocol_version;
  secret_key sending;
  secret_key receiving;
};

// Sizes do not depend on what is said.
inline constexpr size_t preamble_bytes = 8;
inline constexpr size_t stamp_bytes = 16;
inline constexpr size_t identity_bytes = 184;
inline constexpr size_t verdict_bytes = 272;
inline constexpr size_t hello_bytes =
    preamble_bytes + 32 + 32 + 16 + identity_bytes + 16 + stamp_bytes;
inline constexpr size_t answer_bytes = preamble_bytes + 32 + verdict_bytes + 16;
inline constexpr size_t confirmation_bytes = preamble_bytes + 16;

struct initiator_options {
  const key_pair* self = nullptr;  // borrowed for start() only
  public_key target_key{};         // from its descriptor
  identity what;
  const secret_key* ephemeral = nullptr;  // for known-answer tests; else fresh
};

class initiator {
 public:
  // MORI_E_INVALID (a field beyond its limit), MORI_E_AUTH (low-order public key).
  static base::result<initiator> start(const initiator_options& options);

  // Takes what it needs and says how much that was. Errors are final:
  // MORI_E_PROTOCOL (something else listens there), MORI_E_VERSION, MORI_E_AUTH
  // (it does not hold the descriptor's private key), or the status with which the
  // target refused.
  base::result<size_t> on_bytes(byte_span bytes);

  // To be sent: the hello from the start, the confirmation once done.
  byte_span output() const { return byte_span(output_).subspan(sent_); }
  void on_sent(size_t bytes) { sent_ += bytes; }

  // The target has proven itself; frames may follow the confirmation at once.
  bool done() const { return step_ == step::done; }
  const agreement& agreed() const { return agreed_; }        // once done
  const instance_id& instance() const { return instance_; }  // the target's, once done
  // After an error: false when the target itself said it, proven. Else anybody in
  // between could have sent it: believe that the connection failed, not why.
  bool hearsay() const { return hearsay_; }

 private:
  enum class step : uint8_t { want_answer, done, failed };
  initiator() = default;
  base::status on_preamble();
  base::status on_answer();

  noise_state noise_;
  key_pair self_, ephemeral_;
  identity what_;
  agreement agreed_;
  instance_id instance_{};
  std::array<std::byte, answer_bytes> incoming_{};
  size_t received_ = 0;
  link::byte_vector output_;
  size_t sent_ = 0;
  step step_ = step::want_answer;
  bool hearsay_ = true;
};

struct responder_options {
  const key_pair* self = nullptr;  // borrowed as long as the responder lives
  instance_id instance{};
  security_mode mode = security_mode::mac;
  uint16_t least_version = least_protocol_version;
  uint16_t version = protocol_version;
  const secret_key* ephemeral = nullptr;  // for known-answer tests; else fresh
};

class responder {
 public:
  explicit responder(const responder_options& options) : options_(options) {}

  // As initiator::on_bytes; does no curve operation. Takes no more than a hello
  // until admit(), no more than a confirmation after it.
  base::result<size_t> on_bytes(byte_span bytes);

  // A hello with a good stamp is there: call open() when there is time for
  // about 0.1 ms of curve operations. MORI_E_AUTH, MORI_E_VERSION.
  bool wants_open() const { return step_ == step::stamped; }
  base::status open();

  // The hello is open: its owner looks at who() and peer_key(), then admits it
  // (0.15 ms of curve operations) or refuses it; the peer gets status and text.
  // MORI_E_STATE when it is not the time, MORI_E_AUTH (low-order key).
  bool asks() const { return step_ == step::asking; }
  const identity& who() const { return who_; }
  const public_key& peer_key() const { return peer_key_; }
  base::status admit();
  base::status refuse(mori_status status, std::string_view text);

  // To be sent, also after an error: the other side learns why.
  byte_span output() const { return byte_span(output_).subspan(sent_); }
  void on_sent(size_t bytes) { sent_ += bytes; }

  // The initiator has proven itself, and that it is there now.
  bool done() const { return step_ == step::done; }
  const agreement& agreed() const { return agreed_; }  // once done

 private:
  enum class step : uint8_t { want_hello, stamped, asking, want_confirmation, done, failed };
  base::status on_preamble();
  base::status on_message();
  base::status answer(mori_status status, std::string_view text);

  responder_options options_;
  noise_state noise_;
  public_key peer_key_{}, peer_ephemeral_{};
  identity who_;
  agreement agreed_;
  std::array<std::byte, hello_bytes> incoming_{};
  size_t received_ = 0;
  link::byte_vector output_;
  size_t sent_ = 0;
  step step_ = step::want_hello;
};

}  // namespace mori::io_core::wire
