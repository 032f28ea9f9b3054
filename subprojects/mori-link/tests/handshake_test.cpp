// The handshake and the frames behind it, byte by byte, without sockets where
// possible.
#include <mori/link/handshake.hpp>
#include <mori/link/tcp/channel.hpp>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>

namespace base = mori::base;
using namespace mori::link;

namespace {

std::array<uint8_t, 32> filled(uint8_t value) {
  std::array<uint8_t, 32> bytes{};
  bytes.fill(value);
  return bytes;
}

handshake_options connecting(uint8_t secret = 1, uint64_t job = 7) {
  handshake_options how;
  how.connecting = true;
  how.secret = filled(secret);
  how.job = job;
  how.self = {connection_purpose::neighbour, 3, 5};
  how.nonce = filled(0xC0);
  return how;
}

handshake_options accepting(uint8_t secret = 1, uint64_t job = 7, uint8_t nonce = 0xA0) {
  handshake_options how;
  how.secret = filled(secret);
  how.job = job;
  how.nonce = filled(nonce);
  return how;
}

mori_status status_of(const base::result<size_t>& outcome) {
  return outcome ? MORI_OK : outcome.error().status;
}

// The three messages of a good handshake.
struct transcript {
  byte_vector hello, challenge, proof;
};

transcript record(uint8_t server_nonce = 0xA0) {
  transcript t;
  handshake client(connecting());
  handshake server(accepting(1, 7, server_nonce));
  t.hello = client.take_output();
  REQUIRE(server.on_bytes(t.hello));
  t.challenge = server.take_output();
  REQUIRE(client.on_bytes(t.challenge));
  t.proof = client.take_output();
  return t;
}

struct channel_pair {
  std::unique_ptr<tcp::channel> left, right;
};

void exchange(tcp::channel& a, tcp::channel& b) {
  for (int i = 0; i < 4; ++i) {
    a.on_writable();
    REQUIRE(b.on_readable());
    b.on_writable();
    REQUIRE(a.on_readable());
  }
}

channel_pair connected_pair(const tcp::channel_limits& limits = {}) {
  int ends[2] = {};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  channel_pair pair;
  pair.left = std::make_unique<tcp::channel>(base::unique_fd(ends[0]), connecting(), limits);
  pair.right = std::make_unique<tcp::channel>(base::unique_fd(ends[1]), accepting(), limits);
  exchange(*pair.left, *pair.right);
  REQUIRE(pair.left->established());
  REQUIRE(pair.right->established());
  return pair;
}

}  // namespace

TEST_CASE("both sides prove themselves, learn who called and get matching keys") {
  handshake client(connecting());
  handshake server(accepting());
  const byte_vector hello_said = client.take_output();
  CHECK(hello_said.size() == handshake::hello_bytes);
  CHECK(*server.on_bytes(hello_said) == handshake::hello_bytes);
  CHECK(!server.done());
  const byte_vector challenge = server.take_output();
  CHECK(challenge.size() == handshake::challenge_bytes);
  CHECK(*client.on_bytes(challenge) == handshake::challenge_bytes);
  CHECK(client.done());
  byte_vector proof = client.take_output();
  CHECK(proof.size() == handshake::proof_bytes);
  proof.resize(proof.size() + 10);  // the first frame comes along
  CHECK(*server.on_bytes(proof) == handshake::proof_bytes);
  CHECK(server.done());
  CHECK(server.peer().purpose == connection_purpose::neighbour);
  CHECK(server.peer().from_rank == 3);
  CHECK(server.peer().to_rank == 5);
  CHECK(client.keys().sending == server.keys().receiving);
  CHECK(client.keys().receiving == server.keys().sending);
  CHECK(client.keys().sending != client.keys().receiving);
}

