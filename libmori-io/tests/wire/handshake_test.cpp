// The handshake byte by byte: both ends, their faults, and what somebody in
// between or with old bytes can do.
#include "wire/handshake.hpp"

#include <doctest/doctest.h>

#include "samples.hpp"

namespace base = mori::base;
using namespace mori::io_core::wire;
using mori::link::byte_vector;
using samples::ends;

namespace {

byte_vector copy_of(byte_span bytes) { return {bytes.begin(), bytes.end()}; }

template <class Side>
byte_vector take(Side& side) {
  byte_vector out = copy_of(side.output());
  side.on_sent(out.size());
  return out;
}

template <class Outcome>
mori_status status_of(const Outcome& outcome) {
  return outcome ? MORI_OK : outcome.error().status;
}

// The three messages of a good handshake, and what both ends agreed.
struct transcript {
  byte_vector hello, answer, confirmation;
  agreement initiator, target;
};

transcript record(ends& e) {
  transcript t;
  auto left = e.initiator();
  auto right = e.responder();
  t.hello = take(left);
  REQUIRE(right.on_bytes(t.hello));
  REQUIRE(right.wants_open());
  REQUIRE(right.open());
  REQUIRE(right.asks());
  CHECK(right.who() == e.who);
  CHECK(right.peer_key() == e.initiator_key.public_key);
  REQUIRE(right.admit());
  t.answer = take(right);
  REQUIRE(left.on_bytes(t.answer));
  REQUIRE(left.done());
  CHECK(left.instance() == e.target.instance);
  t.confirmation = take(left);
  CHECK(!right.done());
  REQUIRE(right.on_bytes(t.confirmation));
  REQUIRE(right.done());
  t.initiator = left.agreed();
  t.target = right.agreed();
  return t;
}

bool same(const secret_key& a, const secret_key& b) {
  return std::ranges::equal(a.view(), b.view());
}

// What the target says to these bytes in the place of a hello.
mori_status heard(ends& e, byte_span hello) {
  auto right = e.responder();
  const auto taken = right.on_bytes(hello);
  if (!taken) return taken.error().status;
  return right.wants_open() ? status_of(right.open()) : static_cast<mori_status>(MORI_E_AGAIN);
}

}  // namespace

TEST_CASE("both ends agree on keys, mode and version") {
  ends e;
  const transcript t = record(e);
  CHECK(t.hello.size() == hello_bytes);
  CHECK(t.answer.size() == answer_bytes);
  CHECK(t.confirmation.size() == confirmation_bytes);
  CHECK(same(t.initiator.sending, t.target.receiving));
  CHECK(same(t.initiator.receiving, t.target.sending));
  CHECK(!same(t.initiator.sending, t.initiator.receiving));
  CHECK(t.initiator.version == protocol_version);
  CHECK(t.target.version == protocol_version);

  e.fixed = false;
  const transcript u = record(e);
  const transcript v = record(e);
  CHECK(u.hello != v.hello);
  CHECK(u.answer != v.answer);
  CHECK(!same(u.initiator.sending, v.initiator.sending));
}

TEST_CASE("messages may come byte by byte, and bytes behind them are left") {
  ends e;
  const transcript t = record(e);
  auto left = e.initiator();
  auto right = e.responder();
  const auto feed = [](auto& side, const byte_vector& bytes) {
    for (size_t i = 0; i < bytes.size(); ++i)
      REQUIRE(*side.on_bytes(byte_span(bytes).subspan(i, 1)) == 1);
  };
  feed(right, t.hello);
  CHECK(*right.on_bytes(t.hello) == 0);  // takes no more before it is opened
  REQUIRE(right.open());
  CHECK(*right.on_bytes(t.hello) == 0);
  REQUIRE(right.admit());
  byte_vector more = t.answer;
  more.push_back(std::byte{1});
  CHECK(*left.on_bytes(byte_span(more).first(0)) == 0);
  feed(left, byte_vector(more.begin(), more.begin() + 3));
  CHECK(*left.on_bytes(byte_span(more).subspan(3)) == t.answer.size() - 3);
  CHECK(left.done());
  CHECK(*left.on_bytes(more) == 0);
  byte_vector tail = t.confirmation;
  tail.resize(tail.size() + 100);
  CHECK(*right.on_bytes(tail) == confirmation_bytes);
  CHECK(right.done());
  CHECK(*right.on_bytes(tail) == 0);
}

