// Tests of teams: who is in them and under which number, barriers among some while others do
// something else, and what is refused.
#include "pes.hpp"

#include <algorithm>
#include <atomic>

using namespace mori_test;

namespace {

// What a PE sees of a team: own number and size.
std::pair<int, int> seen_of(const mori_shmem_team* team) {
  mori_shmem_team_report report{};
  report.struct_size = sizeof report;
  CHECK(failure(mori_shmem_team_info, team, &report) == "");
  return {report.pe, report.pe_count};
}

int32_t translated(const mori_shmem_team* from, int32_t pe, const mori_shmem_team* to) {
  int32_t there = -2;
  CHECK(failure(mori_shmem_team_translate, from, pe, to, &there) == "");
  return there;
}

mori_shmem_team* list_of(mori_shmem* context, const std::vector<int32_t>& pes) {
  mori_shmem_team* team = nullptr;
  CHECK(failure(mori_shmem_team_of_list, context, pes.data(), static_cast<int32_t>(pes.size()),
                &team) == "");
  return team;
}

}  // namespace

TEST_CASE("teams by color, by stride, of a list and by node: numbers both ways") {
  run_pes({.pe_count = 5}, [](mori_shmem* context, int pe) {
    mori_shmem_team *odd = nullptr, *some = nullptr, *node = nullptr;
    CHECK(failure(mori_shmem_team_by_color, context, pe % 2, &odd) == "");
    CHECK(seen_of(odd) == std::pair(pe / 2, pe % 2 == 0 ? 3 : 2));
    CHECK(translated(odd, 1, nullptr) == 2 + pe % 2);
    CHECK(translated(nullptr, 4, odd) == (pe % 2 == 0 ? 2 : -1));

    CHECK(failure(mori_shmem_team_strided, context, 4, -2, 2, &some) == "");
    CHECK(seen_of(some) == std::pair(pe == 4 ? 0 : pe == 2 ? 1 : -1, 2));
    int32_t group_pe = -1;
    CHECK(failure(mori_shmem_team_group_pe, some, 1, &group_pe) == "");
    CHECK(group_pe == 2);

    mori_shmem_team* list = list_of(context, {3, 0, 4});
    CHECK(seen_of(list).second == 3);
    CHECK(translated(list, 2, some) == 0);
    CHECK(translated(list, 0, some) == -1);
    CHECK(translated(some, 0, list) == 2);

    CHECK(failure(mori_shmem_team_by_node, context, &node) == "");
    CHECK(seen_of(node) == std::pair(pe, 5));

    void *memory = nullptr, *by_team = nullptr, *by_group = nullptr;
    CHECK(failure(mori_shmem_malloc, context, uint64_t{64}, &memory) == "");
    CHECK(failure(mori_shmem_team_ptr_p2p, list, memory, 1, &by_team) == "");
    CHECK(failure(mori_shmem_ptr_p2p, context, memory, 0, &by_group) == "");
    CHECK(by_team == by_group);
    CHECK(failure(mori_shmem_team_ptr_p2p, list, memory, 3, &by_team) ==
          "MORI_E_INVALID: pe 3 is outside 0 .. 2 of the team");
    CHECK(by_team == nullptr);
    for (mori_shmem_team* team : {odd, some, list, node}) mori_shmem_team_destroy(team);
    mori_shmem_heap_report stats{};
    stats.struct_size = sizeof stats;
    CHECK(failure(mori_shmem_heap_stats, context, &stats) == "");
    CHECK(stats.allocation_count == 1);  // the words are back
  });
}

TEST_CASE("a team's barrier: none of it passes before all have come, and others are not awaited") {
  constexpr int rounds = 300;
  std::atomic<int> arrived[2] = {0, 0};
  run_pes({.pe_count = 7}, [&](mori_shmem* context, int pe) {
    mori_shmem_team* third = nullptr;
    const int32_t color = pe == 6 ? -1 : pe % 2;
    CHECK(failure(mori_shmem_team_by_color, context, color, &third) == "");
    if (pe == 6) {  // goes on alone
      CHECK(seen_of(third) == std::pair(-1, 0));
      CHECK(failure(mori_shmem_team_barrier, third) ==
            "MORI_E_STATE: barrier of a team that PE 6 is not in");
    }
    for (int round = 1; pe != 6 && round <= rounds * (1 + color); ++round) {
      ++arrived[color];
      REQUIRE(failure(mori_shmem_team_barrier, third) == "");
      REQUIRE(arrived[color] >= 3 * round);
    }
    CHECK(failure(mori_shmem_barrier_all, context) == "");
    mori_shmem_team_destroy(third);
  });
}