TEST_CASE("bytes may come one at a time, and an end anywhere leaves it undone") {
  const transcript t = record();
  handshake server(accepting());
  for (const std::byte b : t.hello) CHECK(*server.on_bytes({&b, 1}) == 1);
  CHECK(server.take_output() == t.challenge);
  for (size_t i = 0; i < t.proof.size(); ++i) {
    CHECK(!server.done());
    CHECK(*server.on_bytes(byte_span(t.proof).subspan(i, 1)) == 1);
  }
  CHECK(server.done());
  handshake client(connecting());
  for (size_t i = 0; i < t.challenge.size(); ++i) {
    CHECK(!client.done());
    CHECK(*client.on_bytes(byte_span(t.challenge).subspan(i, 1)) == 1);
  }
  CHECK(client.done());
}

TEST_CASE("every flipped bit of every message is noticed") {
  const transcript t = record();
  for (size_t i = 0; i < t.challenge.size(); ++i) {
    byte_vector damaged = t.challenge;
    damaged[i] ^= std::byte{0x10};
    handshake client(connecting());
    CHECK_MESSAGE(!client.on_bytes(damaged), "byte ", i);
    CHECK(client.take_output().size() == handshake::hello_bytes);  // and nothing was proven
  }
  for (size_t i = 0; i < t.proof.size(); ++i) {
    byte_vector damaged = t.proof;
    damaged[i] ^= std::byte{0x01};
    handshake server(accepting());
    REQUIRE(server.on_bytes(t.hello));
    CHECK_MESSAGE(!server.on_bytes(damaged), "byte ", i);
    CHECK(!server.done());
  }
  for (size_t i = 0; i < t.hello.size(); ++i) {  // the client refuses the answer to another hello
    byte_vector damaged = t.hello;
    damaged[i] ^= std::byte{0x80};
    handshake server(accepting());
    const auto heard = server.on_bytes(damaged);
    const byte_vector answer = server.take_output();
    if (i < 4) CHECK(status_of(heard) == MORI_E_PROTOCOL);
    if (answer.empty()) continue;
    handshake client(connecting());
    CHECK_MESSAGE(status_of(client.on_bytes(answer)) == MORI_E_AUTH, "byte ", i);
  }
}

TEST_CASE("another secret and another job are told apart") {
  handshake client(connecting(1));
  handshake server(accepting(2));
  REQUIRE(server.on_bytes(client.take_output()));
  const auto wrong_secret = client.on_bytes(server.take_output());
  REQUIRE(!wrong_secret);
  CHECK(wrong_secret.error().status == MORI_E_AUTH);
  CHECK(wrong_secret.error().text ==
        "the other side does not know the secret of job 0000000000000007");

  handshake stranger(connecting(1, 8));
  handshake other(accepting(1, 7));
  const auto refused = other.on_bytes(stranger.take_output());
  CHECK(status_of(refused) == MORI_E_AUTH);
  const auto learned = stranger.on_bytes(other.take_output());
  REQUIRE(!learned);
  CHECK(learned.error().text.find("job 0000000000000007, not 0000000000000008") !=
        std::string::npos);
}

TEST_CASE("a client that proves without the secret is refused") {
  handshake liar(connecting(9));
  handshake server(accepting(1, 7, 0xA2));
  REQUIRE(server.on_bytes(liar.take_output()));
  byte_vector proof = record().proof;  // right form, made in another conversation
  handshake fresh(accepting(1, 7, 0xA1));
  REQUIRE(fresh.on_bytes(record().hello));
  CHECK(status_of(fresh.on_bytes(proof)) == MORI_E_AUTH);
  CHECK(status_of(server.on_bytes(proof)) == MORI_E_AUTH);
  CHECK(status_of(server.on_bytes(proof)) == MORI_E_PROTOCOL);  // it stays failed
}

TEST_CASE("replayed messages fail: each side's nonce is in the proof it expects") {
  const transcript old = record();
  handshake server(accepting(1, 7, 0xA1));
  REQUIRE(server.on_bytes(old.hello));
  CHECK(server.take_output() != old.challenge);
  CHECK(status_of(server.on_bytes(old.proof)) == MORI_E_AUTH);
  auto how = connecting();
  how.nonce = filled(0xC1);
  handshake client(how);
  CHECK(status_of(client.on_bytes(old.challenge)) == MORI_E_AUTH);
}

