// engine_xgmi_test.cpp - engines of one node in two processes: which way they choose, that each
// transfer is notified once whatever way it took, what happens when a way closes, and that
// memory is left alone after it was deregistered.
#define MORI_SUBJECT_PROGRAM MORI_ENGINE_PROGRAM
#include "subject.hpp"

#include <doctest/doctest.h>
#include <mori/io.h>

#include <algorithm>
#include <memory>
#include <thread>

using namespace mori;
using io_test::subject;

namespace {

constexpr uint64_t bytes = 3'000'000;

struct side {
  std::unique_ptr<subject> process;
  template <class... Words>
  std::string ask(const Words&... words) {
    return process->ask(words...);
  }
};

side make_side(const std::string& key, const std::string& kind, const std::string& user = "",
               bool has_tcp = true) {
  side made{std::make_unique<subject>(user.empty() ? std::vector<std::string>()
                                                   : std::vector<std::string>{"--user", user})};
  REQUIRE(made.ask("create", key) == "ok");
  REQUIRE(made.ask("backend", "XGMI") == "ok");
  if (has_tcp) REQUIRE(made.ask("backend", "TCP") == "ok");
  REQUIRE(made.ask("memory", kind, bytes) == "ok");
  return made;
}

// From `a` to `b`, which know each other.
std::string join(side& a, side& b, const std::string& pinned = "") {
  REQUIRE(a.ask("know", b.ask("desc")) == "ok");
  REQUIRE(b.ask("know", a.ask("desc")) == "ok");
  return a.ask("join", b.ask("memory-desc"), pinned);
}

// Notifications come behind the transfer's end: those that are there, until `count` are or a
// second has passed.
std::string inbound(side& of, size_t count) {
  std::string all;
  const auto until = base::deadline::after(base::ns_per_s);
  while (!until.passed()) {
    std::string some = of.ask("inbound");
    some.pop_back();
    all += some;
    if (static_cast<size_t>(std::ranges::count(all, ',')) >= count) break;
    std::this_thread::yield();
  }
  std::string rest = of.ask("inbound");
  rest.pop_back();
  return all + rest;
}

}  // namespace

TEST_CASE("engines of one node: the way, the bytes, one notification each") {
  for (const std::string kind : {"segment", "plain"}) {
    CAPTURE(kind);
    side a = make_side("a", "plain"), b = make_side("b", kind);
    REQUIRE(join(a, b) == "ok");
    CHECK(a.ask("stats") ==
          fmt::format("{} alive failovers 0: XGMI: {}", int{MORI_IO_BACKEND_XGMI},
                      kind == "segment"
                          ? "host memory mapped"
                          : fmt::format("cross-memory attach to process {}", b.process->pid())));
    b.ask("fill", 2);
    CHECK(a.ask("run", 1, 0, bytes, 1, 0) == "ok");
    CHECK(a.ask("sum") == b.ask("sum"));
    a.ask("fill", 3);
    CHECK(a.ask("run", 0, 0, bytes, 2, 0) == "ok");
    CHECK(a.ask("sum") == b.ask("sum"));
    CHECK(a.ask("run", 0, 5, 1, 3, 0) == "ok");
    CHECK(a.ask("run", 0, bytes, 0, 4, 0) == "ok");
    CHECK(a.ask("run", 0, 5, 1, 5, 1) == "ok");  // quietly
    std::string expected;
    for (int uid = 1; uid <= 4; ++uid) expected += std::to_string(uid) + ",";
    CHECK(inbound(b, 4) == expected);
    std::string many;
    for (int uid = 100; uid < 200; ++uid) {
      CHECK(a.ask("run", uid % 2, uid, 1000 + uid, uid, 0) == "ok");
      many += std::to_string(uid) + ",";
    }
    CHECK(inbound(b, 100) == many);
    CHECK(inbound(b, 1) == "");
  }
}

TEST_CASE("engines of one node: both ways at once") {
  side a = make_side("a", "segment"), b = make_side("b", "segment");
  REQUIRE(join(a, b) == "ok");
  REQUIRE(b.ask("join", a.ask("memory-desc"), "") == "ok");
  a.ask("fill", 1);
  for (int uid = 1; uid <= 20; ++uid) {
    std::string run = fmt::format("run 0 0 {} {} 0", bytes / 2, uid);
    a.process->tell(run);
    run = fmt::format("run 0 {} {} {} 0", bytes / 2, bytes - bytes / 2, uid);
    b.process->tell(run);
    CHECK(a.process->hear() == "ok");
    CHECK(b.process->hear() == "ok");
  }
  CHECK(a.ask("sum") == b.ask("sum"));
}