TEST_CASE("the mode: encrypt if either wants it, trusted only if both do") {
  const security_mode modes[] = {security_mode::mac, security_mode::encrypt,
                                 security_mode::trusted};
  for (const auto mine : modes)
    for (const auto theirs : modes) {
      ends e;
      e.who.mode = mine;
      e.target.mode = theirs;
      const transcript t = record(e);
      const bool encrypt = mine == security_mode::encrypt || theirs == security_mode::encrypt;
      const bool trusted = mine == security_mode::trusted && theirs == security_mode::trusted;
      const auto wanted = encrypt   ? security_mode::encrypt
                          : trusted ? security_mode::trusted
                                    : security_mode::mac;
      CHECK(t.initiator.mode == wanted);
      CHECK(t.target.mode == wanted);
    }
}

TEST_CASE("every changed bit of every message is noticed by who gets it") {
  ends e;
  const transcript t = record(e);
  for (size_t i = 0; i < t.hello.size(); ++i)
    for (const int bit : {0, 7}) {
      byte_vector damaged = t.hello;
      damaged[i] ^= std::byte(1 << bit);
      const mori_status got = heard(e, damaged);
      CHECK_MESSAGE(got == (i < 4   ? MORI_E_PROTOCOL
                            : i < 6 ? MORI_E_VERSION
                            : i < 8 ? MORI_E_PROTOCOL
                                    : MORI_E_AUTH),
                    "byte ", i);
    }
  for (size_t i = 0; i < t.answer.size(); ++i)
    for (const int bit : {0, 7}) {
      byte_vector damaged = t.answer;
      damaged[i] ^= std::byte(1 << bit);
      auto left = e.initiator();
      take(left);
      const auto got = left.on_bytes(damaged);
      CHECK_MESSAGE(!got, "byte ", i);
      CHECK(left.output().empty());  // nothing was confirmed
      CHECK(left.hearsay());
      CHECK(status_of(left.on_bytes(t.answer)) == MORI_E_PROTOCOL);  // it stays failed
    }
  for (size_t i = 0; i < t.confirmation.size(); ++i) {
    byte_vector damaged = t.confirmation;
    damaged[i] ^= std::byte{0x40};
    auto right = e.responder();
    REQUIRE(right.on_bytes(t.hello));
    REQUIRE(right.open());
    REQUIRE(right.admit());
    CHECK_MESSAGE(!right.on_bytes(damaged), "byte ", i);
    CHECK(!right.done());
    CHECK(status_of(right.on_bytes(t.confirmation)) == MORI_E_PROTOCOL);
  }
}

TEST_CASE("a hello with a stamp made anew is refused too: the stamp proves nothing") {
  ends e;
  const transcript t = record(e);
  for (size_t i = preamble_bytes; i < hello_bytes - stamp_bytes; ++i) {
    byte_vector damaged = t.hello;
    damaged[i] ^= std::byte{1};
    std::array<uint8_t, stamp_bytes> stamp{};
    keyed_hash(e.target_key.public_key, "mori-io stamp",
               {byte_span(damaged).first(hello_bytes - stamp_bytes)}, stamp);
    std::memcpy(damaged.data() + hello_bytes - stamp_bytes, stamp.data(), stamp.size());
    auto right = e.responder();
    REQUIRE(right.on_bytes(damaged));
    REQUIRE(right.wants_open());
    CHECK_MESSAGE(status_of(right.open()) == MORI_E_AUTH, "byte ", i);
    CHECK(!right.asks());
    CHECK(right.output().empty());
  }
}

TEST_CASE("truncated messages are waited for, not guessed at") {
  ends e;
  const transcript t = record(e);
  for (size_t size = 0; size < hello_bytes; ++size) {
    auto right = e.responder();
    CHECK(*right.on_bytes(byte_span(t.hello).first(size)) == size);
    CHECK(!right.wants_open());
    CHECK(status_of(right.open()) == MORI_E_STATE);
    CHECK(status_of(right.admit()) == MORI_E_STATE);
  }
  for (size_t size = 0; size < answer_bytes; ++size) {
    auto left = e.initiator();
    CHECK(*left.on_bytes(byte_span(t.answer).first(size)) == size);
    CHECK(!left.done());
  }
}

TEST_CASE("a replayed hello is answered and gets no further") {
  ends e;
  e.fixed = false;
  const transcript old = record(e);
  auto right = e.responder();
  REQUIRE(right.on_bytes(old.hello));
  REQUIRE(right.open());
  REQUIRE(right.admit());
  const byte_vector answer = take(right);
  CHECK(answer != old.answer);
  const auto got = right.on_bytes(old.confirmation);
  REQUIRE(!got);
  CHECK(got.error().status == MORI_E_AUTH);
  CHECK(got.error().text == "'prefill-0 \u00e9' did not confirm its handshake: a replayed one?");
  CHECK(!right.done());

  auto left = e.initiator();  // and an old answer fits no new hello
  CHECK(status_of(left.on_bytes(old.answer)) == MORI_E_AUTH);
}

