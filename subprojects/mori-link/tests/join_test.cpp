// Joins that go wrong: strangers, ids of other runs, ranks that do not fit
// together or do not come.
#include <mori/link/group.hpp>
#include <mori/link/handshake.hpp>

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include "bootstrap/acceptor.hpp"
#include "bootstrap/dialer.hpp"
#include "bootstrap/identity.hpp"
#include "bootstrap/roster.hpp"
#include "protocol/message.hpp"

namespace base = mori::base;
using namespace mori::link;

namespace {

using joined = base::result<std::unique_ptr<group>>;

struct ranks_of_join {
  int rank;
  int size;
};

std::future<joined> join_later(const unique_id& id, ranks_of_join who, uint64_t limit_ms) {
  return std::async(std::launch::async, [=] {
    group_options options;
    options.id = id;
    options.rank = who.rank;
    options.size = who.size;
    options.join_timeout_ns = limit_ms * base::ns_per_ms;
    return group::join(options);
  });
}

unique_id fresh_id() {
  auto id = make_unique_id();
  REQUIRE(id);
  return *id;
}

// An id as another run would have made it, whose port belongs to somebody else now.
unique_id id_of_another_run(uint16_t port, const unique_id* like = nullptr) {
  identity what;
  if (like != nullptr) what = *decode_identity(*like);
  what.addresses = {{4, {127, 0, 0, 1}, port}};
  what.job = like != nullptr ? what.job : 99;
  what.secret.fill(9);
  return encode_identity(what);
}

base::unique_fd connect_to(const unique_id& id) {
  tcp::address to{4, {127, 0, 0, 1}, decode_identity(id)->addresses[0].port};
  auto fd = tcp::start_connecting(to);
  REQUIRE(fd);
  while (tcp::connect_outcome(fd->get()) == EINPROGRESS) {
    pollfd ready{fd->get(), POLLOUT, 0};
    ::poll(&ready, 1, 1000);
  }
  return std::move(*fd);
}

void say(const base::unique_fd& fd, const void* bytes, size_t size) {
  (void)!::send(fd.get(), bytes, size, MSG_NOSIGNAL);
}

// Leaves in every rank and returns how it went.
void expect_success(std::vector<std::future<joined>>& ranks) {
  std::vector<std::unique_ptr<group>> groups;
  for (auto& rank : ranks) {
    auto outcome = rank.get();
    const std::string problem = outcome ? "" : outcome.error().text;
    CHECK_MESSAGE(outcome, problem);
    if (outcome) groups.push_back(std::move(*outcome));
  }
  std::vector<std::thread> leavers;
  for (auto& g : groups) leavers.emplace_back([&g] { g->leave(); });
  for (auto& leaver : leavers) leaver.join();
}

void expect_failure(std::vector<std::future<joined>>& ranks, mori_status status,
                    std::string_view part_of_text) {
  for (auto& rank : ranks) {
    const auto outcome = rank.get();
    REQUIRE(!outcome);
    CHECK(outcome.error().status == status);
    CHECK_MESSAGE(outcome.error().text.find(part_of_text) != std::string::npos,
                  outcome.error().text);
  }
}

// A rank that knows the secret, enrols, and then does nothing that it should.
class idle_rank {
 public:
  idle_rank(const unique_id& id, ranks_of_join who) {
    const identity what = *decode_identity(id);
    dialer_options how;
    how.addresses = what.addresses;
    how.secret = what.secret;
    how.job = what.job;
    how.self = {connection_purpose::rendezvous, who.rank, -1};
    dialer dial(how, base::now_ns());
    tcp::poll_list list;
    while (!(channel_ = dial.take()) && dial.failure() == nullptr) {
      list.clear();
      dial.watch(list);
      list.wait(std::min(dial.next_due_ns(), base::now_ns() + base::ns_per_s));
      dial.step(list, base::now_ns());
    }
    REQUIRE(channel_);
    enrolment e;
    e.rank = who.rank;
    e.size = who.size;
    e.process_id = 4711;
    e.where = this_place("");
    e.addresses = {{4, {127, 0, 0, 1}, listener_.port}};
    byte_writer out;
    write_enrolment(out, e);
    REQUIRE(channel_->send(static_cast<uint16_t>(message_kind::enrol), {out.view()}));
  }

