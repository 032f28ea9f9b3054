// Collectives and liveness of a whole group in the simulator: every size from
// 1 to 17, random delays, death and silence at any moment.
#include <doctest/doctest.h>

#include "simulator.hpp"

namespace base = mori::base;
using namespace mori::link;
using namespace mori::link::testing;

namespace {

constexpr int largest_size = 17;
constexpr uint64_t forever = 3600 * base::ns_per_s;

byte_vector block_of(int rank, size_t bytes, uint64_t call) {
  byte_vector block(bytes);
  for (size_t i = 0; i < bytes; ++i)
    block[i] = static_cast<std::byte>(static_cast<uint64_t>(rank) * 31 + call * 7 + i);
  return block;
}

bool names(const std::string& text, int rank) {
  return text.find("PE " + std::to_string(rank) + " ") != std::string::npos;
}

// Calls follow each other on each rank after random pauses, `count` of them.
void run_calls(simulator& s, int size, uint64_t count, size_t bytes) {
  for (int rank = 0; rank < size; ++rank) {
    const auto next = [&s, rank, count, bytes] {
      const uint64_t call = s.at(rank).outcomes.size();
      if (call >= count || (call > 0 && !s.at(rank).outcomes.back())) return;
      s.after(s.random_up_to(5 * ms), [&s, rank, call, bytes] {
        if (s.at(rank).alive)
          s.start(rank, call % 2 == 0 ? collective_kind::allgather : collective_kind::barrier,
                  call % 2 == 0 ? block_of(rank, bytes, call) : byte_vector());
      });
    };
    s.at(rank).on_outcome = next;
    next();
  }
}

}  // namespace

TEST_CASE("every size gathers the right blocks in the right order, again and again") {
  for (int size = 1; size <= largest_size; ++size)
    for (uint64_t i = 0; i < seed_count(4); ++i) {
      simulator s({size, first_seed() + i});
      INFO(s.repeat());
      constexpr uint64_t calls = 7;
      const size_t bytes = i == 0 ? 0 : 1 + 13 * i;
      run_calls(s, size, calls, bytes);
      const bool over = s.run_until(
          [&] {
            for (int rank = 0; rank < size; ++rank)
              if (s.at(rank).outcomes.size() < calls) return false;
            return true;
          },
          forever);
      REQUIRE(over);
      for (int rank = 0; rank < size; ++rank) {
        for (const auto& outcome : s.at(rank).outcomes) CHECK(outcome);
        CHECK(s.at(rank).self->fault() == nullptr);
        for (int other = 0; other < size; ++other)
          CHECK(s.at(rank).blocks[static_cast<size_t>(other)] == block_of(other, bytes, calls - 1));
      }
    }
}

TEST_CASE("blocks larger than a part travel in pieces") {
  for (const int size : {2, 3, 6}) {
    simulator s({size, first_seed()});
    const size_t bytes = max_part_bytes + 77;
    for (int rank = 0; rank < size; ++rank)
      s.start(rank, collective_kind::allgather, block_of(rank, bytes, 0));
    s.run_until([&] { return s.at(size - 1).outcomes.size() == 1 && s.at(0).outcomes.size() == 1; },
                forever);
    REQUIRE(s.at(0).outcomes.size() == 1);
    for (int other = 0; other < size; ++other)
      CHECK(s.at(0).blocks[static_cast<size_t>(other)] == block_of(other, bytes, 0));
  }
}

TEST_CASE("a barrier lets nobody out before the last one is in") {
  for (const int size : {2, 3, 5, 8, 13}) {
    simulator s({size, first_seed()});
    for (int rank = 1; rank < size; ++rank) s.start(rank, collective_kind::barrier, {});
    s.run_until([] { return false; }, 10 * base::ns_per_s);
    for (int rank = 1; rank < size; ++rank) CHECK(s.at(rank).outcomes.empty());
    s.start(0, collective_kind::barrier, {});
    s.run_until([] { return false; }, 10 * base::ns_per_s);
    for (int rank = 0; rank < size; ++rank) CHECK(s.at(rank).outcomes.size() == 1);
  }
}