TEST_CASE("a team made in the place of another one begins anew") {
  run_pes({.pe_count = 4}, [](mori_shmem* context, int pe) {
    for (int turn = 0; turn < 20; ++turn) {
      mori_shmem_team* team = list_of(context, {turn % 4, (turn + 1) % 4, (turn + 2) % 4});
      const bool is_in = seen_of(team).first >= 0;
      CHECK(is_in == (pe != (turn + 3) % 4));
      for (int round = 0; is_in && round <= turn % 5; ++round)
        CHECK(failure(mori_shmem_team_barrier, team) == "");
      mori_shmem_team_destroy(team);
    }
  });
}

TEST_CASE("teams: what is refused, on all PEs alike") {
  run_pes({.pe_count = 3}, [](mori_shmem* context, int pe) {
    mori_shmem_team* team = nullptr;
    const auto strided = [&](int32_t first, int32_t stride, int32_t count) {
      return failure(mori_shmem_team_strided, context, first, stride, count, &team);
    };
    CHECK(strided(0, 1, 0) == "MORI_E_INVALID: pe_count 0 of the team is outside 1 .. 3");
    CHECK(strided(0, 1, 4) == "MORI_E_INVALID: pe_count 4 of the team is outside 1 .. 3");
    CHECK(strided(1, 2, 2) == "MORI_E_INVALID: team of 2 PEs from 1 by 2: pe 3 is outside 0 .. 2");
    CHECK(strided(1, INT32_MIN, 3) ==
          "MORI_E_INVALID: team of 3 PEs from 1 by -2147483648: pe -2147483647 is outside 0 .. 2");
    CHECK(strided(1, 0, 2) == "MORI_E_INVALID: pe 1 is in the team twice");
    int32_t translated_to = 0;
    const int32_t pes[] = {0, 2, 0};
    CHECK(failure(mori_shmem_team_of_list, context, pes, 3, &team) ==
          "MORI_E_INVALID: pe 0 is in the team twice");
    CHECK(contains(
        failure(mori_shmem_team_of_list, context, static_cast<const int32_t*>(nullptr), 3, &team),
        "in_pes"));
    // PEs that disagree: nothing is made, and the group goes on.
    CHECK(failure(mori_shmem_team_of_list, context, pes, pe == 1 ? 1 : 2, &team) ==
          "MORI_E_MISMATCH: a team: PE 0 and PE 1 have asked for different ones");
    CHECK(team == nullptr);
    CHECK(strided(2, 7, 1) == "");
    CHECK(failure(mori_shmem_team_translate, static_cast<const mori_shmem_team*>(nullptr), 0,
                  static_cast<const mori_shmem_team*>(nullptr), &translated_to) != "");
    mori_shmem_team_destroy(team);
    mori_shmem_team_destroy(team);
    mori_shmem_team_destroy(nullptr);
    CHECK(contains(failure(mori_shmem_team_barrier, team), "MORI_E_STATE"));
  });
}

TEST_CASE("a team outlives its context as a handle alone, and a PE that left is named") {
  run_pes({.pe_count = 3, .adjust = [](mori_shmem_options& o) { o.wait_timeout_ns = second_ns; }},
          [](mori_shmem* context, int pe) {
            mori_shmem_team* team = list_of(context, {0, 2});
            CHECK(failure(mori_shmem_barrier_all, context) == "");
            if (pe == 2) {
              mori_shmem_destroy(context);
              CHECK(contains(failure(mori_shmem_team_barrier, team), "MORI_E_STATE"));
            } else if (pe == 0) {
              const std::string text = failure(mori_shmem_team_barrier, team);
              CHECK(contains(text, "MORI_E_PEER_DEAD"));
              CHECK(contains(text, "PE 2"));
            }
            mori_shmem_team_destroy(team);
          });
}