  // Until the root has said something of this kind: then it knows this rank.
  bool heard(message_kind kind) {
    for (;;) {
      const auto said = channel_->next();
      if (!said) return false;
      if (said->has_value() && (*said)->kind == static_cast<uint16_t>(kind)) return true;
      if (said->has_value()) continue;
      pollfd ready{channel_->fd(), POLLIN, 0};
      if (channel_->ended() || ::poll(&ready, 1, 10'000) != 1) return false;
      if (!channel_->on_readable()) return false;
    }
  }

 private:
  tcp::listener listener_ = *tcp::listen_anywhere();
  std::unique_ptr<tcp::channel> channel_;
};

}  // namespace

TEST_CASE("strangers of every kind delay nobody") {
  const unique_id id = fresh_id();
  std::vector<base::unique_fd> strangers;
  const byte_vector noise(3000, std::byte{0xA5});
  // More than may wait at the same time, before and while the ranks come.
  for (int i = 0; i < 120; ++i) {
    strangers.push_back(connect_to(id));
    if (i % 4 == 1) say(strangers.back(), noise.data(), noise.size());
    if (i % 4 == 2) {  // half of a well-formed hello
      handshake_options how;
      how.connecting = true;
      handshake half(how);
      say(strangers.back(), half.take_output().data(), 30);
    }
    if (i % 4 == 3) strangers.back().reset();
  }
  std::atomic<bool> over{false};
  std::thread slow([&] {  // slow loris: a right byte now and then
    handshake_options how;
    how.connecting = true;
    handshake never(how);
    const byte_vector bytes = never.take_output();
    for (size_t i = 0; !over && i < bytes.size(); ++i) {
      say(strangers[0], bytes.data() + i, 1);
      std::this_thread::yield();
    }
  });
  const uint64_t began_ns = base::now_ns();
  std::vector<std::future<joined>> ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.push_back(join_later(id, {rank, 4}, 10'000));
  expect_success(ranks);
  CHECK(base::now_ns() - began_ns < 5 * base::ns_per_s);
  over = true;
  slow.join();
}

TEST_CASE("an id of another run: nobody listens any more") {
  const unique_id id = fresh_id();
  take_listener(id).reset();
  const uint64_t began_ns = base::now_ns();
  std::vector<std::future<joined>> ranks;
  ranks.push_back(join_later(id, {0, 2}, 60'000));
  expect_failure(ranks, MORI_E_NOT_FOUND, "an id of another run?");
  const uint64_t took_ns = base::now_ns() - began_ns;
  CHECK(took_ns >= 2 * base::ns_per_s);
  CHECK(took_ns < 8 * base::ns_per_s);
}

TEST_CASE("an id of another run whose port is somebody else's now") {
  auto stranger = tcp::listen_anywhere();
  REQUIRE(stranger);
  const unique_id id = id_of_another_run(stranger->port);
  SUBCASE("who speaks another protocol") {
    std::vector<std::future<joined>> ranks;
    ranks.push_back(join_later(id, {0, 2}, 20'000));
    pollfd ready{stranger->fd.get(), POLLIN, 0};
    REQUIRE(::poll(&ready, 1, 10'000) == 1);
    auto caller = tcp::accept_one(stranger->fd.get());
    REQUIRE(caller);
    constexpr std::string_view reply = "HTTP/1.1 400 Bad Request\r\n\r\n";
    say(*caller, reply.data(), reply.size());
    expect_failure(ranks, MORI_E_PROTOCOL, "does not speak this protocol");
  }
  SUBCASE("who is silent") {
    std::vector<std::future<joined>> ranks;
    ranks.push_back(join_later(id, {0, 2}, 300));
    expect_failure(ranks, MORI_E_TIMEOUT, "connected, but it says nothing");
  }
  SUBCASE("who hangs up") {
    std::vector<std::future<joined>> ranks;
    ranks.push_back(join_later(id, {0, 2}, 500));
    std::atomic<bool> over{false};
    std::thread rude([&] {
      while (!over) {
        pollfd ready{stranger->fd.get(), POLLIN, 0};
        if (::poll(&ready, 1, 20) == 1) (void)tcp::accept_one(stranger->fd.get());
      }
    });
    expect_failure(ranks, MORI_E_TIMEOUT, "before it proved that it knows the secret");
    over = true;
    rude.join();
  }
}

TEST_CASE("an id of another run that leads to a group of this one") {
  const unique_id real = fresh_id();
  const uint16_t port = decode_identity(real)->addresses[0].port;
  std::vector<std::future<joined>> honest;
  honest.push_back(join_later(real, {0, 2}, 10'000));
  std::vector<std::future<joined>> other_job;
  other_job.push_back(join_later(id_of_another_run(port), {1, 2}, 10'000));
  expect_failure(other_job, MORI_E_AUTH, "an id of another run?");
  std::vector<std::future<joined>> other_secret;
  other_secret.push_back(join_later(id_of_another_run(port, &real), {1, 2}, 10'000));
  expect_failure(other_secret, MORI_E_AUTH, "does not know the secret of job");
  honest.push_back(join_later(real, {1, 2}, 10'000));  // who was not disturbed
  expect_success(honest);
}

TEST_CASE("a rank that comes twice, does not fit, or counts differently: all are told") {
  const auto fails = [](const std::vector<ranks_of_join>& who, std::string_view text) {
    const unique_id id = fresh_id();
    std::vector<std::future<joined>> ranks;
    for (const auto& each : who) ranks.push_back(join_later(id, each, 10'000));
    const uint64_t began_ns = base::now_ns();
    expect_failure(ranks, MORI_E_MISMATCH, text);
    CHECK(base::now_ns() - began_ns < 8 * base::ns_per_s);
  };
  const std::string pid = std::to_string(::getpid());
  fails({{0, 3}, {1, 3}, {1, 3}}, "PE 1 joined twice: pid " + pid + " and pid " + pid);
  fails({{0, 3}, {1, 3}, {3, 3}}, "PE 3 (pid " + pid + ") is outside 0 .. 2");
  fails({{0, 2}, {1, 3}}, "joined with group size ");
  fails({{1, 2}, {1, 2}}, "PE 1 joined twice");
}

TEST_CASE("ranks that do not come are listed, on every rank that came") {
  const unique_id id = fresh_id();
  std::vector<std::future<joined>> ranks;
  for (const int rank : {0, 3, 4}) ranks.push_back(join_later(id, {rank, 20}, 700));
  const uint64_t began_ns = base::now_ns();
  expect_failure(ranks, MORI_E_TIMEOUT, "PE 1, 2, 5, 6, 7, 8, 9, 10 and 9 more of 20 did not join");
  CHECK(base::now_ns() - began_ns < 4 * base::ns_per_s);
}

TEST_CASE("the maker of the id does not come") {
  const unique_id id = fresh_id();  // its listener waits in this process: hold it back
  const base::unique_fd held = take_listener(id);
  std::vector<std::future<joined>> ranks;
  for (const int rank : {1, 2}) ranks.push_back(join_later(id, {rank, 3}, 300));
  expect_failure(ranks, MORI_E_TIMEOUT, "its process has not joined yet?");
}

TEST_CASE("a rank that dies while joining fails the join of all others, by name") {
  const unique_id id = fresh_id();
  std::vector<std::future<joined>> ranks;
  for (const int rank : {0, 1}) ranks.push_back(join_later(id, {rank, 4}, 10'000));
  {
    idle_rank dying(id, {2, 4});
    REQUIRE(dying.heard(message_kind::waiting));
  }
  expect_failure(ranks, MORI_E_PEER_DEAD, "PE 2 (pid 4711) died while joining");
}

TEST_CASE("a rank that hangs while its neighbours connect is named when time is up") {
  const unique_id id = fresh_id();
  std::vector<std::future<joined>> ranks;
  for (const int rank : {0, 2}) ranks.push_back(join_later(id, {rank, 3}, 700));
  idle_rank hanging(id, {1, 3});
  REQUIRE(hanging.heard(message_kind::table));
  expect_failure(ranks, MORI_E_TIMEOUT, "no connection with PE 1");
}

TEST_CASE("the maker of the id dies while others join") {
  const unique_id id = fresh_id();
  const identity what = *decode_identity(id);
  acceptor_options how;
  how.secret = what.secret;
  how.job = what.job;
  acceptor dying(take_listener(id), how);
  std::vector<std::future<joined>> ranks;
  ranks.push_back(join_later(id, {1, 3}, 10'000));
  tcp::poll_list list;
  for (bool enrolled = false; !enrolled;) {
    list.clear();
    dying.watch(list);
    list.wait(std::min(dying.next_due_ns(), base::now_ns() + base::ns_per_s));
    dying.step(list, base::now_ns());
    for (const auto& arrival : dying.take_arrivals())
      enrolled |= arrival.kind == static_cast<uint16_t>(message_kind::enrol);
  }  // and the connection closes with the arrival
  expect_failure(ranks, MORI_E_PEER_DEAD,
                 "the process that made the unique id closed its connection");
}

TEST_CASE("arguments are checked before anybody is disturbed") {
  const unique_id id = fresh_id();
  const auto refused = [&](ranks_of_join who) {
    const auto outcome = join_later(id, who, 1000).get();
    REQUIRE(!outcome);
    CHECK(outcome.error().status == MORI_E_INVALID);
    return outcome.error().text;
  };
  CHECK(refused({0, 0}) == "group size 0 is outside 1 .. 4096");
  CHECK(refused({0, 4097}) == "group size 4097 is outside 1 .. 4096");
  CHECK(refused({-1, 2}) == "rank -1 is outside 0 .. 1");
  group_options options;
  CHECK(group::join(options).error().status == MORI_E_INVALID);
  options.id = id;
  options.size = 1;
  options.node_id = std::string(256, 'n');
  CHECK(group::join(options).error().text == "a node id of 256 bytes, the limit is 255");
  options.node_id = std::string(255, 'n');
  auto alone = group::join(options);
  REQUIRE(alone);
  CHECK((*alone)->barrier(base::deadline::after(base::ns_per_s)));
  (*alone)->leave();
}

TEST_CASE("a roster of every size travels whole and damaged ones are refused") {
  roster full;
  for (int rank = 2; rank >= 0; --rank) {
    enrolment e;
    e.rank = rank;
    e.size = 3;
    e.process_id = 100 + rank;
    e.where = {"node", 77};
    e.addresses = {{4, {10, 0, 0, static_cast<uint8_t>(rank)}, 500}};
    CHECK(!full.complete());
    REQUIRE(full.add(e));
  }
  REQUIRE(full.complete());
  const byte_vector bytes = full.encode();
  const auto table = roster::decode(bytes, 3);
  REQUIRE(table);
  CHECK((*table)[2].addresses[0].text() == "10.0.0.2:500");
  CHECK((*table)[1].process_id == 101);
  CHECK(!roster::decode(bytes, 2));
  CHECK(!roster::decode(bytes, 4));
  for (size_t size = 0; size < bytes.size(); ++size)
    CHECK(!roster::decode(byte_span(bytes).first(size), 3));
  CHECK(list_ranks({}) == "");
  CHECK(list_ranks({4}) == "4");
  CHECK(list_ranks({1, 2, 3}, 2) == "1, 2 and 1 more");
}