TEST_CASE("one death at any moment: everybody else hears of it in time and names it") {
  for (int size = 2; size <= largest_size; ++size)
    for (uint64_t i = 0; i < seed_count(12); ++i) {
      simulator s({size, first_seed() + i});
      INFO(s.repeat());
      run_calls(s, size, 1000, 16);
      s.run_until([] { return false; }, s.random_up_to(200 * ms));
      const int victim = static_cast<int>(s.random_up_to(static_cast<uint64_t>(size) - 1));
      s.kill(victim);
      s.run_until([] { return false; }, 500 * ms);
      for (int rank = 0; rank < size; ++rank) {
        if (rank == victim) continue;
        const auto* fault = s.at(rank).self->fault();
        REQUIRE(fault != nullptr);
        CHECK(fault->status == MORI_E_PEER_DEAD);
        CHECK(fault->rank == victim);
        CHECK(fault->text == "PE " + std::to_string(victim) + " (pid " +
                                 std::to_string(1000 + victim) + ") closed its connection");
        REQUIRE(!s.at(rank).outcomes.empty());
        REQUIRE(!s.at(rank).outcomes.back());
        CHECK(s.at(rank).outcomes.back().error().status == MORI_E_PEER_DEAD);
        CHECK(!s.at(rank).self->running());
      }
    }
}

TEST_CASE("others leave because one died: the first fault still names the dead one") {
  for (const int size : {3, 5, 8, 17})
    for (uint64_t i = 0; i < seed_count(10); ++i) {
      simulator s({size, first_seed() + i});
      INFO(s.repeat());
      run_calls(s, size, 1000, 16);
      s.run_until([] { return false; }, s.random_up_to(100 * ms));
      for (int rank = 0; rank < size; ++rank)
        s.at(rank).on_outcome = [&s, rank, next = s.at(rank).on_outcome] {
          if (s.at(rank).self->fault() != nullptr) return s.leave(rank);
          next();
        };
      const int victim = static_cast<int>(i % static_cast<uint64_t>(size));
      s.kill(victim);
      s.run_until([] { return false; }, base::ns_per_s);
      for (int rank = 0; rank < size; ++rank) {
        if (rank == victim) continue;
        REQUIRE(s.at(rank).self->fault() != nullptr);
        CHECK(s.at(rank).self->fault()->rank == victim);
        REQUIRE(!s.at(rank).outcomes.back());
        CHECK(names(s.at(rank).outcomes.back().error().text, victim));
      }
    }
}

TEST_CASE("silence counts as death after the timeout, and the silent one learns of it") {
  for (const int size : {2, 3, 5, 8, 17})
    for (uint64_t i = 0; i < seed_count(6); ++i) {
      simulator s({size, first_seed() + i});
      INFO(s.repeat());
      run_calls(s, size, 1000, 16);
      s.run_until([] { return false; }, s.random_up_to(300 * ms));
      const int victim = static_cast<int>(s.random_up_to(static_cast<uint64_t>(size) - 1));
      const uint64_t frozen_at = s.now_ns();
      s.freeze(victim, 5000 * ms);
      s.run_until([] { return false; }, 900 * ms);
      for (int rank = 0; rank < size; ++rank) CHECK(s.at(rank).self->fault() == nullptr);
      s.run_until([] { return false; }, 700 * ms);
      for (int rank = 0; rank < size; ++rank) {
        if (rank == victim) continue;
        const auto* fault = s.at(rank).self->fault();
        REQUIRE(fault != nullptr);
        CHECK(fault->status == MORI_E_PEER_DEAD);
        CHECK(fault->rank == victim);
        CHECK(fault->text.find("silent for 1.") != std::string::npos);
      }
      s.run_until([] { return false; }, frozen_at + 6000 * ms - s.now_ns());
      const auto* own = s.at(victim).self->fault();
      REQUIRE(own != nullptr);
      CHECK(own->status == MORI_E_PEER_DEAD);
      CHECK(own->rank == victim);
      CHECK(own->text.find("this process was declared dead by PE ") == 0);
    }
}

TEST_CASE("a pause below the timeout is forgiven, on both sides") {
  for (const uint64_t pause_ms : {600, 800}) {
    simulator s({5, first_seed()});
    s.run_until([] { return false; }, 300 * ms);
    s.freeze(2, pause_ms * ms);
    s.run_until([] { return false; }, 5000 * ms);
    for (int rank = 0; rank < 5; ++rank) CHECK(s.at(rank).self->fault() == nullptr);
  }
}

TEST_CASE("abort reaches everyone, names the rank and ends the call in progress") {
  simulator s({6, first_seed()});
  for (int rank = 1; rank < 6; ++rank) s.start(rank, collective_kind::barrier, {});
  s.run_until([] { return false; }, 100 * ms);
  s.act(4, [](member& m) { m.abort("out of beans"); });
  s.run_until([] { return false; }, 200 * ms);
  for (int rank = 0; rank < 6; ++rank) {
    const auto* fault = s.at(rank).self->fault();
    REQUIRE(fault != nullptr);
    CHECK(fault->status == MORI_E_ABORTED);
    CHECK(fault->rank == 4);
    CHECK(fault->text == "PE 4 (pid 1004) aborted: out of beans");
    if (rank == 0) continue;
    REQUIRE(s.at(rank).outcomes.size() == 1);
    CHECK(s.at(rank).outcomes[0].error().status == MORI_E_ABORTED);
  }
}