TEST_CASE("engines of one node: a way that closes hands over to TCP, nothing is told twice") {
  if (::geteuid() != 0) return;
  side a = make_side("a", "plain", "65534"), b = make_side("b", "plain", "65534");
  REQUIRE(join(a, b) == "ok");
  a.ask("fill", 1);
  CHECK(a.ask("run", 0, 0, bytes, 1, 0) == "ok");
  REQUIRE(b.ask("hide") == "ok");
  a.ask("fill", 2);
  for (int uid = 2; uid <= 5; ++uid) CHECK(a.ask("run", 0, 0, bytes, uid, 0) == "ok");
  CHECK(a.ask("sum") == b.ask("sum"));
  CHECK(inbound(b, 5) == "1,2,3,4,5,");
  const std::string stats = a.ask("stats");
  CHECK(stats.starts_with(fmt::format("{} alive failovers 1: ", int{MORI_IO_BACKEND_TCP})));
  CHECK(stats.find(fmt::format("attaching to process {} is denied", b.process->pid())) !=
        std::string::npos);
  // A new session knows at once.
  CHECK(a.ask("join", b.ask("memory-desc"), "") == "ok");
  CHECK(a.ask("stats").find("is denied") != std::string::npos);
  CHECK(a.ask("run", 0, 0, bytes, 6, 0) == "ok");
}

TEST_CASE("engines of one node: pinned to XGMI and denied: the reason") {
  if (::geteuid() != 0) return;
  side a = make_side("a", "plain", "65533"), b = make_side("b", "plain", "65534");
  const std::string refused = join(a, b, "XGMI");
  CHECK(refused.starts_with("MORI_E_STATE "));
  CHECK(refused.find("it is user 65534's, this process is user 65533's") != std::string::npos);
  // Not pinned, TCP does it.
  CHECK(join(a, b) == "ok");
  CHECK(a.ask("run", 0, 0, bytes, 1, 0) == "ok");
  CHECK(a.ask("sum") == b.ask("sum"));
  // Memory of mori_io_alloc needs no such right.
  side c = make_side("c", "segment", "65534");
  CHECK(join(a, c, "XGMI") == "ok");
  a.ask("fill", 9);
  CHECK(a.ask("run", 0, 0, bytes, 1, 0) == "ok");
  CHECK(a.ask("sum") == c.ask("sum"));
}

TEST_CASE("engines of one node: memory that was deregistered is left alone") {
  for (const std::string kind : {"segment", "plain"})
    for (const bool is_quiet : {false, true}) {
      CAPTURE(kind);
      CAPTURE(is_quiet);
      side a = make_side("a", "plain"), b = make_side("b", kind);
      REQUIRE(join(a, b) == "ok");
      const std::string desc = b.ask("memory-desc");
      a.ask("fill", 1);
      CHECK(a.ask("run", 0, 0, bytes, 1, is_quiet ? 1 : 0) == "ok");
      CHECK(b.ask("deregister") == "ok");
      b.ask("fill", 7);
      const std::string before = b.ask("sum");
      CHECK(a.ask("run", 0, 0, bytes, 2, is_quiet ? 1 : 0) != "ok");
      CHECK(b.ask("sum") == before);
      CHECK(a.ask("stats").find(" dead ") != std::string::npos);
      // Whoever still has the descriptor gets nothing either.
      const std::string again = a.ask("join", desc, "XGMI");
      CHECK(again.find("the memory is not offered (any more)") != std::string::npos);
    }
}

TEST_CASE("engines of one node: the owner is killed") {
  for (const std::string kind : {"segment", "plain"}) {
    CAPTURE(kind);
    side a = make_side("a", "plain"), b = make_side("b", kind);
    REQUIRE(join(a, b) == "ok");
    CHECK(a.ask("run", 0, 0, bytes, 1, 0) == "ok");
    b.process->kill();
    // The bytes may still find their mapping; the transfer is not complete without its telling.
    const std::string ended = a.ask("run", 0, 0, bytes, 2, 0);
    if (kind == "plain") CHECK(ended != "ok");
    const std::string later = a.ask("run", 0, 0, bytes, 3, 0);
    CHECK(later != "no answer");
  }
}

