// Groups of processes, and what the others see when one of them is killed or
// stopped.
#include <mori/link/group.hpp>

#include <doctest/doctest.h>

#include <memory>

#include "member_process.hpp"

using namespace mori::link;
using mori::link::testing::member_process;

namespace {

using processes = std::vector<std::unique_ptr<member_process>>;

// `maker` makes the id; it need not be rank 0.
processes started_group(int size, int maker, int heartbeat_ms) {
  processes all;
  for (int rank = 0; rank < size; ++rank) all.push_back(std::make_unique<member_process>());
  const std::string id = all[static_cast<size_t>(maker)]->ask("make");
  REQUIRE(id.size() == 256);
  for (int rank = 0; rank < size; ++rank)
    all[static_cast<size_t>(rank)]->tell(
        fmt::format("join {} {} {} 15000 {}", id, rank, size, heartbeat_ms));
  for (auto& one : all) REQUIRE(one->hear() == "ok");
  return all;
}

void expect_everywhere(processes& all, const std::string& command, const std::string& answer) {
  for (auto& one : all) one->tell(command);
  for (auto& one : all) CHECK(one->hear() == answer);
}

std::string death_of(const processes& all, int rank) {
  return fmt::format("PE {} (pid {}) ", rank, all[static_cast<size_t>(rank)]->pid());
}

}  // namespace

TEST_CASE("processes of every size meet, gather, share and leave in order") {
  for (const int size : {1, 2, 3, 5, 8}) {
    INFO("size " << size);
    processes all = started_group(size, size / 2, 10'000);
    expect_everywhere(all, "barrier 10000", "ok");
    expect_everywhere(all, "allgather 10000", "ok");
    for (int owner = 0; owner < size; ++owner)
      expect_everywhere(all, fmt::format("share {} 10000", owner), "ok");
    expect_everywhere(all, "barrier 10000", "ok");
    expect_everywhere(all, "leave", "ok");
    expect_everywhere(all, "fault 0", "none");
    for (auto& one : all) CHECK(one->quit() == 0);
  }
}

TEST_CASE("kill -9: all others name rank and pid within a second, also inside a call") {
  for (const bool in_call : {false, true})
    for (const int victim : {0, 3}) {
      INFO("victim " << victim << ", in a call: " << in_call);
      processes all = started_group(5, 1, 10'000);
      auto& dead = *all[static_cast<size_t>(victim)];
      if (in_call)
        for (auto& one : all)
          if (one.get() != &dead) one->tell("barrier 10000");
      dead.signal(SIGKILL);
      const uint64_t began_ns = mori::base::now_ns();
      const std::string expected =
          fmt::format("7 6 {}closed its connection", death_of(all, victim));
      for (int rank = 0; rank < 5; ++rank) {
        if (rank == victim) continue;
        auto& one = *all[static_cast<size_t>(rank)];
        if (in_call) CHECK(one.hear().rfind("fail 6 " + death_of(all, victim), 0) == 0);
        one.tell("fault 1000");
        const std::string heard = one.hear();
        CHECK(heard.rfind(
                  fmt::format("fault 6 {} {}closed its connection", victim, death_of(all, victim)),
                  0) == 0);
      }
      CHECK(mori::base::now_ns() - began_ns < mori::base::ns_per_s);
      for (int rank = 0; rank < 5; ++rank) {
        if (rank == victim) continue;
        auto& one = *all[static_cast<size_t>(rank)];
        CHECK(one.ask("barrier 1000").rfind("fail 6 " + death_of(all, victim), 0) == 0);
        CHECK(one.ask("share " + std::to_string(rank) + " 1000").rfind("fail 6 ", 0) == 0);
        CHECK(one.ask("leave") == "ok");
        CHECK(one.quit() == 0);
      }
    }
}

TEST_CASE("SIGSTOP: silence is found out, and the stopped one learns of it when it wakes") {
  processes all = started_group(4, 2, 500);
  const int victim = 1;
  auto& stopped = *all[victim];
  stopped.signal(SIGSTOP);
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == victim) continue;
    auto& one = *all[static_cast<size_t>(rank)];
    const std::string heard = one.ask("fault 5000");
    CHECK(heard.rfind(fmt::format("fault 6 {} {}silent for ", victim, death_of(all, victim)), 0) ==
          0);
  }
  stopped.signal(SIGCONT);
  const std::string heard = stopped.ask("fault 5000");
  CHECK(heard.rfind("fault 6 1 this process was declared dead by PE ", 0) == 0);
  CHECK(heard.find(death_of(all, victim) + "silent for ") != std::string::npos);
  CHECK(stopped.ask("barrier 1000").rfind("fail 6 this process was declared dead", 0) == 0);
  for (auto& one : all) {
    CHECK(one->ask("leave") == "ok");
    CHECK(one->quit() == 0);
  }
}

TEST_CASE("a process that ends without leaving counts as dead; one that leaves does not") {
  processes all = started_group(3, 0, 10'000);
  CHECK(all[1]->ask("leave") == "ok");
  CHECK(all[1]->quit() == 0);
  CHECK(all[0]->ask("fault 200") == "none");
  const pid_t second = all[2]->pid();
  CHECK(all[2]->quit() == 0);
  CHECK(all[0]->ask("fault 1000") ==
        fmt::format("fault 6 2 PE 2 (pid {}) closed its connection", second));
}