TEST_CASE("reflected messages fail") {
  ends e;
  auto left = e.initiator();
  CHECK(status_of(left.on_bytes(take(left))) == MORI_E_PROTOCOL);  // a hello is no answer
  const transcript t = record(e);
  CHECK(heard(e, t.answer) == MORI_E_PROTOCOL);
  auto right = e.responder();
  REQUIRE(right.on_bytes(t.hello));
  REQUIRE(right.open());
  REQUIRE(right.admit());
  CHECK(status_of(right.on_bytes(right.output())) == MORI_E_PROTOCOL);
  // An engine whose hello comes back to itself does not take it for one to it.
  ends itself;
  itself.target_key = e.initiator_key;
  CHECK(heard(itself, t.hello) == MORI_E_AUTH);
}

TEST_CASE("an engine may talk to itself") {
  ends e;
  e.target_key = e.initiator_key;
  e.fixed = false;
  const transcript t = record(e);
  CHECK(!same(t.initiator.sending, t.initiator.receiving));
}

TEST_CASE("wrong keys: who has another key is told apart from who listens there") {
  ends e;
  ends other;
  other.target_key = key_pair::of(samples::counting(55));
  auto right = other.responder();  // listens where e's target was
  auto left = e.initiator();
  const auto refused = right.on_bytes(take(left));
  REQUIRE(!refused);
  CHECK(refused.error().status == MORI_E_AUTH);
  CHECK(!right.wants_open());
  const byte_vector reject = take(right);
  CHECK(reject.size() == preamble_bytes);
  const auto told = left.on_bytes(reject);
  REQUIRE(!told);
  CHECK(told.error().status == MORI_E_AUTH);
  CHECK(told.error().text.find("another key (was it restarted?)") != std::string::npos);
  CHECK(left.hearsay());

  // A liar with the target's public key and not its private one makes no answer.
  ends liar = e;
  liar.target_key.private_key = samples::counting(56);
  CHECK(heard(liar, copy_of(e.initiator().output())) == MORI_E_AUTH);
  // An initiator with somebody else's public key cannot make a hello.
  ends thief = e;
  thief.initiator_key.private_key = samples::counting(57);
  CHECK(heard(e, copy_of(thief.initiator().output())) == MORI_E_AUTH);
}

TEST_CASE("the owner's refusal reaches the initiator, proven") {
  ends e;
  auto left = e.initiator();
  auto right = e.responder();
  REQUIRE(right.on_bytes(take(left)));
  REQUIRE(right.open());
  const std::string text = "engine \u00e9 is not registered here" + std::string(300, '!') + "\n";
  REQUIRE(right.refuse(MORI_E_AUTH, text));
  CHECK(status_of(right.admit()) == MORI_E_STATE);
  const auto told = left.on_bytes(take(right));
  REQUIRE(!told);
  CHECK(told.error().status == MORI_E_AUTH);
  CHECK(told.error().text == text.substr(0, max_text_bytes));
  CHECK(!left.hearsay());
  CHECK(left.output().empty());
  CHECK(status_of(right.on_bytes(as_bytes(std::span("x")))) == MORI_E_PROTOCOL);

  auto again = e.responder();
  REQUIRE(again.on_bytes(e.initiator().output()));
  REQUIRE(again.open());
  REQUIRE(again.refuse(MORI_OK, "no reason"));  // a refusal is never a success
  auto hears = e.initiator();
  CHECK(status_of(hears.on_bytes(again.output())) == MORI_E_INTERNAL);
}

