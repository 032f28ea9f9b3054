// A live engine among strangers: while they scan, babble, stall, replay and lie,
// the transfers of its real peer finish correctly and in time, and nobody without
// a capability touches memory or is heard of.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <functional>
#include <random>

#include "stranger.hpp"

using namespace mori_io_test;

namespace {

constexpr uint64_t region_bytes = 4 << 20;
constexpr uint64_t transfer_patience_ns = 8 * second_ns;  // "in time", on a busy machine

mori_io_options with_timeout(const char* key, uint64_t control_timeout_ns = 0) {
  mori_io_options made = options_of(key);
  made.control_timeout_ns = control_timeout_ns;
  return made;
}

// A real pair of engines and the traffic between them.
struct world {
  side target, source;
  mori_io_session* session = nullptr;
  uint64_t uid = 0;
  uint64_t slowest_ns = 0;
  uint64_t count = 0;

  explicit world(uint64_t control_timeout_ns = 0)
      : target(with_timeout("target", control_timeout_ns), region_bytes),
        source(options_of("source"), region_bytes) {
    source.know(target);
    target.know(source);
    session = source.session_to(target);
  }
  ~world() { mori_io_session_destroy(session); }

  wire::engine_desc desc() const { return *wire::unpack_engine(view(target.desc())); }
  wire::memory_desc memory() const { return *wire::unpack_memory(view(target.memory_desc())); }

  // One write, checked byte by byte, and its one notification.
  void transfer_once(uint64_t bytes) {
    ++uid;
    for (uint64_t i = 0; i < bytes; ++i)
      source.memory[i] = static_cast<uint8_t>(uid * 31 + i * 7 + (i >> 8));
    request what(MORI_IO_WRITE, 0, 0, bytes, uid);
    what.raw.timeout_ns = transfer_patience_ns;
    const uint64_t begin = now_ns();
    const failed outcome = run(session, what);
    slowest_ns = std::max(slowest_ns, now_ns() - begin);
    REQUIRE_MESSAGE(outcome.status == MORI_OK, outcome.text);
    REQUIRE(std::equal(source.memory.begin(), source.memory.begin() + static_cast<ptrdiff_t>(bytes),
                       target.memory.begin()));
    mori_io_inbound note{};
    note.struct_size = sizeof note;
    REQUIRE(mori_io_inbound_pop(target.io, "source", uid, &note, nullptr) == MORI_OK);
    CHECK(note.size_bytes == bytes);
    CHECK(mori_io_inbound_pop(target.io, "source", uid, &note, nullptr) == MORI_E_AGAIN);
    ++count;
  }
  void transfer_for(uint64_t duration_ns) {
    constexpr uint64_t sizes[] = {8, 4096, 300 * 1024, 3 << 20, 1};
    const uint64_t until = now_ns() + duration_ns;
    for (size_t i = 0; now_ns() < until; ++i) transfer_once(sizes[i % std::size(sizes)]);
  }
  bool is_notified() const {
    mori_io_inbound note{};
    note.struct_size = sizeof note;
    return mori_io_inbound_next(target.io, &note, nullptr) == MORI_OK;
  }
};

// Runs until it goes; body(random) is one round of an attack.
class attacker {
 public:
  attacker(uint32_t seed, std::function<void(std::mt19937&)> body)
      : thread_([this, seed, body = std::move(body)] {
          std::mt19937 random(seed);
          while (!ended_) {
            body(random);
            ++rounds_;
          }
        }) {}
  ~attacker() { stop(); }
  uint64_t stop() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
    return rounds_;
  }

 private:
  std::atomic<bool> ended_{false};
  std::atomic<uint64_t> rounds_{0};
  std::thread thread_;
};

byte_vector random_bytes(std::mt19937& random, size_t size) {
  byte_vector made(size);
  for (std::byte& each : made) each = static_cast<std::byte>(random());
  return made;
}

byte_vector some_hello(const wire::engine_desc& to) {
  const wire::key_pair keys = wire::key_pair::make();
  wire::identity who = proven_stranger::named("nobody");
  who.wanted_instance = to.instance;
  const auto machine = wire::initiator::start(
      {.self = &keys, .target_key = to.public_key, .what = who, .ephemeral = nullptr});
  REQUIRE(machine);
  return {machine->output().begin(), machine->output().end()};
}

