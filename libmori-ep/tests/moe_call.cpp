// moe_call.cpp - see moe_call.hpp.
#include "moe_call.hpp"

#include "far_memory.hpp"
#include "kernels/number_format.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace ep_test {
namespace {

size_t at(int rank) { return static_cast<size_t>(rank); }

ref::bytes bytes_of(const void* from, uint64_t count) {
  return downloaded(static_cast<const std::byte*>(from), count);
}

ref::bytes random_bytes(engine& random, uint64_t count) {
  ref::bytes made(count);
  for (std::byte& each : made) each = static_cast<std::byte>(random());
  return made;
}

std::vector<float> random_floats(engine& random, uint64_t count) {
  std::vector<float> made(count);
  for (float& each : made) each = static_cast<float>(pick(random, 0, 2'000'000)) / 1024.f - 900.f;
  return made;
}

// Ordinary values, or any pattern at all: infinities, NaN, subnormals.
ref::bytes random_rows(engine& random, int32_t dtype, uint64_t bytes) {
  if (chance(random, 4)) return random_bytes(random, bytes);
  const ref::number_format& format = ref::format_of_dtype(dtype);
  ref::bytes made(bytes);
  for (uint64_t i = 0; i < bytes; i += format.total_bytes()) {
    const double value = (static_cast<double>(pick(random, 0, 1 << 20)) / (1 << 19) - 1) * 8;
    const uint32_t bits = ref::encode(format, value);
    std::memcpy(made.data() + i, &bits, format.total_bytes());
  }
  return made;
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

// A routing style for one rank's tokens.
std::vector<int32_t> random_indices(engine& random, const ref::shape& s, uint64_t token_count) {
  const uint64_t experts = s.rank_count * s.expert_per_rank_count;
  const uint64_t style = pick(random, 0, 4);
  const uint64_t hot_rank = pick(random, 0, s.rank_count - 1);
  std::vector<int32_t> ids(token_count * s.expert_per_token_count);
  for (int32_t& id : ids) {
    id = static_cast<int32_t>(pick(random, 0, experts - 1));
    // Skew: nearly everything to one rank.
    if (style == 1 && !chance(random, 10))
      id = static_cast<int32_t>(hot_rank * s.expert_per_rank_count +
                                pick(random, 0, s.expert_per_rank_count - 1));
    if (style == 2 && chance(random, 2)) id = -1;
    if (style == 3 && chance(random, 5)) id = -static_cast<int32_t>(pick(random, 1, 1000));
    if (style == 4 && chance(random, 20)) id = INT32_MIN;
  }
  return ids;
}

}  // namespace

uint64_t pick(engine& random, uint64_t minimum, uint64_t maximum) {
  return minimum + random() % (maximum - minimum + 1);
}

uint64_t elem_bytes(int32_t dtype) {
  return dtype == MORI_EP_F32 ? 4 : dtype == MORI_EP_BF16 || dtype == MORI_EP_F16 ? 2 : 1;
}

ref::shape shape_of(const mori_ep_config& config, int rank_count, const call_shape& with) {
  ref::shape s;
  s.rank_count = static_cast<uint64_t>(rank_count);
  s.expert_per_rank_count = config.expert_per_rank_count;
  s.expert_per_token_count = config.expert_per_token_count;
  s.max_input_token_count = config.max_input_token_count;
  s.row_bytes = with.hidden_dim * elem_bytes(with.dtype);
  s.scale_row_bytes = with.has_scales ? config.scale_dim * config.scale_elem_bytes : 0;
  s.has_weights = with.has_weights;
  return s;
}

dispatch_case random_dispatch(engine& random, const mori_ep_config& config, int rank_count,
                              const call_shape& with) {
  dispatch_case c;
  c.with = with;
  c.shape = shape_of(config, rank_count, with);
  for (int rank = 0; rank < rank_count; ++rank) {
    ref::source from;
    const uint64_t most = config.max_input_token_count;
    from.token_count = chance(random, 5) ? 0 : chance(random, 4) ? most : pick(random, 0, most);
    from.rows = random_bytes(random, from.token_count * c.shape.row_bytes);
    from.indices = random_indices(random, c.shape, from.token_count);
    if (with.has_weights)
      from.weights = random_floats(random, from.token_count * config.expert_per_token_count);
    from.scales = random_bytes(random, from.token_count * c.shape.scale_row_bytes);
    c.ranks.push_back(std::move(from));
  }
  expect_again(c);
  return c;
}

void expect_again(dispatch_case& c) { c.expected = ref::dispatch(c.shape, c.ranks); }

std::vector<dispatched> dispatch_all(operators& ops, const dispatch_case& c, engine& random) {
  std::vector<dispatched> all(c.ranks.size());
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

std::string difference(const dispatch_case& c, const std::vector<dispatched>& got) {
  for (size_t rank = 0; rank < got.size(); ++rank) {
    const std::string who = "rank " + std::to_string(rank) + " ";
    const ref::received& is = got[rank].got;
    const ref::received& should = c.expected[rank];
    if (!got[rank].failed.empty()) return who + got[rank].failed;
    if (is.row_count != should.row_count)
      return who + "received " + std::to_string(is.row_count) + " tokens, not " +
             std::to_string(should.row_count);
    if (is.rows != should.rows) return who + "rows";
    if (is.indices != should.indices) return who + "indices";
    if (is.weights != should.weights) return who + "weights";
    if (is.scales != should.scales) return who + "scales";
    if (is.positions != should.positions) return who + "positions";
    if (c.with.count_experts ? is.local_expert_count != should.local_expert_count
                             : !is.local_expert_count.empty())
      return who + "local expert count";
  }
  return "";
}

combine_case random_combine(engine& random, const dispatch_case& c, const call_shape& with) {
  combine_case made;
  made.with = with;
  ref::shape shape = c.shape;
  shape.row_bytes = with.hidden_dim * elem_bytes(with.dtype);
  shape.has_weights = with.has_weights;
  for (const ref::received& each : c.expected) {
    ref::expert_output out;
    out.rows = random_rows(random, with.dtype, each.row_count * shape.row_bytes);
    if (with.has_weights)
      out.weights = random_floats(random, each.row_count * shape.expert_per_token_count);
    made.outputs.push_back(std::move(out));
  }
  made.expected = ref::combine(shape, with.dtype, c.ranks, made.outputs);
  return made;
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

namespace {

// Equal bit by bit, any NaN for a NaN.
bool same_values(int32_t dtype, const ref::bytes& is, const ref::bytes& should) {
  if (is.size() != should.size()) return false;
  const ref::number_format& format = ref::format_of_dtype(dtype);
  for (size_t i = 0; i < is.size(); i += format.total_bytes()) {
    uint32_t a = 0, b = 0;
    std::memcpy(&a, is.data() + i, format.total_bytes());
    std::memcpy(&b, should.data() + i, format.total_bytes());
    if (a != b && !(ref::is_nan(format, a) && ref::is_nan(format, b))) return false;
  }
  return true;
}

}  // namespace

std::string difference(const combine_case& with, const std::vector<combined>& got) {
  for (size_t rank = 0; rank < got.size(); ++rank) {
    const std::string who = "rank " + std::to_string(rank) + " ";
    if (!got[rank].failed.empty()) return who + got[rank].failed;
    if (!same_values(with.with.dtype, got[rank].got.rows, with.expected[rank].rows))
      return who + "combined rows";
    if (with.with.has_weights && got[rank].got.weights != with.expected[rank].weights)
      return who + "combined weights";
    if (!with.with.has_weights && !got[rank].got.weights.empty()) return who + "has weights";
  }
  return "";
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
