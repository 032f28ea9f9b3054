// handshake.cpp - see handshake.hpp. Messages have fixed sizes and begin with a
// tag of their own, so a stranger is noticed at its fourth byte.
#include <mori/link/handshake.hpp>

#include "wire/keyed_hash.hpp"

#include <algorithm>

namespace mori::link {
namespace {

constexpr uint32_t hello_tag = 0x31484C4D;      // "MLH1"
constexpr uint32_t challenge_tag = 0x31434C4D;  // "MLC1"
constexpr uint32_t proof_tag = 0x31504C4D;      // "MLP1"
constexpr uint16_t protocol_version = 1;
constexpr size_t tag_bytes = 4;
constexpr size_t digest_bytes = 32;
constexpr size_t challenge_open_bytes = handshake::challenge_bytes - digest_bytes;

using digest = std::array<uint8_t, digest_bytes>;

byte_span view(const std::array<uint8_t, 32>& bytes) { return std::as_bytes(std::span(bytes)); }

digest prove(const std::array<uint8_t, 32>& secret, std::string_view role, byte_span hello_said,
             byte_span challenge_said) {
  digest proof{};
  const byte_span said[] = {hello_said, challenge_said};
  keyed_hash(secret, role, said, proof);
  return proof;
}

bool same(const digest& expected, byte_span given) {
  return equal_in_constant_time(
      expected, std::span(reinterpret_cast<const uint8_t*>(given.data()), given.size()));
}

}  // namespace

handshake::handshake(const handshake_options& options)
    : options_(options), step_(options.connecting ? step::want_challenge : step::want_hello) {
  if (!options.connecting) return;
  byte_writer out;
  out.u32(hello_tag);
  out.u16(protocol_version);
  out.u16(static_cast<uint16_t>(options.self.purpose));
  out.u64(options.job);
  out.i32(options.self.from_rank);
  out.i32(options.self.to_rank);
  out.raw(view(options.nonce));
  hello_ = out.take();
  output_ = hello_;
}

handshake::~handshake() {
  wipe(options_.secret);
  wipe(keys_.sending);
  wipe(keys_.receiving);
}

size_t handshake::wanted_bytes() const {
  switch (step_) {
    case step::want_hello: return hello_bytes;
    case step::want_challenge: return challenge_bytes;
    case step::want_proof: return proof_bytes;
    default: return 0;
  }
}

base::result<size_t> handshake::on_bytes(byte_span bytes) {
  size_t used = 0;
  while (step_ != step::done) {
    if (step_ == step::failed) return base::fail(MORI_E_PROTOCOL, "the handshake has failed");
    const size_t take = std::min(bytes.size() - used, wanted_bytes() - incoming_.size());
    incoming_.insert(incoming_.end(), bytes.begin() + static_cast<ptrdiff_t>(used),
                     bytes.begin() + static_cast<ptrdiff_t>(used + take));
    used += take;
    // A wrong tag cannot become right: no need to wait for the rest.
    const bool tag_there = incoming_.size() >= tag_bytes;
    if (incoming_.size() < wanted_bytes() && !tag_there) return used;
    auto outcome = on_message();
    if (!outcome) {
      step_ = step::failed;
      return std::move(outcome.error());
    }
    if (!incoming_.empty()) return used;  // incomplete so far, but nothing wrong
  }
  return used;
}

base::status handshake::on_message() {
  const uint32_t wanted = step_ == step::want_hello       ? hello_tag
                          : step_ == step::want_challenge ? challenge_tag
                                                          : proof_tag;
  const uint32_t tag = byte_reader(incoming_).u32();
  if (tag != wanted)
    return base::fail(MORI_E_PROTOCOL,
                      "the other side does not speak this protocol: "
                      "it began with {:#010x}, not {:#010x}",
                      tag, wanted);
  if (incoming_.size() < wanted_bytes()) return {};
  base::status outcome = step_ == step::want_hello       ? on_hello()
                         : step_ == step::want_challenge ? on_challenge()
                                                         : on_proof();
  incoming_.clear();
  return outcome;
}

base::status handshake::on_hello() {
  hello_ = incoming_;
  byte_reader in(hello_);
  in.u32();
  const uint16_t version = in.u16();
  const uint16_t purpose = in.u16();
  const uint64_t job = in.u64();
  peer_ = {static_cast<connection_purpose>(purpose), in.i32(), in.i32()};

  // The answer goes out in any case: a client of another job or version learns
  // from it what this listener is.
  byte_writer out;
  out.u32(challenge_tag);
  out.u16(protocol_version);
  out.u16(0);
  out.u64(options_.job);
  out.raw(view(options_.nonce));
  const digest proof = prove(options_.secret, "mori-link accepting", hello_, out.view());
  out.raw(view(proof));
  challenge_ = out.take();
  output_.insert(output_.end(), challenge_.begin(), challenge_.end());

  if (version != protocol_version)
    return base::fail(MORI_E_VERSION, "the other side speaks version {} of the handshake, not {}",
                      version, protocol_version);
  if (job != options_.job)
    return base::fail(MORI_E_AUTH, "the other side belongs to job {:016x}, not {:016x}", job,
                      options_.job);
  step_ = step::want_proof;
  return {};
}

base::status handshake::on_challenge() {
  challenge_ = incoming_;
  byte_reader in(challenge_);
  in.u32();
  const uint16_t version = in.u16();
  in.u16();
  const uint64_t job = in.u64();
  in.raw(32);
  if (version != protocol_version)
    return base::fail(MORI_E_VERSION, "the other side speaks version {} of the handshake, not {}",
                      version, protocol_version);
  if (job != options_.job)
    return base::fail(MORI_E_AUTH,
                      "the listener belongs to job {:016x}, not {:016x}: "
                      "an id of another run?",
                      job, options_.job);
  const byte_span said = byte_span(challenge_).first(challenge_open_bytes);
  if (!same(prove(options_.secret, "mori-link accepting", hello_, said), in.rest()))
    return base::fail(MORI_E_AUTH, "the other side does not know the secret of job {:016x}",
                      options_.job);
  byte_writer out;
  out.u32(proof_tag);
  out.raw(view(prove(options_.secret, "mori-link connecting", hello_, challenge_)));
  const byte_vector proof = out.take();
  output_.insert(output_.end(), proof.begin(), proof.end());
  derive_keys();
  return {};
}

base::status handshake::on_proof() {
  const byte_span given = byte_span(incoming_).subspan(tag_bytes);
  if (!same(prove(options_.secret, "mori-link connecting", hello_, challenge_), given))
    return base::fail(MORI_E_AUTH, "the other side does not know the secret of job {:016x}",
                      options_.job);
  derive_keys();
  return {};
}

void handshake::derive_keys() {
  auto& forward = options_.connecting ? keys_.sending : keys_.receiving;
  auto& backward = options_.connecting ? keys_.receiving : keys_.sending;
  const byte_span said[] = {hello_, challenge_};
  keyed_hash(options_.secret, "mori-link key forward", said, forward);
  keyed_hash(options_.secret, "mori-link key backward", said, backward);
  wipe(options_.secret);
  step_ = step::done;
}

base::status handshake::on_time(uint64_t now_ns) const {
  if (done() || now_ns < options_.give_up_at_ns) return {};
  return base::fail(MORI_E_TIMEOUT, "the other side did not prove itself in time");
}

std::array<uint8_t, 32> fresh_nonce() {
  std::array<uint8_t, 32> nonce{};
  random_bytes(nonce);
  return nonce;
}

}  // namespace mori::link