// A slice of the target's region that would be good but for what the test changes.
wire::slice good_slice(const wire::memory_desc& of, uint64_t bytes) {
  wire::slice what;
  what.capability = of.write_capability;
  what.region = of.region;
  what.flags = wire::slice_notifies;
  what.operation = MORI_IO_WRITE;
  what.sequence = what.floor = 1;
  what.uid = 666;
  what.total_bytes = bytes;
  return what;
}

}  // namespace

TEST_CASE("transfers go on while the port is scanned and babbled at") {
  const uint32_t seed = std::random_device()();
  INFO("seed ", seed, ": set it here and run io_hostile_test -tc='transfers go on*'");
  world w;
  const uint16_t port = w.desc().port;
  const byte_vector hello = some_hello(w.desc());
  w.transfer_once(4096);  // connected before; later connections: next case
  attacker scanner(seed, [&](std::mt19937& random) {
    bare_connection line(port);
    if (random() % 2 == 0) line.reset_on_close();
  });
  attacker babbler(seed + 1, [&](std::mt19937& random) {
    bare_connection line(port);
    (void)line.send(random_bytes(random, 1 + random() % 5000));
  });
  attacker liar(seed + 2, [&](std::mt19937& random) {
    // A good hello as far as it goes, then anything.
    bare_connection line(port);
    byte_vector said(hello.begin(),
                     hello.begin() + static_cast<ptrdiff_t>(random() % hello.size()));
    const byte_vector more = random_bytes(random, random() % 400);
    said.insert(said.end(), more.begin(), more.end());
    (void)line.send(said);
  });
  attacker greeter(seed + 3, [&](std::mt19937&) {
    // Real handshakes, one after the other: the curve operations are for the target to bound.
    const proven_stranger guest(w.desc());
  });
  w.transfer_for(3 * second_ns);
  CHECK(scanner.stop() > 10);
  CHECK(babbler.stop() > 10);
  CHECK(liar.stop() > 10);
  CHECK(greeter.stop() > 3);
  CHECK(w.count > 10);
  CHECK(w.slowest_ns < transfer_patience_ns);
  CHECK(!w.is_notified());
  w.transfer_once(8);
}

TEST_CASE("who says his hello a byte at a time is not waited for") {
  world w(second_ns);
  const wire::engine_desc desc = w.desc();
  const byte_vector hello = some_hello(desc);
  std::vector<std::unique_ptr<bare_connection>> slow;
  for (int i = 0; i < 100; ++i) {
    slow.push_back(std::make_unique<bare_connection>(desc.port));
    REQUIRE(slow.back()->is_connected());
  }
  const uint64_t begin = now_ns();
  std::atomic<size_t> said{0};
  attacker drip(1, [&](std::mt19937&) {
    for (auto& each : slow) (void)each->send(byte_span(hello).subspan(said % hello.size(), 1));
    ++said;
    pollfd none{-1, 0, 0};
    (void)::poll(&none, 0, 20);
  });
  w.transfer_for(second_ns / 2);
  CHECK(drip.stop() > 3);
  for (auto& each : slow) CHECK(each->is_closed_within(10 * second_ns));
  CHECK(now_ns() - begin < 12 * second_ns);
  CHECK(w.slowest_ns < transfer_patience_ns);
}

TEST_CASE("thousands of idle strangers keep nobody out") {
  constexpr size_t wanted = 3000;
  rlimit files{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &files) == 0);
  files.rlim_cur = files.rlim_max;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &files) == 0);
  if (files.rlim_cur < wanted + 1000) {
    MESSAGE("skipped: ", files.rlim_cur, " descriptors are allowed, ", wanted + 1000,
            " are needed");
    return;
  }
  world w;
  const uint16_t port = w.desc().port;
  std::vector<std::unique_ptr<bare_connection>> idle;
  const auto come = [&](size_t count) {
    for (size_t i = 0; i < count; ++i) idle.push_back(std::make_unique<bare_connection>(port));
  };
  come(wanted / 2);  // before the first connection of the real peer, and after
  w.transfer_once(1 << 20);
  come(wanted / 2);
  w.transfer_for(second_ns);
  size_t open = 0;
  for (auto& each : idle) open += each->is_closed_within(second_ns / 1000) ? 0 : 1;
  CHECK(open <= 300);
  // Somebody new is served too.
  side late(options_of("late"), region_bytes);
  late.know(w.target);
  mori_io_session* const session = late.session_to(w.target);
  CHECK(run(session, request(MORI_IO_WRITE, 0, 0, 100)).status == MORI_OK);
  mori_io_session_destroy(session);
  CHECK(w.slowest_ns < transfer_patience_ns);
}