TEST_CASE("reflected messages fail: a hello is no challenge, a challenge no hello") {
  handshake client(connecting());
  CHECK(status_of(client.on_bytes(client.take_output())) == MORI_E_PROTOCOL);
  handshake server(accepting());
  REQUIRE(server.on_bytes(record().hello));
  // The server's own proof with the tag of a client's.
  const byte_vector challenge = server.take_output();
  byte_vector forged = record().proof;
  std::copy(challenge.end() - 32, challenge.end(), forged.begin() + 4);
  CHECK(status_of(server.on_bytes(forged)) == MORI_E_AUTH);
}

TEST_CASE("a stranger is noticed at the fourth byte") {
  handshake server(accepting());
  CHECK(server.on_bytes(as_bytes("GET")));
  CHECK(status_of(server.on_bytes(as_bytes(" "))) == MORI_E_PROTOCOL);
}

TEST_CASE("time runs out for the unproven only") {
  auto how = accepting();
  how.give_up_at_ns = 100;
  handshake server(how);
  CHECK(server.on_time(99));
  CHECK(server.on_time(100).error().status == MORI_E_TIMEOUT);
  const transcript t = record();
  REQUIRE(server.on_bytes(t.hello));
  REQUIRE(server.on_bytes(t.proof));
  CHECK(server.on_time(1000));
}

TEST_CASE("frames arrive whole, in order, of any size up to the limit") {
  auto pair = connected_pair({1000, 1 << 20});
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{999}, size_t{1000}}) {
    const byte_vector body(bytes, std::byte{0x5A});
    REQUIRE(pair.left->send(static_cast<uint16_t>(bytes), {byte_span(body).first(bytes / 2),
                                                           byte_span(body).subspan(bytes / 2)}));
    REQUIRE(pair.right->on_readable());
    const auto got = pair.right->next();
    REQUIRE(got);
    REQUIRE(got->has_value());
    CHECK((*got)->kind == bytes);
    CHECK(std::ranges::equal((*got)->payload, body));
  }
  const byte_vector over(1001);
  const auto refused = pair.left->send(1, {over});
  CHECK(refused.error().status == MORI_E_INVALID);
  CHECK(refused.error().text == "a frame of 1001 bytes, the limit is 1000");
}

TEST_CASE("a longer frame than allowed ends the connection before it is read") {
  auto pair = connected_pair({1000, 1 << 20});
  pair.right->set_limits({999, 1 << 20});
  REQUIRE(pair.left->send(1, {byte_vector(1000)}));
  REQUIRE(pair.right->on_readable());
  const auto got = pair.right->next();
  REQUIRE(!got);
  CHECK(got.error().status == MORI_E_PROTOCOL);
  CHECK(got.error().text == "a frame of 1000 bytes, the limit is 999");
}

TEST_CASE("a full queue is back-pressure, and empties when the other side reads") {
  auto pair = connected_pair({1 << 20, 64 * 1024});
  const byte_vector body(60 * 1024);
  size_t taken = 0;
  base::status outcome;
  while (taken < 1000 && (outcome = pair.left->send(5, {body}))) ++taken;
  REQUIRE(!outcome);
  CHECK(outcome.error().status == MORI_E_AGAIN);
  CHECK(pair.left->wants_write());
  size_t received = 0;
  while (received < taken) {
    pair.left->on_writable();
    REQUIRE(pair.right->on_readable());
    for (;;) {
      const auto got = pair.right->next();
      REQUIRE(got);
      if (!got->has_value()) break;
      CHECK((*got)->payload.size() == body.size());
      ++received;
    }
  }
  CHECK(!pair.left->wants_write());
  CHECK(pair.left->send(5, {body}));
}