TEST_CASE("an abort right after a barrier: all others have passed that barrier") {
  for (int size = 2; size <= largest_size; ++size)
    for (uint64_t i = 0; i < seed_count(20); ++i) {
      simulator s({size, first_seed() + i});
      INFO(s.repeat());
      const auto aborts = static_cast<int>(s.random_up_to(static_cast<uint64_t>(size - 1)));
      s.at(aborts).on_outcome = [&s, aborts] {
        s.act(aborts, [](member& m) { m.abort("out of beans"); });
      };
      for (int rank = 0; rank < size; ++rank)
        s.after(s.random_up_to(5 * ms),
                [&s, rank] { s.start(rank, collective_kind::barrier, {}); });
      s.run_until([] { return false; }, 1000 * ms);
      for (int rank = 0; rank < size; ++rank) {
        REQUIRE(s.at(rank).outcomes.size() == 1);
        CHECK(s.at(rank).outcomes[0]);
        REQUIRE(s.at(rank).self->fault() != nullptr);
        CHECK(s.at(rank).self->fault()->rank == aborts);
      }
    }
}

TEST_CASE("all leave at about the same time: no fault anywhere, everyone hears of everyone") {
  for (int size = 1; size <= largest_size; ++size)
    for (uint64_t i = 0; i < seed_count(5); ++i) {
      simulator s({size, first_seed() + i});
      INFO(s.repeat());
      run_calls(s, size, 3, 8);
      for (int rank = 0; rank < size; ++rank)
        s.at(rank).on_outcome = [&s, rank, next = s.at(rank).on_outcome] {
          if (s.at(rank).outcomes.size() == 3) return s.leave(rank);
          next();
        };
      s.run_until([] { return false; }, 2000 * ms);
      for (int rank = 0; rank < size; ++rank) {
        CHECK(s.at(rank).self->fault() == nullptr);
        REQUIRE(s.at(rank).outcomes.size() == 3);
        for (const auto& outcome : s.at(rank).outcomes) CHECK(outcome);
      }
    }
}

TEST_CASE("one leaves early: a later call says so on every rank, and there is no fault") {
  for (const int size : {2, 3, 5, 8, 17}) {
    simulator s({size, first_seed()});
    run_calls(s, size, 1, 8);
    s.run_until([] { return false; }, 300 * ms);
    const int leaver = size / 2;
    s.leave(leaver);
    s.run_until([] { return false; }, 3000 * ms);
    for (int rank = 0; rank < size; ++rank) {
      if (rank == leaver) continue;
      CHECK(s.at(rank).self->fault() == nullptr);
      CHECK(s.at(rank).self->departures() == std::vector<int>{leaver});
      s.start(rank, collective_kind::barrier, {});
    }
    s.run_until([] { return false; }, 300 * ms);
    for (int rank = 0; rank < size; ++rank) {
      if (rank == leaver) continue;
      REQUIRE(s.at(rank).outcomes.size() == 2);
      CHECK(s.at(rank).outcomes[1].error().status == MORI_E_PEER_DEAD);
      CHECK(s.at(rank).outcomes[1].error().text ==
            "barrier (collective 2): PE " + std::to_string(leaver) + " (pid " +
                std::to_string(1000 + leaver) + ") has left the group");
      CHECK(s.at(rank).self->fault() == nullptr);
    }
  }
}

TEST_CASE("a call that differs on one rank fails on all, and the next call works") {
  for (int size = 2; size <= largest_size; ++size)
    for (uint64_t i = 0; i < seed_count(5); ++i) {
      simulator s({size, first_seed() + i});
      INFO(s.repeat());
      const int odd = static_cast<int>(s.random_up_to(static_cast<uint64_t>(size) - 1));
      for (int rank = 0; rank < size; ++rank) {
        s.at(rank).on_outcome = [&s, rank] {
          if (s.at(rank).outcomes.size() == 1)
            s.after(s.random_up_to(50 * ms), [&s, rank] {
              s.start(rank, collective_kind::allgather, block_of(rank, 4, 1));
            });
        };
        s.after(s.random_up_to(50 * ms), [&s, rank, odd, i] {
          s.start(rank,
                  rank == odd && i % 2 == 0 ? collective_kind::barrier : collective_kind::allgather,
                  rank != odd  ? byte_vector(8)
                  : i % 2 == 0 ? byte_vector()
                               : byte_vector(9));
        });
      }
      s.run_until([] { return false; }, 2000 * ms);
      for (int rank = 0; rank < size; ++rank) {
        REQUIRE(s.at(rank).outcomes.size() == 2);
        REQUIRE(!s.at(rank).outcomes[0]);
        const auto& why = s.at(rank).outcomes[0].error();
        CHECK(why.status == MORI_E_MISMATCH);
        CHECK(names(why.text, odd));
        CHECK(why.text.find("an allgather of 8 bytes") != std::string::npos);
        CHECK(why.text.find(i % 2 == 0 ? "a barrier" : "an allgather of 9 bytes") !=
              std::string::npos);
        CHECK(why.text.find("(collective 1)") != std::string::npos);
        CHECK(s.at(rank).outcomes[1]);
        CHECK(s.at(rank).self->fault() == nullptr);
        CHECK(s.at(rank).blocks[static_cast<size_t>(odd)] == block_of(odd, 4, 1));
      }
    }
}