TEST_CASE("a recorded connection, played again, changes nothing") {
  side target(options_of("target"), region_bytes), source(options_of("source"), region_bytes);
  wire::engine_desc desc = *wire::unpack_engine(view(target.desc()));
  const uint16_t port = desc.port;
  tap between(port);
  REQUIRE(between.port() != 0);
  desc.port = between.port();
  desc.addresses = {{4, {127, 0, 0, 1}, between.port()}};
  const byte_vector led = *wire::pack(desc);
  MUST(mori_io_remote_register(source.io, led.data(), led.size(), error));
  mori_io_session* const session = source.session_to(target);
  std::fill_n(source.memory.begin(), 5000, uint8_t{'A'});
  REQUIRE(run(session, request(MORI_IO_WRITE, 0, 0, 5000, 1)).status == MORI_OK);
  const byte_vector recorded = between.recorded();
  REQUIRE(recorded.size() > wire::hello_bytes + wire::confirmation_bytes + 5000);
  CHECK(target.memory[4999] == 'A');
  std::fill_n(source.memory.begin(), 5000, uint8_t{'B'});
  REQUIRE(run(session, request(MORI_IO_WRITE, 0, 0, 5000, 2)).status == MORI_OK);
  mori_io_inbound note{};
  note.struct_size = sizeof note;
  for (const uint64_t uid : {1, 2})
    CHECK(mori_io_inbound_pop(target.io, "source", uid, &note, nullptr) == MORI_OK);

  for (int i = 0; i < 20; ++i) {
    bare_connection again(port);
    // The hello alone is answered; the rest does not fit the answer's fresh key.
    REQUIRE(again.send(byte_span(recorded).first(wire::hello_bytes)));
    byte_vector answer(wire::answer_bytes);
    if (i % 2 == 0) (void)again.receive(answer);
    (void)again.send(byte_span(recorded).subspan(wire::hello_bytes));
    CHECK(again.is_closed_within(10 * second_ns));
  }
  CHECK(std::count(target.memory.begin(), target.memory.begin() + 5000, 'B') == 5000);
  CHECK(mori_io_inbound_next(target.io, &note, nullptr) == MORI_E_AGAIN);
  // The real link was not disturbed by its own hello.
  const mori_io_stats before = stats_of(session);
  CHECK(run(session, request(MORI_IO_WRITE, 0, 100, 8, 3)).status == MORI_OK);
  CHECK(before.retry_count == 0);
  mori_io_session_destroy(session);
}

TEST_CASE("without a capability nobody writes, reads or notifies") {
  world w;
  const wire::memory_desc memory = w.memory();
  std::fill(w.target.memory.begin(), w.target.memory.end(), uint8_t{0x11});
  struct attempt {
    const char* what;
    std::function<void(wire::slice&)> change;
    uint64_t offset = 0;
    mori_status status = MORI_E_AUTH;
  };
  const attempt attempts[] = {
      {"no capability", [](wire::slice& s) { s.capability = {}; }},
      {"a guessed one", [](wire::slice& s) { s.capability[15] ^= 1; }},
      {"the one for reading", [&](wire::slice& s) { s.capability = memory.read_capability; }},
      {"no such region", [](wire::slice& s) { s.region += 1000; }, 0, MORI_E_NOT_FOUND},
      {"behind the end", [](wire::slice&) {}, region_bytes - 99, MORI_E_INVALID},
      {"far behind the end", [](wire::slice&) {}, UINT64_MAX - 100, MORI_E_INVALID},
  };
  for (const attempt& each : attempts) {
    INFO(each.what);
    proven_stranger guest(w.desc());
    REQUIRE(guest.is_proven());
    guest.resume();
    wire::slice what = good_slice(memory, 100);
    each.change(what);
    guest.write(what, each.offset, 100);
    proven_stranger::said answer;
    REQUIRE(guest.hear(wire::message_kind::error, answer));
    const auto error = wire::decode_error(answer.body);
    REQUIRE(error);
    CHECK(error->sequence == 1);
    CHECK(error->status == each.status);
  }
  {
    INFO("a notification of nothing");
    proven_stranger guest(w.desc());
    guest.resume();
    wire::slice what = good_slice(memory, 100);
    what.capability = {};
    guest.say(wire::message_kind::notify, [&](wire::byte_room room) {
      wire::slice_writer writer;
      return writer.start(room, wire::message_kind::notify, what) ? writer.finish() : size_t{0};
    });
    proven_stranger::said answer;
    CHECK(guest.hear(wire::message_kind::error, answer));
  }
  CHECK(std::count(w.target.memory.begin(), w.target.memory.end(), 0x11) ==
        static_cast<ptrdiff_t>(region_bytes));
  CHECK(!w.is_notified());
  w.transfer_once(100);
}