TEST_CASE("bulk follows its frame, in pieces as the socket takes them, to where it is placed") {
  for (const bool is_authenticated : {true, false})
    for (const bool stays : {true, false})
      for (const size_t bytes : {size_t{1}, size_t{100}, size_t{700'000}}) {
        CAPTURE(is_authenticated);
        CAPTURE(stays);
        CAPTURE(bytes);
        auto pair = connected_pair({1000, 64 * 1024});
        pair.left->allow_bulk(700'000, is_authenticated);
        pair.right->allow_bulk(700'000, is_authenticated);
        byte_vector bulk(bytes);
        for (size_t i = 0; i < bytes; ++i) bulk[i] = static_cast<std::byte>(i * 7 + i / 256);
        REQUIRE(pair.left->send(3, {as_bytes("text")}, {bulk, stays}));
        if (!stays) std::ranges::fill(bulk, std::byte{0});
        // Nothing overtakes it.
        const bool has_room = pair.left->has_room();
        CHECK((has_room || bytes > 64 * 1024));
        if (has_room) REQUIRE(pair.left->send(4, {as_bytes("after")}));
        byte_vector got(bytes + 1, std::byte{0xEE});
        bool is_over = false;
        uint16_t after = 0;
        for (int i = 0; i < 1000 && after == 0; ++i) {
          pair.left->on_writable();
          if (!has_room && is_over && pair.left->has_room() && !pair.left->wants_write())
            REQUIRE(pair.left->send(4, {as_bytes("after")}));
          REQUIRE(pair.right->on_readable());
          if (pair.right->has_bulk_due()) {
            const auto over = pair.right->bulk_is_over();
            REQUIRE(over);
            is_over = is_over || *over;
            if (!*over) continue;
          }
          const auto frame = pair.right->next();
          REQUIRE(frame);
          if (!frame->has_value()) continue;
          if (is_over) {
            after = (*frame)->kind;
            CHECK((*frame)->bulk_bytes == 0);
            continue;
          }
          CHECK((*frame)->bulk_bytes == bytes);
          CHECK(std::ranges::equal((*frame)->payload, as_bytes("text")));
          pair.right->place_bulk(got.data());
          CHECK_FALSE(pair.right->next()->has_value());
          is_over = *pair.right->bulk_is_over();
        }
        CHECK(after == 4);
        for (size_t i = 0; i < bytes; ++i)
          if (got[i] != static_cast<std::byte>(i * 7 + i / 256)) FAIL("byte ", i);
        CHECK(got[bytes] == std::byte{0xEE});
      }
}

TEST_CASE("bulk has a limit on both sides, which is 0 unless it is allowed") {
  auto pair = connected_pair();
  const byte_vector bulk(101);
  const auto none = pair.left->send(1, {}, {bulk, true});
  REQUIRE(!none);
  CHECK(none.error().text == "a frame with 101 bytes of bulk, the limit is 0");
  pair.left->allow_bulk(101, true);
  pair.right->allow_bulk(100, true);
  REQUIRE(pair.left->send(1, {}, {bulk, true}));
  REQUIRE(pair.right->on_readable());
  const auto got = pair.right->next();
  REQUIRE(!got);
  CHECK(got.error().status == MORI_E_PROTOCOL);
  CHECK(got.error().text == "a frame with 101 bytes of bulk, the limit is 100");
}

TEST_CASE("bulk that was changed on its way is refused where it is authenticated") {
  int ends[2] = {};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  int taps[2] = {};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, taps) == 0);
  tcp::channel left(base::unique_fd{ends[0]}, connecting(), {});
  tcp::channel right(base::unique_fd{taps[0]}, accepting(), {});
  const base::unique_fd near(ends[1]), far(taps[1]);
  const auto forward = [](int from, int to, bool damages) {
    std::array<char, 4096> bytes{};
    const ssize_t size = ::read(from, bytes.data(), bytes.size());
    if (size <= 0) return;
    if (damages) bytes[static_cast<size_t>(size) - 17] ^= 1;  // the last byte before the tag
    REQUIRE(::write(to, bytes.data(), static_cast<size_t>(size)) == size);
  };
  for (int i = 0; i < 3; ++i) {
    left.on_writable();
    forward(near.get(), far.get(), false);
    REQUIRE(right.on_readable());
    forward(far.get(), near.get(), false);
    REQUIRE(left.on_readable());
  }
  REQUIRE(right.established());
  left.allow_bulk(1000, true);
  right.allow_bulk(1000, true);
  const byte_vector bulk(1000, std::byte{5});
  for (const bool damages : {false, true}) {
    REQUIRE(left.send(1, {}, {bulk, true}));
    forward(near.get(), far.get(), damages);
    REQUIRE(right.on_readable());
    REQUIRE(right.next()->has_value());
    byte_vector got(1000);
    right.place_bulk(got.data());
    const auto over = right.bulk_is_over();
    CHECK(static_cast<bool>(over) == !damages);
    if (damages) CHECK(over.error().text == "the bulk of frame 1 is not authentic");
  }
}

TEST_CASE("a flipped, a repeated and a foreign frame are refused") {
  for (const int fault : {0, 1, 2}) {
    int ends[2] = {};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    int taps[2] = {};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, taps) == 0);
    // left - ends[1] | this test | taps[1] - right
    tcp::channel left(base::unique_fd{ends[0]}, connecting(), {});
    tcp::channel right(base::unique_fd{taps[0]}, accepting(), {});
    const base::unique_fd near(ends[1]), far(taps[1]);
    const auto forward = [](int from, int to, int change) {
      std::array<char, 4096> bytes{};
      const ssize_t size = ::read(from, bytes.data(), bytes.size());
      if (size <= 0) return;
      if (change == 0) bytes[20] ^= 1;
      const int copies = change == 1 ? 2 : 1;
      for (int i = 0; i < copies; ++i)
        REQUIRE(::write(to, bytes.data(), static_cast<size_t>(size)) == size);
    };
    for (int i = 0; i < 3; ++i) {
      left.on_writable();
      forward(near.get(), far.get(), -1);
      REQUIRE(right.on_readable());
      forward(far.get(), near.get(), -1);
      REQUIRE(left.on_readable());
    }
    REQUIRE(right.established());
    if (fault == 2) {
      // A frame of the other direction: right's own, reflected.
      REQUIRE(right.send(1, {as_bytes("to the left")}));
      forward(far.get(), far.get(), -1);
    } else {
      REQUIRE(left.send(1, {as_bytes("to the right")}));
      forward(near.get(), far.get(), fault);
    }
    REQUIRE(right.on_readable());
    auto got = right.next();
    if (fault == 1) {
      REQUIRE(got);
      got = right.next();
    }
    REQUIRE(!got);
    CHECK(got.error().status == MORI_E_PROTOCOL);
    CHECK(got.error().text ==
          (fault == 1 ? "frame 0 came as frame 1" : "frame 0 is not authentic"));
  }
}

