// handshake.hpp - how two ends of a fresh connection prove to each other that
// they know the group's secret, without sending it. A state machine without
// socket and clock: bytes and time in, bytes out (tcp/channel.hpp drives it).
//
//   connecting side                        accepting side
//     hello: job, who, purpose, nonce  ->
//                                      <-  challenge: job, nonce, proof
//     proof                            ->
//
// Each proof is a keyed hash over a role label and everything said so far, so
// it can be neither replayed (fresh nonces) nor reflected (labels differ). Both
// sides then derive one frame key per direction from the same transcript.
#pragma once

#include <mori/base/result.hpp>
#include <mori/link/bytes.hpp>

#include <array>

namespace mori::link {

enum class connection_purpose : uint16_t {
  rendezvous = 1,
  neighbour = 2,
  descriptor = 3,
  data = 4
};

// What the connecting side says about itself; covered by its proof.
struct hello {
  connection_purpose purpose = connection_purpose::rendezvous;
  int32_t from_rank = -1;
  int32_t to_rank = -1;
};

struct session_keys {
  std::array<uint8_t, 32> sending{};
  std::array<uint8_t, 32> receiving{};
};

struct handshake_options {
  bool connecting = false;  // this side opened the connection
  std::array<uint8_t, 32> secret{};
  uint64_t job = 0;
  hello self{};                     // connecting side only
  std::array<uint8_t, 32> nonce{};  // fresh random bytes
  uint64_t give_up_at_ns = UINT64_MAX;
};

class handshake {
 public:
  static constexpr size_t hello_bytes = 56;
  static constexpr size_t challenge_bytes = 80;
  static constexpr size_t proof_bytes = 36;

  explicit handshake(const handshake_options& options);
  handshake(const handshake&) = default;
  handshake& operator=(const handshake&) = default;
  ~handshake();

  // Takes what it needs and says how much that was: bytes behind the last
  // message belong to the frames. Errors are final: MORI_E_PROTOCOL (not our
  // protocol), MORI_E_VERSION, MORI_E_AUTH (another job, another secret).
  base::result<size_t> on_bytes(byte_span bytes);
  // MORI_E_TIMEOUT once give_up_at_ns has come and the other side has not
  // proven itself.
  base::status on_time(uint64_t now_ns) const;

  // Bytes to send; also after an error, so that the other side learns why.
  byte_vector take_output() { return std::move(output_); }

  bool done() const { return step_ == step::done; }
  const session_keys& keys() const { return keys_; }  // once done
  const hello& peer() const { return peer_; }         // accepting side, once done

 private:
  enum class step { want_hello, want_challenge, want_proof, done, failed };

  size_t wanted_bytes() const;
  base::status on_message();
  base::status on_hello();
  base::status on_challenge();
  base::status on_proof();
  void derive_keys();

  handshake_options options_;
  step step_;
  byte_vector incoming_;
  byte_vector output_;
  byte_vector hello_;
  byte_vector challenge_;
  session_keys keys_;
  hello peer_;
};

// Fresh random bytes for handshake_options::nonce.
std::array<uint8_t, 32> fresh_nonce();

}  // namespace mori::link