TEST_CASE("what no engine says ends that connection and no other") {
  world w;
  const wire::memory_desc memory = w.memory();
  w.transfer_once(100);
  const auto ends = [&](const char* what, bool resumes, auto&& act) {
    INFO(what);
    proven_stranger guest(w.desc());
    REQUIRE(guest.is_proven());
    if (resumes) guest.resume();
    act(guest);
    CHECK(guest.line().is_closed_within(10 * second_ns));
  };
  const auto raw = [](proven_stranger& guest, uint32_t body, uint32_t payload) {
    mori::link::byte_writer out;
    out.u32(body), out.u32(payload), out.u32(0), out.u8(1), out.u8(0), out.u16(0);
    (void)guest.line().send(out.view());
    (void)guest.line().send(byte_vector(200));
  };
  ends("a frame of 4 GiB", false, [&](auto& guest) { raw(guest, UINT32_MAX, 0); });
  ends("a payload of 4 GiB", false, [&](auto& guest) { raw(guest, 16, UINT32_MAX); });
  ends("a frame that is not sealed", false, [&](auto& guest) { raw(guest, 100, 0); });
  ends("a slice before resume", false,
       [&](auto& guest) { guest.write(good_slice(memory, 8), 0, 8); });
  ends("a sequence beyond the window", true, [&](auto& guest) {
    wire::slice far = good_slice(memory, 8);
    far.sequence = uint64_t{1} << 40;
    guest.write(far, 0, 8);
  });
  ends("another generation", false, [&](auto& guest) {
    guest.say(wire::message_kind::resume, [](wire::byte_room room) {
      return wire::encode(room, wire::resume{.generation = 9, .floor = 1, .next = 1});
    });
  });
  ends("more outstanding than there can be", false,
       [&](auto& guest) { guest.resume(uint64_t{1} << 50); });
  ends("a message of targets", true, [&](auto& guest) {
    const wire::outcome done[] = {{1, MORI_OK}};
    guest.say(wire::message_kind::ack,
              [&](wire::byte_room room) { return wire::encode_ack(room, done); });
  });
  ends("an unknown message", true, [&](auto& guest) {
    guest.say(static_cast<wire::message_kind>(99), [](wire::byte_room) { return size_t{4}; });
  });
  ends("a body that is cut", true, [&](auto& guest) {
    guest.say(wire::message_kind::heartbeat, [](wire::byte_room) { return size_t{3}; });
  });
  CHECK(!w.is_notified());
  w.transfer_for(second_ns / 4);
  CHECK(stats_of(w.session).retry_count == 0);
}

TEST_CASE("a payload that is changed on the way fails its transfer and no more") {
  world w;
  const wire::memory_desc memory = w.memory();
  proven_stranger guest(w.desc());
  guest.resume();
  guest.write(good_slice(memory, 5000), 0, 5000, true);
  proven_stranger::said answer;
  REQUIRE(guest.hear(wire::message_kind::error, answer));
  const auto error = wire::decode_error(answer.body);
  REQUIRE(error);
  CHECK(error->sequence == 1);
  CHECK(error->status == MORI_E_PROTOCOL);
  wire::slice next = good_slice(memory, 5000);
  next.sequence = 2;
  guest.write(next, 0, 5000);
  REQUIRE(guest.hear(wire::message_kind::ack, answer));
  CHECK((*wire::decode_ack(answer.body))[0].sequence == 2);
  CHECK((*wire::decode_ack(answer.body))[0].status == MORI_OK);
  CHECK(w.target.memory[4999] == 0xEE);
  w.transfer_once(64);
}