TEST_CASE("an end behind a frame loses no frame; a descriptor travels only where it is expected") {
  auto pair = connected_pair();
  REQUIRE(pair.left->send(9, {as_bytes("last words")}));
  pair.left->finish_sending();
  REQUIRE(pair.right->on_readable());
  REQUIRE(pair.right->on_readable());
  CHECK(pair.right->ended());
  CHECK(pair.right->end_reason() == "closed its connection");
  CHECK((*pair.right->next())->kind == 9);
  CHECK(!pair.right->next()->has_value());

  auto other = connected_pair();
  const base::unique_fd passed(::open("/proc/self/status", O_RDONLY | O_CLOEXEC));
  REQUIRE(other.left->send_descriptor(1, {}, passed.get()));
  REQUIRE(other.right->on_readable());
  REQUIRE(other.right->next()->has_value());
  CHECK(!other.right->take_descriptor());
  other.right->expect_descriptor();
  REQUIRE(other.left->send_descriptor(1, {}, passed.get()));
  REQUIRE(other.right->on_readable());
  REQUIRE(other.right->next()->has_value());
  const base::unique_fd got = other.right->take_descriptor();
  REQUIRE(got);
  CHECK((::fcntl(got.get(), F_GETFD) & FD_CLOEXEC) != 0);
}