TEST_CASE("another instance and versions without overlap are refused, with the reason") {
  ends e;
  e.target.instance = samples::filled<instance_id>(0x33);
  auto left = e.initiator();
  auto right = e.responder();
  REQUIRE(right.on_bytes(take(left)));
  CHECK(status_of(right.open()) == MORI_E_AUTH);
  const auto told = left.on_bytes(take(right));
  REQUIRE(!told);
  CHECK(told.error().status == MORI_E_PEER_DEAD);
  CHECK(told.error().text == "this is another instance of the engine: it restarted");
  CHECK(!left.hearsay());
  CHECK(left.instance() == e.target.instance);

  const auto meet = [](uint16_t a, uint16_t b, uint16_t c, uint16_t d) {
    ends m;
    m.who.least_version = a, m.who.version = b;
    m.target.least_version = c, m.target.version = d;
    auto one = m.initiator();
    auto two = m.responder();
    REQUIRE(two.on_bytes(take(one)));
    if (!two.open()) {
      const auto why = one.on_bytes(take(two));
      REQUIRE(!why);
      CHECK(why.error().status == MORI_E_VERSION);
      CHECK(why.error().text == fmt::format("protocol versions {} .. {} against {} .. {}: none in "
                                            "common",
                                            a, b, c, d));
      return 0;
    }
    REQUIRE(two.admit());
    REQUIRE(one.on_bytes(take(two)));
    CHECK(one.agreed().version == two.agreed().version);
    return static_cast<int>(one.agreed().version);
  };
  CHECK(meet(1, 1, 1, 1) == 1);
  CHECK(meet(1, 3, 2, 5) == 3);
  CHECK(meet(2, 9, 1, 4) == 4);
  CHECK(meet(1, 65535, 1, 65535) == 65535);
  CHECK(meet(3, 4, 1, 2) == 0);
  CHECK(meet(1, 1, 2, 3) == 0);
}

TEST_CASE("another format of the handshake is said by either side") {
  ends e;
  byte_vector newer = copy_of(e.initiator().output());
  newer[4] = std::byte{2};
  auto right = e.responder();
  const auto got = right.on_bytes(byte_span(newer).first(preamble_bytes));
  REQUIRE(!got);
  CHECK(got.error().status == MORI_E_VERSION);
  CHECK(got.error().text == "the other side speaks format 2 of the handshake, not 1");
  byte_vector reject = take(right);
  REQUIRE(reject.size() == preamble_bytes);
  reject[4] = std::byte{3};
  auto left = e.initiator();
  const auto told = left.on_bytes(reject);
  REQUIRE(!told);
  CHECK(told.error().status == MORI_E_VERSION);
  CHECK(told.error().text == "the other side speaks format 3 of the handshake, not 1");
  reject[4] = std::byte{1};
  reject[7] = std::byte{9};
  auto other = e.initiator();
  CHECK(other.on_bytes(reject).error().text == "rejected for reason 9, allowed are 1 .. 2");
}

TEST_CASE("a target cannot choose less than the initiator asked for") {
  // A target that is honest about its keys and not about the rules: it says that it agreed on
  // `trusted` with somebody who wants a MAC, and a version that nobody offered.
  struct choice {
    security_mode mine;
    uint8_t theirs;
    uint16_t version;
    bool good;
  };
  for (const choice& c :
       {choice{security_mode::mac, 3, 1, false}, choice{security_mode::encrypt, 3, 1, false},
        choice{security_mode::encrypt, 1, 1, false}, choice{security_mode::mac, 0, 1, false},
        choice{security_mode::mac, 4, 1, false}, choice{security_mode::mac, 1, 0, false},
        choice{security_mode::mac, 1, 2, false}, choice{security_mode::mac, 1, 1, true},
        choice{security_mode::trusted, 1, 1, true}, choice{security_mode::mac, 2, 1, true}}) {
    ends e;
    e.who.mode = c.mine;
    auto left = e.initiator();
    const byte_vector hello = take(left);
    // The target's part by hand.
    mori::link::byte_writer prologue;
    prologue.raw(mori::link::as_bytes("mori-io handshake"));
    prologue.u16(1);
    noise_state noise("Noise_IK_25519_ChaChaPoly_BLAKE2b", prologue.view());
    noise.mix_hash(as_bytes(std::span(e.target_key.public_key)));
    public_key ephemeral{};
    std::memcpy(ephemeral.data(), hello.data() + 8, 32);
    noise.mix_hash(as_bytes(std::span(ephemeral)));
    secret_key shared;
    REQUIRE(shared_secret(e.target_key.private_key, ephemeral, shared));
    noise.mix_key(shared);
    public_key theirs{};
    REQUIRE(noise.decrypt_and_hash(byte_span(hello).subspan(40, 48),
                                   std::as_writable_bytes(std::span(theirs))));
    REQUIRE(shared_secret(e.target_key.private_key, theirs, shared));
    noise.mix_key(shared);
    byte_vector said(identity_bytes);
    REQUIRE(noise.decrypt_and_hash(byte_span(hello).subspan(88, identity_bytes + 16), said));
    const key_pair mine = key_pair::of(e.target_ephemeral);
    mori::link::byte_writer answer;
    answer.u32(0x4F49524D), answer.u16(1), answer.u8(2), answer.u8(0);
    answer.raw(as_bytes(std::span(mine.public_key)));
    noise.mix_hash(as_bytes(std::span(mine.public_key)));
    REQUIRE(shared_secret(mine.private_key, ephemeral, shared));
    noise.mix_key(shared);
    REQUIRE(shared_secret(mine.private_key, theirs, shared));
    noise.mix_key(shared);
    mori::link::byte_writer verdict;
    verdict.i32(0), verdict.u16(c.version), verdict.u8(c.theirs), verdict.u8(0);
    byte_vector padded = verdict.take();
    padded.resize(verdict_bytes);
    byte_vector sealed(verdict_bytes + 16);
    noise.encrypt_and_hash(padded, sealed);
    answer.raw(sealed);
    const auto got = left.on_bytes(answer.view());
    CHECK(status_of(got) == (c.good ? MORI_OK : MORI_E_PROTOCOL));
    CHECK(left.done() == c.good);
    CHECK(left.output().empty() == !c.good);
  }
}