TEST_CASE("a deadline ends the call everywhere and names the late rank") {
  for (const int size : {2, 3, 5, 8, 17}) {
    simulator s({size, first_seed()});
    const int late = size - 1;
    for (int rank = 0; rank < late; ++rank) s.start(rank, collective_kind::barrier, {});
    s.run_until([] { return false; }, 4000 * ms);  // some beats: who waits for whom gets about
    s.act(0, [](member& m) { m.give_up(4000 * ms); });
    s.run_until([] { return false; }, 300 * ms);
    for (int rank = 0; rank < late; ++rank) {
      REQUIRE(s.at(rank).outcomes.size() == 1);
      CHECK(s.at(rank).outcomes[0].error().status == MORI_E_TIMEOUT);
      CHECK(s.at(rank).outcomes[0].error().text ==
            "barrier (collective 1): PE 0 waited 4.0 s for PE " + std::to_string(late) + " (pid " +
                std::to_string(1000 + late) + ")");
    }
    // The late one is told, and then all are in step again.
    s.start(late, collective_kind::barrier, {});
    s.run_until([] { return false; }, 300 * ms);
    REQUIRE(s.at(late).outcomes.size() == 1);
    CHECK(s.at(late).outcomes[0].error().status == MORI_E_TIMEOUT);
    for (int rank = 0; rank < size; ++rank) s.start(rank, collective_kind::barrier, {});
    s.run_until([] { return false; }, 500 * ms);
    for (int rank = 0; rank < size; ++rank) {
      REQUIRE(s.at(rank).outcomes.size() == 2);
      CHECK(s.at(rank).outcomes[1]);
    }
  }
}

TEST_CASE("bytes that make no sense end the sender, not the receiver") {
  const topology shape(0, 3);
  liveness_options alive;
  alive.process_ids = {10, 11, 12};
  for (const uint16_t kind : {uint16_t{0}, uint16_t{32}, uint16_t{33}, uint16_t{34}, uint16_t{35},
                              uint16_t{36}, uint16_t{37}, uint16_t{64}, uint16_t{65535}})
    for (size_t bytes = 0; bytes < 40; ++bytes) {
      if (kind == 32 && bytes == 12) continue;  // a legal heartbeat
      member m(shape, alive, 0);
      const byte_vector junk(bytes, std::byte{0x7F});
      m.on_frame(shape.in_link(0), kind, junk, 1);
      REQUIRE(m.fault() != nullptr);
      CHECK(m.fault()->rank == 2);
      CHECK(m.fault()->text.find("PE 2 (pid 12) broke the protocol: ") == 0);
    }
}

TEST_CASE("news about nobody, or that contradicts itself, is not passed on") {
  const topology shape(0, 3);
  liveness_options alive;
  alive.process_ids = {10, 11, 12};
  const auto heard = [&](const notice& news) {
    member m(shape, alive, 0);
    m.on_frame(shape.in_link(0), static_cast<uint16_t>(news.kind), encode(news), 1);
    return m.fault() != nullptr ? m.fault()->text : "";
  };
  constexpr auto dead = message_kind::peer_dead;
  CHECK(heard({dead, 1, 2, 0, MORI_E_PEER_DEAD, "PE 1 fell"}) == "PE 1 fell");
  CHECK(heard({dead, -1, 2, 0, MORI_E_PEER_DEAD, "x"}) ==
        "PE 2 (pid 12) broke the protocol: news about PE -1 with status 6");
  CHECK(heard({dead, 3, 2, 0, MORI_E_PEER_DEAD, "x"}) ==
        "PE 2 (pid 12) broke the protocol: news about PE 3 with status 6");
  CHECK(heard({dead, 1, 2, 0, MORI_OK, "x"}) ==
        "PE 2 (pid 12) broke the protocol: news about PE 1 with status 0");
  CHECK(heard({message_kind::left, 1, 1, 0, MORI_OK, ""}).empty());
}
