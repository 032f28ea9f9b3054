// moe_case.cpp - see moe_case.hpp.
#include "moe_case.hpp"

#include "kernels/number_format.hpp"

#include <cstdint>
#include <cstring>

namespace ep_test {
namespace {

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

}  // namespace ep_test