TEST_CASE("low-order public keys are refused on both sides") {
  ends e;
  public_key zero{}, one{};
  one[0] = 1;
  for (const public_key& bad : {zero, one}) {
    const auto made = initiator::start({&e.initiator_key, bad, e.who});
    REQUIRE(!made);
    CHECK(made.error().status == MORI_E_AUTH);
    CHECK(made.error().text == "the other side's public key is of low order: no secret");

    // An ephemeral key of low order, with a right stamp.
    byte_vector hello = copy_of(e.initiator().output());
    std::memcpy(hello.data() + preamble_bytes, bad.data(), bad.size());
    std::array<uint8_t, stamp_bytes> stamp{};
    keyed_hash(e.target_key.public_key, "mori-io stamp",
               {byte_span(hello).first(hello_bytes - stamp_bytes)}, stamp);
    std::memcpy(hello.data() + hello_bytes - stamp_bytes, stamp.data(), stamp.size());
    CHECK(heard(e, hello) == MORI_E_AUTH);

    auto left = e.initiator();
    byte_vector answer = record(e).answer;
    std::memcpy(answer.data() + preamble_bytes, bad.data(), bad.size());
    CHECK(status_of(left.on_bytes(answer)) == MORI_E_AUTH);
  }
}

TEST_CASE("limits of an identity") {
  ends e;
  e.who.key = std::string(max_key_bytes, 'k');
  record(e);
  for (const std::string& key : {std::string(max_key_bytes + 1, 'k'), std::string()}) {
    e.who.key = key;
    const auto made = initiator::start({&e.initiator_key, e.target_key.public_key, e.who});
    REQUIRE(!made);
    CHECK(made.error().status == MORI_E_INVALID);
    CHECK(made.error().text ==
          fmt::format("an engine key of {} bytes, allowed are 1 .. 128", key.size()));
  }
  // What an honest library never says is refused by its reader.
  const auto refused = [&](auto change) {
    ends m;
    change(m.who);
    return heard(m, copy_of(m.initiator().output()));
  };
  CHECK(refused([](identity&) {}) == MORI_OK);
  CHECK(refused([](identity& i) { i.key = std::string("a\0b", 3); }) == MORI_E_PROTOCOL);
  CHECK(refused([](identity& i) { i.purpose = static_cast<stream_purpose>(3); }) ==
        MORI_E_PROTOCOL);
  CHECK(refused([](identity& i) { i.purpose = static_cast<stream_purpose>(0); }) ==
        MORI_E_PROTOCOL);
  CHECK(refused([](identity& i) { i.mode = static_cast<security_mode>(4); }) == MORI_E_PROTOCOL);
  CHECK(refused([](identity& i) { i.mode = static_cast<security_mode>(0); }) == MORI_E_PROTOCOL);
  CHECK(refused([](identity& i) { i.least_version = 2; }) == MORI_E_PROTOCOL);
}

TEST_CASE("a stranger is noticed at the fourth byte, and costs no curve operation") {
  ends e;
  auto right = e.responder();
  CHECK(right.on_bytes(mori::link::as_bytes("GET")));
  const auto got = right.on_bytes(mori::link::as_bytes(" "));
  REQUIRE(!got);
  CHECK(got.error().status == MORI_E_PROTOCOL);
  CHECK(got.error().text ==
        "the other side does not speak this protocol: it began with 0x20544547, not 0x4f49524d");
  CHECK(right.output().empty());
}
