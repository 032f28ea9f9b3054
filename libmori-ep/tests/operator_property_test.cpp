// Random calls on long-lived operators, compared bit by bit with the reference:
// shapes, routing styles, dtypes, buffers and speeds vary from call to call, and
// nothing is reset in between. Receive overflow is part of it: when the reference
// says that a rank gets too much, all ranks must say so and go on.
#include "moe_call.hpp"

#include <algorithm>
#include <memory>

using namespace ep_test;

namespace {

constexpr int32_t dtypes[] = {MORI_EP_F32, MORI_EP_BF16, MORI_EP_F16, MORI_EP_F8_E4M3FN,
                              MORI_EP_F8_E4M3FNUZ};

mori_ep_config random_config(engine& random, int rank_count) {
  mori_ep_config c{};
  c.struct_size = sizeof c;
  c.hidden_dim = 16 * pick(random, 1, 12);
  c.max_input_token_count = chance(random, 4) ? 1 : pick(random, 1, 40);
  c.expert_per_rank_count = pick(random, 1, 8);
  c.expert_per_token_count = chance(random, 6) ? 32 : pick(random, 1, 9);
  c.scale_dim = chance(random, 2) ? 0 : pick(random, 1, 9);
  c.scale_elem_bytes = c.scale_dim == 0 ? 0 : pick(random, 1, 4);
  c.registered_input = chance(random, 2) ? 1 : 0;
  // Requests: no result depends on them, and more than can be resident is no hang.
  if (chance(random, 2))
    c.block_count = chance(random, 3) ? 1024 : static_cast<int32_t>(pick(random, 1, 60));
  if (chance(random, 2)) c.warp_per_block_count = static_cast<int32_t>(pick(random, 1, 16));
  // ids >= W * E come in a test of their own
  if (chance(random, 2))
    c.max_total_recv_token_count =
        pick(random, 1, static_cast<uint64_t>(rank_count) * c.max_input_token_count);
  return c;
}

uint64_t capacity_of(const mori_ep_config& c, int rank_count) {
  mori_ep_memory memory{};
  memory.struct_size = sizeof memory;
  REQUIRE(failure(mori_ep_memory_query, &c, rank_count, &memory) == "");
  return memory.recv_token_capacity_count;
}

call_shape random_call(engine& random, const mori_ep_config& config) {
  call_shape with;
  with.dtype = dtypes[pick(random, 0, std::size(dtypes) - 1)];
  with.hidden_dim =
      chance(random, 2) ? config.hidden_dim : 16 * pick(random, 1, config.hidden_dim / 16);
  with.has_weights = chance(random, 2);
  with.has_scales = config.scale_dim != 0 && chance(random, 2);
  with.count_experts = chance(random, 2);
  return with;
}

struct tried_operator {
  mori_ep_config config;
  std::unique_ptr<operators> ops;
};

// "MORI_E_OVERFLOW: ..." of the first rank that gets too much, or "".
std::string expected_overflow(const dispatch_case& c, uint64_t capacity) {
  for (size_t rank = 0; rank < c.expected.size(); ++rank)
    if (c.expected[rank].row_count > capacity)
      return "MORI_E_OVERFLOW: rank " + std::to_string(rank) + " would receive " +
             std::to_string(c.expected[rank].row_count) + " tokens, the capacity is " +
             std::to_string(capacity) + " (max_total_recv_token_count); nothing was sent";
  return "";
}

// What went wrong, "" for nothing.
std::string try_combine(operators& ops, const dispatch_case& c, const std::vector<dispatched>& got,
                        engine& random) {
  call_shape with = c.with;
  if (chance(random, 3)) with.dtype = dtypes[pick(random, 0, std::size(dtypes) - 1)];
  with.has_weights = chance(random, 2);
  combine_case back = random_combine(random, c, with);
  back.input = static_cast<input_kind>(pick(random, 0, 2));
  for (const dispatched& each : got) back.token_buffers.push_back(each.result.out);
  return difference(back, combine_all(ops, c, back, random));
}

std::string try_call(tried_operator& on, engine& random) {
  operators& ops = *on.ops;
  const int rank_count = ops.group().count();
  const dispatch_case c =
      random_dispatch(random, on.config, rank_count, random_call(random, on.config));
  const std::vector<dispatched> got = dispatch_all(ops, c, random);
  const std::string overflow = expected_overflow(c, capacity_of(on.config, rank_count));
  if (!overflow.empty()) {
    for (const dispatched& each : got)
      if (each.failed != overflow) return "overflow: " + each.failed + " instead of " + overflow;
    return "";
  }
  std::string wrong = difference(c, got);
  if (!wrong.empty()) return "dispatch: " + wrong;
  for (uint64_t times = pick(random, 0, 3); times > 0 && wrong.empty(); --times)
    wrong = try_combine(ops, c, got, random);
  return wrong.empty() ? "" : "combine: " + wrong;
}

// top_k: 0 for a random one.
void try_ranks(const group_options& with, uint64_t rounds, uint64_t top_k = 0) {
  const uint64_t seed = test_seed() + static_cast<uint64_t>(with.rank_count);
  engine random(seed);
  rank_group group(with);
  for (uint64_t round = 0; round < rounds; ++round) {
    // Two operators live side by side on the same contexts.
    tried_operator two[2];
    for (tried_operator& each : two) {
      each.config = random_config(random, with.rank_count);
      if (top_k != 0) each.config.expert_per_token_count = top_k;
      each.ops = std::make_unique<operators>(group, each.config);
    }
    for (uint64_t call = 0; call < 12; ++call) {
      const std::string wrong = try_call(two[pick(random, 0, 1)], random);
      INFO("round ", round, ", call ", call);
      INFO(how_to_repeat(test_seed()));
      REQUIRE(wrong == "");
    }
  }
}

}  // namespace

TEST_CASE("random calls: one rank") { try_ranks({.rank_count = 1}, 20); }
TEST_CASE("random calls: two ranks") { try_ranks({.rank_count = 2}, 40); }
TEST_CASE("random calls: three ranks, two workers each") {
  try_ranks({.rank_count = 3, .worker_count = 2}, 25);
}
TEST_CASE("random calls: four ranks") { try_ranks({.rank_count = 4}, 25); }
TEST_CASE("random calls: eight ranks") { try_ranks({.rank_count = 8}, 12); }
TEST_CASE("random calls: twenty ranks, tokens that go to all of them") {
  try_ranks({.rank_count = 20, .worker_count = 2}, 2, 32);
}