TEST_CASE("nobody speaks in the name of a registered peer, nor takes its place") {
  world w;
  wire::identity who = proven_stranger::named("source");
  const proven_stranger liar(w.desc(), who);
  CHECK(!liar.is_proven());
  CHECK(liar.refusal().status == MORI_E_AUTH);
  // Before the real one has connected, with what its descriptor shows.
  who = proven_stranger::named("squatter");
  who.instance = wire::unpack_engine(view(w.source.desc()))->instance;
  who.generation = UINT64_MAX;
  const proven_stranger squatter(w.desc(), who);
  w.transfer_once(4096);
  w.transfer_once(300 * 1024);
}

TEST_CASE("a peer that is forgotten and registered again is no stranger") {
  world w;
  w.transfer_once(100);
  w.transfer_once(100);
  mori_io_session_destroy(w.session);
  w.session = nullptr;
  MUST(mori_io_remote_deregister(w.source.io, "target", error));
  w.source.know(w.target);
  w.session = w.source.session_to(w.target);
  w.transfer_once(100);
}

TEST_CASE("with require_known_peers strangers are told so and get no further") {
  mori_io_options strict = options_of("strict");
  strict.require_known_peers = 1;
  side target(strict, region_bytes), source(options_of("source"), region_bytes);
  const wire::engine_desc desc = *wire::unpack_engine(view(target.desc()));
  const proven_stranger guest(desc);
  CHECK(!guest.is_proven());
  CHECK(guest.refusal().status == MORI_E_AUTH);
  CHECK(guest.refusal().text == "engine 'stranger' is not registered here");
  source.know(target);
  target.know(source);
  mori_io_session* const session = source.session_to(target);
  CHECK(run(session, request(MORI_IO_WRITE, 0, 0, 100)).status == MORI_OK);
  mori_io_session_destroy(session);
}

TEST_CASE("as many engines connect as are allowed, the next is told how many") {
  REQUIRE(::setenv("MORI_IO_GUEST_COUNT", "3", 1) == 0);
  world w;
  REQUIRE(::unsetenv("MORI_IO_GUEST_COUNT") == 0);
  const wire::engine_desc desc = w.desc();
  w.transfer_once(100);  // one
  const auto second = std::make_unique<proven_stranger>(desc, proven_stranger::named("second"));
  auto third = std::make_unique<proven_stranger>(desc, proven_stranger::named("third"));
  REQUIRE(second->is_proven());
  REQUIRE(third->is_proven());
  third->resume();
  proven_stranger::said answer;
  REQUIRE(third->hear(wire::message_kind::resume_answer, answer));  // it is there
  const proven_stranger fourth(desc, proven_stranger::named("fourth"));
  CHECK(!fourth.is_proven());
  CHECK(fourth.refusal().status == MORI_E_NO_MEMORY);
  CHECK(fourth.refusal().text == "3 engines are connected, 3 are allowed (MORI_IO_GUEST_COUNT)");
  w.transfer_once(3 << 20);  // data streams of who is there are no further engines
  third.reset();
  bool came = false;
  for (int i = 0; i < 100 && !came; ++i) {
    came = proven_stranger(desc, proven_stranger::named("fifth")).is_proven();
    if (!came) (void)::poll(nullptr, 0, 10);
  }
  CHECK(came);
}

TEST_CASE("data streams of one link are bounded") {
  world w;
  const wire::engine_desc desc = w.desc();
  const wire::key_pair keys = wire::key_pair::make();
  wire::identity who = proven_stranger::named("greedy");
  proven_stranger control(desc, who, keys);
  REQUIRE(control.is_proven());
  control.resume();
  proven_stranger::said answer;
  REQUIRE(control.hear(wire::message_kind::resume_answer, answer));
  who.purpose = wire::stream_purpose::data;
  std::vector<std::unique_ptr<proven_stranger>> streams;
  for (int i = 0; i < 65; ++i)
    streams.push_back(std::make_unique<proven_stranger>(desc, who, keys));
  size_t proven = 0;
  for (const auto& each : streams) proven += each->is_proven() ? 1 : 0;
  // The last one may come before the target has heard all confirmations; then it is cut off.
  if (proven == 65) CHECK(streams.back()->line().is_closed_within(5 * second_ns));
  if (proven == 64)
    CHECK(streams.back()->refusal().text ==
          "64 data streams of engine 'greedy' are open, 64 are allowed");
  CHECK(proven >= 64);
  w.transfer_once(100);
}
