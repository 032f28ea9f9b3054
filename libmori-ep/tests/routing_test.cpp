// Tests of the kernels' arithmetic that every processor shares: division by a
// number known before, shares of work, what a sum of opinions says; and of the
// numbering of rows with more ranks than one window has.
#include "kernels/routing.hpp"

#include <doctest/doctest.h>

#include <random>
#include <set>
#include <vector>

namespace core = mori::ep_core;
using core::u32;
using core::u64;

TEST_CASE("division by a known number is exact below 2^31") {
  std::vector<u32> divisors = {1, 2, 3, 5, 7, 8, 9, 31, 32, 33, 641, 65'535, 65'536, 65'537};
  for (u32 bit = 17; bit < 31; ++bit)
    divisors.insert(divisors.end(), {(1u << bit) - 1, 1u << bit, (1u << bit) + 1});
  divisors.push_back(INT32_MAX);
  for (const u32 by : divisors) {
    const core::divisor d = core::divisor_of(by);
    const auto check = [&](u64 number) {
      if (number > INT32_MAX) return;
      REQUIRE_MESSAGE(core::quotient(static_cast<u32>(number), d) == number / by, number, " / ",
                      by);
    };
    // Around multiples, where a quotient changes.
    for (u64 times = 0; times < 2000; ++times)
      for (const u64 near : {0, 1, 2}) check(times * by + near);
    for (u64 multiple = INT32_MAX / by * u64{by}; multiple > INT32_MAX / 2; multiple /= 2)
      for (const u64 near : {0, 1, 2}) check(multiple / by * by + near - (near > multiple ? 0 : 1));
    check(INT32_MAX);
    check(INT32_MAX - 1);
  }
}

TEST_CASE("shares are contiguous, complete, and differ by one at most") {
  for (const u32 count : {0u, 1u, 7u, 8u, 9u, 4096u, u32{INT32_MAX}})
    for (const u32 parts : {1u, 2u, 8u, 255u}) {
      u32 next = 0;
      for (u32 i = 0; i < parts; ++i) {
        const auto mine = core::share(count, i, parts);
        REQUIRE(mine.first == next);
        const u32 least = count / parts;
        REQUIRE((mine.count() == least || mine.count() == least + 1));
        next = mine.last;
      }
      CHECK(next == count);
    }
}

TEST_CASE("shares of bytes begin at lines, and none reaches beyond the end") {
  for (const u64 bytes : {0u, 16u, 112u, 128u, 144u, 14'336u, 1u << 20})
    for (const u32 parts : {1u, 2u, 3u, 8u, 32u}) {
      u64 next = 0;
      for (u32 i = 0; i < parts; ++i) {
        const auto mine = core::share_of_bytes(bytes, i, parts);
        REQUIRE(mine.first == next);
        REQUIRE((mine.first % 128 == 0 || mine.first == bytes));
        REQUIRE(mine.first <= mine.last);
        next = mine.last;
      }
      CHECK(next == bytes);
    }
}

TEST_CASE("opinions: who makes a sum of them mixed") {
  using core::presence;
  const auto word = [](core::i32 dtype, u32 hidden, presence weights, presence scales) {
    return core::pack({dtype, hidden, weights, scales, false});
  };
  const auto sum_of = [](const std::vector<u32>& words) {
    u64 sum = 0;
    for (const u32 each : words) sum += core::opinion::of_word(each, words[0]);
    return sum;
  };
  const auto mixed = [&](const std::vector<u32>& words) {
    return core::opinion::is_mixed(sum_of(words));
  };
  const u32 plain = word(MORI_EP_F32, 16, presence::none, presence::none);
  const u32 quiet = word(MORI_EP_F32, 16, presence::no_rows, presence::no_rows);
  const u32 weighted = word(MORI_EP_F32, 16, presence::given, presence::none);
  const u32 scaled = word(MORI_EP_F32, 16, presence::none, presence::given);
  CHECK(!mixed({plain}));
  CHECK(!mixed({quiet, quiet}));
  CHECK(!mixed({quiet, weighted, quiet, weighted}));
  CHECK(mixed({quiet, weighted, quiet, plain}));
  CHECK(mixed({plain, scaled}));
  CHECK(mixed({plain, word(MORI_EP_BF16, 16, presence::none, presence::none)}));
  CHECK(mixed({quiet, word(MORI_EP_F32, 32, presence::no_rows, presence::no_rows)}));
  // A registered input on one rank alone is no disagreement.
  CHECK(!mixed({plain, core::pack({MORI_EP_F32, 16, presence::none, presence::none, true})}));
  CHECK(core::opinion::flows(sum_of({quiet, weighted})) == core::flows_weights);
  CHECK(core::opinion::flows(sum_of({scaled, quiet})) == core::flows_scales);
  CHECK(core::opinion::flows(sum_of({plain, quiet})) == 0);
  // The most ranks there are: no field runs into the next.
  CHECK(!mixed(std::vector<u32>(1024, weighted)));
  CHECK(core::opinion::flows(sum_of(std::vector<u32>(1024, weighted))) == core::flows_weights);
  CHECK(core::opinion::is_mixed(1024 * core::opinion::trouble));
}

namespace {

struct routing_shape {
  u32 ranks, experts_per_rank, top_k, tokens;
};

// Memory that a block routes in, and what it must leave there.
struct routed {
  explicit routed(const routing_shape& shape, uint64_t seed) {
    at.rank_count = shape.ranks;
    at.experts_per_rank = shape.experts_per_rank;
    at.by_experts_per_rank = core::divisor_of(shape.experts_per_rank);
    at.top_k = shape.top_k;
    at.fan_out = std::min(shape.top_k, shape.ranks);
    // Leftovers of an earlier call lie there.
    routes.assign(u64{shape.tokens} * at.fan_out, {0, 77});
    at.routes = mori::device::address(routes.data());
    std::mt19937_64 random(seed);
    const u64 experts = u64{shape.ranks} * shape.experts_per_rank;
    ids.resize(u64{shape.tokens} * shape.top_k);
    for (core::i32& id : ids) {
      id = static_cast<core::i32>(random() % experts);
      if (random() % 9 == 0) id = -static_cast<core::i32>(random() % 5) - 1;
      if (random() % 40 == 0) id = static_cast<core::i32>(experts + random() % 1000);
      if (random() % 60 == 0) id = random() % 2 == 0 ? INT32_MAX : INT32_MIN;
    }
  }
  std::set<u32> destinations(u32 token) const {
    std::set<u32> ranks;
    for (u32 slot = 0; slot < at.top_k; ++slot) {
      const core::i64 id = ids[u64{token} * at.top_k + slot];
      if (id >= 0 && id / at.experts_per_rank < at.rank_count)
        ranks.insert(static_cast<u32>(id / at.experts_per_rank));
    }
    return ranks;
  }

  core::places at{};
  std::vector<core::i32> ids;
  std::vector<core::route> routes;
};

// Routes tokens first .. last - 1 and checks every route.
void check_block(routed& in, u32 first, u32 last) {
  std::vector<u32> rows(in.at.rank_count, 99), expected(in.at.rank_count, 0);
  core::router(in.at, in.ids.data(), {first, last}).run(rows.data());
  for (u32 token = first; token < last; ++token) {
    const core::route* to = in.routes.data() + u64{token} * in.at.fan_out;
    u32 next = 0;
    for (const u32 rank : in.destinations(token)) {
      REQUIRE(to[next].rank == static_cast<core::i32>(rank));
      REQUIRE(to[next++].row == expected[rank]++);
    }
    if (next < in.at.fan_out) REQUIRE(to[next].rank == -1);
  }
  CHECK(rows == expected);
}

}  // namespace

TEST_CASE("routes: ascending ranks, rows numbered by token, in any number of windows") {
  uint64_t seed = 1;
  for (const u32 ranks : {1u, 2u, 8u, 63u, 64u, 65u, 70u, 128u, 129u, 1000u, 1024u})
    for (const u32 top_k : {1u, 8u, 32u}) {
      routed in({ranks, ranks % 3 + 1, top_k, 90}, ++seed);
      check_block(in, 0, 40);
      check_block(in, 40, 40);
      check_block(in, 40, 90);
    }
}

TEST_CASE("the first id that no rank owns; none if such ids are dropped") {
  routed in({3, 2, 2, 8}, 5);
  for (core::i32& id : in.ids) id = 5;
  CHECK(core::find_bad_slot(in.at, in.ids.data(), {0, 8}) == core::no_slot);
  in.ids[9] = 6;
  in.ids[11] = INT32_MAX;
  in.ids[3] = -1;
  CHECK(core::find_bad_slot(in.at, in.ids.data(), {0, 8}) == 9);
  CHECK(core::find_bad_slot(in.at, in.ids.data(), {0, 4}) == core::no_slot);
  CHECK(core::find_bad_slot(in.at, in.ids.data(), {5, 8}) == 11);
  in.at.drop_invalid_experts = 1;
  CHECK(core::find_bad_slot(in.at, in.ids.data(), {0, 8}) == core::no_slot);
}

TEST_CASE("a hash of ids is the sum over any parts, and knows places") {
  routed in({3, 2, 4, 8}, 6);
  const auto hash = [&](u32 first, u32 last) {
    return core::hash_ids(in.at, in.ids.data(), {first, last});
  };
  CHECK(hash(0, 8) == hash(0, 3) + hash(3, 8));
  const u64 before = hash(0, 8);
  std::swap(in.ids[0], in.ids[1]);
  CHECK((in.ids[0] == in.ids[1]) == (hash(0, 8) == before));
}
