// handshake.cpp - see handshake.hpp. Every message begins with a preamble
//   magic u32 | format u16 | kind u8 | reason u8 (rejects only)
// so a stranger is noticed at its fourth byte; a reject is a preamble alone.
#include "wire/handshake.hpp"

#include <algorithm>
#include <cstring>

#include "wire/codec.hpp"

namespace mori::io_core::wire {
namespace {

constexpr std::string_view noise_name = "Noise_IK_25519_ChaChaPoly_BLAKE2b";
constexpr std::string_view prologue_text = "mori-io handshake";
constexpr uint32_t handshake_magic = 0x4F49524D;  // "MRIO"
constexpr uint16_t handshake_format = 1;
constexpr size_t magic_bytes = 4;

enum class message : uint8_t { hello = 1, answer = 2, confirmation = 3, reject = 4 };
enum class reject : uint8_t { format = 1, key = 2 };

struct preamble {
  uint32_t magic = 0;
  uint16_t format = 0;
  uint8_t kind = 0;
  uint8_t reason = 0;
};

preamble read_preamble(byte_span bytes) {
  link::byte_reader in(bytes);
  preamble what;
  what.magic = in.u32();
  what.format = in.u16();
  what.kind = in.u8();
  what.reason = in.u8();
  return what;
}

void write_preamble(room_writer& out, message kind, uint8_t reason = 0) {
  out.u32(handshake_magic);
  out.u16(handshake_format);
  out.u8(static_cast<uint8_t>(kind));
  out.u8(reason);
}

link::byte_vector lone_reject(reject why) {
  link::byte_vector bytes(preamble_bytes);
  room_writer out(bytes);
  write_preamble(out, message::reject, static_cast<uint8_t>(why));
  return bytes;
}

base::status check_magic(uint32_t magic) {
  if (magic == handshake_magic) return {};
  return base::fail(MORI_E_PROTOCOL,
                    "the other side does not speak this protocol: it began with {:#010x}, "
                    "not {:#010x}",
                    magic, handshake_magic);
}

base::failure other_format(uint16_t theirs) {
  return base::fail(MORI_E_VERSION, "the other side speaks format {} of the handshake, not {}",
                    theirs, handshake_format);
}

base::failure low_order() {
  return base::fail(MORI_E_AUTH, "the other side's public key is of low order: no secret");
}

// The prologue binds the format that was spoken.
noise_state fresh_state(const public_key& responder_key) {
  link::byte_writer prologue;
  prologue.raw(link::as_bytes(prologue_text));
  prologue.u16(handshake_format);
  noise_state state(noise_name, prologue.view());
  state.mix_hash(std::as_bytes(std::span(responder_key)));
  return state;
}

void stamp_of(const public_key& responder_key, byte_span hello, std::span<uint8_t> stamp) {
  keyed_hash(responder_key, "mori-io stamp", {hello.first(hello.size() - stamp_bytes)}, stamp);
}

void confirmation_of(const secret_key& forward, const digest& hash, std::span<uint8_t> tag) {
  keyed_hash(forward.view(), "mori-io confirmation", {std::as_bytes(std::span(hash))}, tag);
}

uint32_t read_magic(byte_span bytes) { return link::byte_reader(bytes).u32(); }

// Takes bytes until `wanted` are there; says how many it took.
size_t fill(byte_room to, size_t& received, size_t wanted, byte_span bytes) {
  if (received >= wanted) return 0;
  const size_t taken = std::min(wanted - received, bytes.size());
  if (taken > 0) std::memcpy(to.data() + received, bytes.data(), taken);
  received += taken;
  return taken;
}

base::status check(const identity& what) {
  if (what.key.empty() || what.key.size() > max_key_bytes)
    return base::fail(MORI_E_INVALID, "an engine key of {} bytes, allowed are 1 .. {}",
                      what.key.size(), max_key_bytes);
  return {};
}

void write_identity(room_writer& out, const identity& what) {
  out.u16(what.least_version);
  out.u16(what.version);
  out.u8(static_cast<uint8_t>(what.purpose));
  out.u8(static_cast<uint8_t>(what.mode));
  out.u16(what.stream_index);
  out.u16(what.stream_count);
  out.u16(static_cast<uint16_t>(what.key.size()));
  out.u64(what.generation);
  out.raw(std::as_bytes(std::span(what.instance)));
  out.raw(std::as_bytes(std::span(what.wanted_instance)));
  out.raw(link::as_bytes(what.key));
}

bool is_mode(uint8_t value) {
  return value >= static_cast<uint8_t>(security_mode::mac) &&
         value <= static_cast<uint8_t>(security_mode::trusted);
}

base::result<identity> read_identity(byte_span bytes) {
  link::byte_reader in(bytes);
  identity what;
  what.least_version = in.u16();
  what.version = in.u16();
  const uint8_t purpose = in.u8();
  const uint8_t mode = in.u8();
  what.stream_index = in.u16();
  what.stream_count = in.u16();
  const uint16_t key_bytes = in.u16();
  what.generation = in.u64();
  read_raw(in, what.instance);
  read_raw(in, what.wanted_instance);
  if (purpose < 1 || purpose > 2)
    return base::fail(MORI_E_PROTOCOL, "a stream's purpose is {}, allowed are 1 .. 2", purpose);
  if (!is_mode(mode))
    return base::fail(MORI_E_PROTOCOL, "a peer's security mode is {}, allowed are 1 .. 3", mode);
  if (key_bytes == 0 || key_bytes > max_key_bytes)
    return base::fail(MORI_E_PROTOCOL, "an engine key of {} bytes, allowed are 1 .. {}", key_bytes,
                      max_key_bytes);
  if (what.least_version > what.version)
    return base::fail(MORI_E_PROTOCOL, "a peer speaks protocol versions {} .. {}",
                      what.least_version, what.version);
  what.purpose = static_cast<stream_purpose>(purpose);
  what.mode = static_cast<security_mode>(mode);
  what.key = as_text(in.raw(key_bytes));
  if (what.key.find('\0') != std::string::npos)
    return base::fail(MORI_E_PROTOCOL, "an engine key with a zero byte in it");
  return what;
}

}  // namespace

const char* name_of(security_mode mode) {
  switch (mode) {
    case security_mode::mac: return "mac";
    case security_mode::encrypt: return "encrypt";
    case security_mode::trusted: return "trusted";
  }
  return "?";
}

security_mode agree(security_mode a, security_mode b) {
  if (a == security_mode::encrypt || b == security_mode::encrypt) return security_mode::encrypt;
  return a == b ? a : security_mode::mac;
}

base::result<initiator> initiator::start(const initiator_options& options) {
  MORI_CHECK(check(options.what));
  initiator made;
  made.what_ = options.what;
  made.self_ = *options.self;
  made.ephemeral_ = options.ephemeral ? key_pair::of(*options.ephemeral) : key_pair::make();
  made.noise_ = fresh_state(options.target_key);

  made.output_.resize(hello_bytes);
  const byte_room hello(made.output_);
  room_writer out(hello);
  write_preamble(out, message::hello);
  noise_state& noise = made.noise_;
  const auto ephemeral_key = std::as_bytes(std::span(made.ephemeral_.public_key));
  out.raw(ephemeral_key);
  noise.mix_hash(ephemeral_key);
  secret_key shared;
  if (!shared_secret(made.ephemeral_.private_key, options.target_key, shared)) return low_order();
  noise.mix_key(shared);
  const size_t static_at = out.used();
  noise.encrypt_and_hash(std::as_bytes(std::span(made.self_.public_key)), hello.subspan(static_at));
  if (!shared_secret(made.self_.private_key, options.target_key, shared)) return low_order();
  noise.mix_key(shared);
  std::array<std::byte, identity_bytes> said{};
  room_writer said_out(said);
  write_identity(said_out, made.what_);
  noise.encrypt_and_hash(said, hello.subspan(static_at + 32 + noise_state::tag_bytes));
  std::array<uint8_t, stamp_bytes> stamp{};
  stamp_of(options.target_key, hello, stamp);
  std::memcpy(hello.last(stamp_bytes).data(), stamp.data(), stamp_bytes);
  return made;
}

base::result<size_t> initiator::on_bytes(byte_span bytes) {
  if (step_ == step::failed) return base::fail(MORI_E_PROTOCOL, "the handshake has failed");
  if (step_ == step::done) return size_t{0};
  // A reject is a preamble: what is behind it is not ours to take.
  size_t used = 0;
  for (const size_t wanted : {magic_bytes, preamble_bytes, answer_bytes}) {
    used += fill(incoming_, received_, wanted, bytes.subspan(used));
    if (received_ < wanted) return used;
    if (received_ > wanted) continue;
    base::status outcome = wanted == magic_bytes      ? check_magic(read_magic(incoming_))
                           : wanted == preamble_bytes ? on_preamble()
                                                      : on_answer();
    if (!outcome) {
      step_ = step::failed;
      noise_.wipe();
      return std::move(outcome.error());
    }
  }
  return used;
}

base::status initiator::on_preamble() {
  const preamble got = read_preamble(incoming_);
  if (got.kind == static_cast<uint8_t>(message::reject)) {
    if (got.reason == static_cast<uint8_t>(reject::format)) return other_format(got.format);
    if (got.reason == static_cast<uint8_t>(reject::key))
      return base::fail(MORI_E_AUTH,
                        "the engine that listens there is not the one of the descriptor: it "
                        "has another key (was it restarted?)");
    return base::fail(MORI_E_PROTOCOL, "rejected for reason {}, allowed are 1 .. 2", got.reason);
  }
  if (got.format != handshake_format) return other_format(got.format);
  if (got.kind != static_cast<uint8_t>(message::answer) || got.reason != 0)
    return base::fail(MORI_E_PROTOCOL, "message {} of the handshake (reason {}), not an answer",
                      got.kind, got.reason);
  return {};
}

base::status initiator::on_answer() {
  const byte_span answer(incoming_);
  const byte_span their_ephemeral = answer.subspan(preamble_bytes, 32);
  public_key theirs{};
  std::memcpy(theirs.data(), their_ephemeral.data(), theirs.size());
  noise_.mix_hash(their_ephemeral);
  secret_key shared;
  if (!shared_secret(ephemeral_.private_key, theirs, shared)) return low_order();
  noise_.mix_key(shared);
  if (!shared_secret(self_.private_key, theirs, shared)) return low_order();
  noise_.mix_key(shared);
  std::array<std::byte, verdict_bytes> verdict{};
  if (!noise_.decrypt_and_hash(answer.subspan(preamble_bytes + 32), verdict))
    return base::fail(MORI_E_AUTH,
                      "the other side did not prove that it holds the descriptor's key");
  hearsay_ = false;
  link::byte_reader in(verdict);
  const mori_status status = known_status(in.i32());
  const uint16_t version = in.u16();
  const uint8_t mode = in.u8();
  in.u8();
  read_raw(in, instance_);
  const size_t text_bytes = std::min<size_t>(in.u16(), max_text_bytes);
  if (status != MORI_OK) return base::failure{status, 0, printable(as_text(in.raw(text_bytes)))};
  if (!is_mode(mode) || version < what_.least_version || version > what_.version)
    return base::fail(MORI_E_PROTOCOL, "the target chose version {} and security mode {}", version,
                      mode);
  // What it chose must be what we would have: it may not give us less than we want.
  if (agree(what_.mode, static_cast<security_mode>(mode)) != static_cast<security_mode>(mode))
    return base::fail(MORI_E_PROTOCOL, "the target chose security mode {} where {} was asked for",
                      name_of(static_cast<security_mode>(mode)), name_of(what_.mode));
  agreed_.mode = static_cast<security_mode>(mode);
  agreed_.version = version;
  noise_.split(agreed_.sending, agreed_.receiving);

  output_.resize(sent_ = 0);
  output_.resize(confirmation_bytes);
  room_writer out(output_);
  write_preamble(out, message::confirmation);
  std::array<uint8_t, 16> tag{};
  confirmation_of(agreed_.sending, noise_.handshake_hash(), tag);
  out.raw(std::as_bytes(std::span(tag)));
  noise_.wipe();
  self_.private_key.wipe();
  ephemeral_.private_key.wipe();
  step_ = step::done;
  return {};
}

base::result<size_t> responder::on_bytes(byte_span bytes) {
  if (step_ == step::failed) return base::fail(MORI_E_PROTOCOL, "the handshake has failed");
  if (step_ != step::want_hello && step_ != step::want_confirmation) return size_t{0};
  const size_t whole = step_ == step::want_hello ? hello_bytes : confirmation_bytes;
  size_t used = 0;
  for (const size_t wanted : {magic_bytes, preamble_bytes, whole}) {
    used += fill(incoming_, received_, wanted, bytes.subspan(used));
    if (received_ < wanted) return used;
    if (received_ > wanted) continue;
    base::status outcome = wanted == magic_bytes      ? check_magic(read_magic(incoming_))
                           : wanted == preamble_bytes ? on_preamble()
                                                      : on_message();
    if (!outcome) {
      step_ = step::failed;
      noise_.wipe();
      return std::move(outcome.error());
    }
  }
  return used;
}

base::status responder::on_preamble() {
  const preamble got = read_preamble(incoming_);
  const message wanted = step_ == step::want_hello ? message::hello : message::confirmation;
  if (got.format != handshake_format) {
    output_ = lone_reject(reject::format);
    return other_format(got.format);
  }
  if (got.kind != static_cast<uint8_t>(wanted) || got.reason != 0)
    return base::fail(MORI_E_PROTOCOL, "message {} of the handshake (reason {}), not {}", got.kind,
                      got.reason, static_cast<int>(wanted));
  return {};
}

base::status responder::on_message() {
  const byte_span message(incoming_);
  received_ = 0;
  if (step_ == step::want_hello) {
    std::array<uint8_t, stamp_bytes> stamp{};
    stamp_of(options_.self->public_key, message, stamp);
    uint8_t given[stamp_bytes];
    std::memcpy(given, message.last(stamp_bytes).data(), stamp_bytes);
    if (!equal_in_constant_time(stamp, given)) {
      output_ = lone_reject(reject::key);
      return base::fail(MORI_E_AUTH,
                        "a connection of somebody who does not have this engine's descriptor, or "
                        "an old one");
    }
    step_ = step::stamped;
    return {};
  }
  std::array<uint8_t, 16> tag{};
  confirmation_of(agreed_.receiving, noise_.handshake_hash(), tag);
  uint8_t given[16];
  std::memcpy(given, message.subspan(preamble_bytes).data(), sizeof given);
  if (!equal_in_constant_time(tag, given))
    return base::fail(MORI_E_AUTH, "'{}' did not confirm its handshake: a replayed one?",
                      printable(who_.key));
  noise_.wipe();
  step_ = step::done;
  return {};
}

base::status responder::open() {
  if (step_ != step::stamped) return base::fail(MORI_E_STATE, "no hello waits to be opened");
  step_ = step::failed;
  const byte_span hello(incoming_);
  noise_ = fresh_state(options_.self->public_key);
  const byte_span their_ephemeral = hello.subspan(preamble_bytes, 32);
  std::memcpy(peer_ephemeral_.data(), their_ephemeral.data(), peer_ephemeral_.size());
  noise_.mix_hash(their_ephemeral);
  secret_key shared;
  if (!shared_secret(options_.self->private_key, peer_ephemeral_, shared)) return low_order();
  noise_.mix_key(shared);
  constexpr size_t sealed_key_bytes = 32 + noise_state::tag_bytes;
  const byte_span sealed_key = hello.subspan(preamble_bytes + 32, sealed_key_bytes);
  if (!noise_.decrypt_and_hash(sealed_key, std::as_writable_bytes(std::span(peer_key_))))
    return base::fail(MORI_E_AUTH, "a hello that is damaged, or made by somebody without keys");
  if (!shared_secret(options_.self->private_key, peer_key_, shared)) return low_order();
  noise_.mix_key(shared);
  std::array<std::byte, identity_bytes> said{};
  const byte_span sealed = hello.subspan(preamble_bytes + 32 + sealed_key_bytes,
                                         identity_bytes + noise_state::tag_bytes);
  if (!noise_.decrypt_and_hash(sealed, said))
    return base::fail(MORI_E_AUTH,
                      "a hello of somebody who does not hold the private key of its public key");
  MORI_TRY(who_, read_identity(said));
  step_ = step::asking;
  if (who_.wanted_instance != options_.instance) {
    MORI_CHECK(refuse(MORI_E_PEER_DEAD, "this is another instance of the engine: it restarted"));
    return base::fail(MORI_E_AUTH, "'{}' asks for an earlier instance of this engine",
                      printable(who_.key));
  }
  if (who_.least_version > options_.version || who_.version < options_.least_version) {
    const auto why =
        fmt::format("protocol versions {} .. {} against {} .. {}: none in common",
                    who_.least_version, who_.version, options_.least_version, options_.version);
    MORI_CHECK(refuse(MORI_E_VERSION, why));
    return base::fail(MORI_E_VERSION, "'{}': {}", printable(who_.key), why);
  }
  return {};
}

base::status responder::admit() { return answer(MORI_OK, {}); }

base::status responder::refuse(mori_status status, std::string_view text) {
  MORI_CHECK(answer(status == MORI_OK ? static_cast<mori_status>(MORI_E_INTERNAL) : status, text));
  step_ = step::failed;
  noise_.wipe();
  return {};
}

base::status responder::answer(mori_status status, std::string_view text) {
  if (step_ != step::asking) return base::fail(MORI_E_STATE, "no hello waits for a verdict");
  step_ = step::failed;
  agreed_.mode = agree(options_.mode, who_.mode);
  agreed_.version = std::min(options_.version, who_.version);
  const key_pair ephemeral =
      options_.ephemeral ? key_pair::of(*options_.ephemeral) : key_pair::make();
  output_.resize(answer_bytes);
  const byte_room answer(output_);
  room_writer out(answer);
  write_preamble(out, message::answer);
  const auto ephemeral_key = std::as_bytes(std::span(ephemeral.public_key));
  out.raw(ephemeral_key);
  noise_.mix_hash(ephemeral_key);
  secret_key shared;
  if (!shared_secret(ephemeral.private_key, peer_ephemeral_, shared)) return low_order();
  noise_.mix_key(shared);
  if (!shared_secret(ephemeral.private_key, peer_key_, shared)) return low_order();
  noise_.mix_key(shared);
  std::array<std::byte, verdict_bytes> verdict{};
  room_writer said(verdict);
  said.i32(status);
  said.u16(agreed_.version);
  said.u8(static_cast<uint8_t>(agreed_.mode));
  said.u8(0);
  said.raw(options_.instance);
  text = cut_text(text, max_text_bytes);
  said.u16(static_cast<uint16_t>(text.size()));
  said.raw(link::as_bytes(text));
  noise_.encrypt_and_hash(verdict, answer.subspan(out.used()));
  noise_.split(agreed_.receiving, agreed_.sending);
  step_ = step::want_confirmation;
  return {};
}

}  // namespace mori::io_core::wire