TEST_CASE("engines of one node: memory taken back before there is a link is left alone") {
  for (const std::string kind : {"segment", "plain"}) {
    CAPTURE(kind);
    side a = make_side("a", "plain"), b = make_side("b", kind);
    REQUIRE(join(a, b, "XGMI") == "ok");  // the way is open, nothing was said over the network
    CHECK(b.ask("deregister") == "ok");
    b.ask("fill", 7);
    const std::string before = b.ask("sum");
    a.ask("fill", 1);
    CHECK(a.ask("run", 0, 0, bytes, 1, 0) ==
          "MORI_E_NOT_FOUND transfer 1 with engine 'b': engine 'b' deregistered region 1");
    CHECK(b.ask("sum") == before);
  }
}

TEST_CASE(
    "engines of one node: deregistering waits for who has attached the memory, not for long") {
  side a = make_side("a", "plain"), b = make_side("b", "segment"), c = make_side("c", "plain");
  REQUIRE(join(a, b, "XGMI") == "ok");
  REQUIRE(join(c, b, "TCP") == "ok");
  CHECK(a.ask("run", 0, 0, bytes, 1, 0) == "ok");
  CHECK(c.ask("run", 0, 0, bytes, 1, 0) == "ok");
  // Who goes over TCP has no use of it.
  ::kill(c.process->pid(), SIGSTOP);
  const uint64_t begin = base::now_ns();
  CHECK(b.ask("deregister") == "ok");
  CHECK(base::now_ns() - begin < base::ns_per_s);
  ::kill(c.process->pid(), SIGCONT);

  side d = make_side("d", "segment");
  REQUIRE(join(a, d, "XGMI") == "ok");
  CHECK(a.ask("run", 0, 0, bytes, 2, 0) == "ok");
  ::kill(a.process->pid(), SIGSTOP);
  const uint64_t again = base::now_ns();
  CHECK(
      d.ask("deregister") ==
      "MORI_E_TIMEOUT region 1 is revoked, but engine 'a' has attached it and did not confirm for "
      "2000 ms: it may still touch the memory");
  CHECK(base::now_ns() - again < 4 * base::ns_per_s);
  ::kill(a.process->pid(), SIGCONT);
  CHECK(a.ask("run", 0, 0, bytes, 3, 0) ==
        "MORI_E_NOT_FOUND transfer 3 with engine 'd': engine 'd' deregistered region 1");
}

TEST_CASE("engines of one node: notifications are counted where they came from") {
  side a = make_side("a", "plain", "", false), b = make_side("b", "segment", "", false);
  REQUIRE(join(a, b) == "ok");
  CHECK(a.ask("run", 0, 0, bytes, 1, 0) == "ok");
  CHECK(a.ask("run", 1, 0, bytes, 2, 0) == "ok");
  CHECK(a.ask("run", 0, 0, bytes, 3, 1) == "ok");  // quietly
  CHECK(inbound(b, 2) == "1,2,");
  CHECK(b.ask("counts") == "2 0 ");
  side c = make_side("c", "plain"), d = make_side("d", "segment");
  REQUIRE(join(c, d, "TCP") == "ok");
  CHECK(c.ask("run", 0, 0, bytes, 1, 0) == "ok");
  CHECK(c.ask("run", 1, 0, bytes, 2, 0) == "ok");
  CHECK(inbound(d, 2) == "1,2,");
  CHECK(d.ask("counts") == "0 2 ");
}

TEST_CASE("engines of one node: a write whose notification is lost for good does not succeed") {
  side a = make_side("a", "plain"), b = make_side("b", "segment");
  REQUIRE(join(a, b, "XGMI") == "ok");
  CHECK(a.ask("run", 0, 0, bytes, 1, 0) == "ok");
  ::kill(b.process->pid(), SIGSTOP);  // the memory is still mapped, nobody takes what is said
  a.process->tell(fmt::format("run 0 0 {} 2 0", bytes));
  pollfd nothing{-1, 0, 0};
  (void)::poll(&nothing, 0, 300);
  b.process->kill();
  const std::string ended = a.process->hear();
  CHECK_MESSAGE(ended.starts_with("MORI_E_PEER_DEAD transfer 2 with engine 'b': "), ended);
  CHECK_MESSAGE(ended.find("its bytes are in place, but the notification is not confirmed") !=
                    std::string::npos,
                ended);
  // Where nobody was to be told, the bytes are all there is.
  side c = make_side("c", "segment");
  REQUIRE(join(a, c, "XGMI") == "ok");
  CHECK(a.ask("run", 0, 0, bytes, 1, 1) == "ok");
  ::kill(c.process->pid(), SIGSTOP);
  CHECK(a.ask("run", 0, 0, bytes, 2, 1) == "ok");
}
