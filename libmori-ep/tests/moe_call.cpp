// moe_call.cpp - see moe_call.hpp.
#include "moe_call.hpp"

#include "far_memory.hpp"

#include <algorithm>
#include <barrier>
#include <cstdlib>

namespace ep_test {
namespace {

size_t at(int rank) { return static_cast<size_t>(rank); }

ref::bytes bytes_of(const void* from, uint64_t count) {
  return downloaded(static_cast<const std::byte*>(from), count);
}

// Ranks do not run at one speed.
void dawdle(uint64_t yields) {
  for (uint64_t i = 0; i < yields; ++i) std::this_thread::yield();
}

std::vector<uint64_t> random_delays(engine& random, int rank_count) {
  std::vector<uint64_t> delays(at(rank_count));
  for (uint64_t& each : delays) each = chance(random, 3) ? pick(random, 0, 300) : 0;
  return delays;
}

}  // namespace

std::vector<dispatched> dispatch_all(operators& ops, const dispatch_case& c, engine& random) {
  std::vector<dispatched> all(c.ranks.size());
  // Memory is taken before any rank's kernel waits: a device may hold that up until it is idle.
  std::barrier all_are_ready(static_cast<std::ptrdiff_t>(c.ranks.size()));
  const auto delays = random_delays(random, ops.group().count());
  ops.group().each([&](int rank) {
    const ref::source& from = c.ranks[at(rank)];
    dispatched& here = all[at(rank)];
    const uploaded rows(from.rows), weights(from.weights), scales(from.scales);
    const uploaded indices(from.indices);
    mori_ep_dispatch_args args{};
    args.struct_size = sizeof args;
    args.input = rows.as<void>();
    args.weights = from.weights.empty() ? nullptr : weights.as<float>();
    args.scales = from.scales.empty() ? nullptr : scales.as<void>();
    args.indices = indices.as<int32_t>();
    args.stream = own_stream();
    args.token_count = from.token_count;
    args.hidden_dim = c.with.hidden_dim;
    args.dtype = c.with.dtype;
    args.count_local_experts = c.with.count_experts ? 1 : 0;
    here.result = {};
    here.result.struct_size = sizeof here.result;
    all_are_ready.arrive_and_wait();
    dawdle(delays[at(rank)]);
    here.failed = failure(mori_ep_dispatch, ops[rank], &args, &here.result);
    if (!here.failed.empty()) return;

    // The buffers are read at once: a faster rank may already be in its next call.
    const mori_ep_dispatch_result& r = here.result;
    const int32_t told = downloaded(r.recv_count, 1).front();
    const uint64_t count_known = is_far() ? static_cast<uint64_t>(told) : r.recv_token_count;
    const uint64_t K = c.shape.expert_per_token_count;
    here.got.row_count = count_known;
    here.got.rows = bytes_of(r.out, count_known * c.shape.row_bytes);
    here.got.indices = downloaded(r.indices, count_known * K);
    // A rank without tokens of its own gets the buffers' addresses even where nothing came.
    if (c.with.has_weights || !is_far()) here.got.weights = downloaded(r.weights, count_known * K);
    if (c.with.has_scales || !is_far())
      here.got.scales = bytes_of(r.scales, count_known * c.shape.scale_row_bytes);
    here.got.local_expert_count = downloaded(r.local_expert_count, c.shape.expert_per_rank_count);
    here.got.positions.resize(count_known);
    uint64_t count = 0;
    here.failed = failure(mori_ep_src_token_positions, ops[rank], here.got.positions.data(),
                          count_known, &count);
    if (count != count_known || static_cast<uint64_t>(told) != count_known ||
        r.recv_token_count != (is_far() ? UINT64_MAX : count_known))
      here.failed = "receive counts differ";
  });
  return all;
}

namespace {

// Where this rank's expert output has to be for the kind of input.
std::string place_input(mori_ep* ep, const combine_case& with, const ref::expert_output& out,
                        void* dispatch_out, mori_ep_combine_args& args) {
  args.input_mode = MORI_EP_INPUT_EXTERNAL;
  if (with.input == input_kind::external) return "";
  void* place = dispatch_out;
  if (with.input == input_kind::registered) {
    args.input_mode = MORI_EP_INPUT_REGISTERED;
    const std::string failed =
        failure(mori_ep_combine_buffer, ep, &place, static_cast<uint64_t*>(nullptr));
    if (!failed.empty()) return failed;
  }
  copy_bytes(place, out.rows.data(), out.rows.size());
  args.input = place;
  return "";
}

}  // namespace

std::vector<combined> combine_all(operators& ops, const dispatch_case& c, const combine_case& with,
                                  engine& random, int foreign_rank) {
  std::vector<combined> all(c.ranks.size());
  std::barrier all_are_ready(static_cast<std::ptrdiff_t>(c.ranks.size()));
  const auto delays = random_delays(random, ops.group().count());
  ops.group().each([&](int rank) {
    const ref::expert_output& out = with.outputs[at(rank)];
    std::vector<int32_t> indices = c.ranks[at(rank)].indices;
    if (rank == foreign_rank) std::rotate(indices.begin(), indices.begin() + 1, indices.end());
    const uploaded far_rows(out.rows), far_indices(indices);
    const std::vector<float> no_rows(1);
    const uploaded far_weights(out.weights.empty() ? no_rows : out.weights);
    mori_ep_combine_args args{};
    args.struct_size = sizeof args;
    args.input = far_rows.as<void>();
    if (with.with.has_weights) args.weights = far_weights.as<float>();
    args.indices = far_indices.as<int32_t>();
    args.stream = own_stream();
    args.token_count = c.ranks[at(rank)].token_count;
    args.input_row_count = c.expected[at(rank)].row_count;
    args.hidden_dim = with.with.hidden_dim;
    args.dtype = with.with.dtype;
    mori_ep_combine_result result{};
    result.struct_size = sizeof result;
    all_are_ready.arrive_and_wait();
    dawdle(delays[at(rank)]);
    combined& here = all[at(rank)];
    // The symmetric token buffer is where dispatch's output was.
    mori_ep* ep = ops[rank];
    here.failed = place_input(
        ep, with, out, with.token_buffers.empty() ? nullptr : with.token_buffers[at(rank)], args);
    if (here.failed.empty()) here.failed = failure(mori_ep_combine, ep, &args, &result);
    if (!here.failed.empty()) return;
    const uint64_t tokens = args.token_count;
    here.got.rows = bytes_of(result.out, tokens * args.hidden_dim * elem_bytes(args.dtype));
    if (with.with.has_weights || !is_far())
      here.got.weights = downloaded(result.weights, tokens * c.shape.expert_per_token_count);
  });
  return all;
}

uint64_t test_seed() {
  if (const char* given = std::getenv("MORI_TEST_SEED")) return std::strtoull(given, nullptr, 10);
  static const uint64_t fresh = std::random_device{}();
  return fresh;
}

std::string how_to_repeat(uint64_t seed) {
  return "repeat with: MORI_TEST_SEED=" + std::to_string(seed) + " tests/ep_test";
}

}  // namespace ep_test
