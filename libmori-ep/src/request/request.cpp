// request.cpp - see request.hpp.
#include "request/request.hpp"

#include "layout/dtype.hpp"

#include <algorithm>

namespace mori::ep_core {
namespace {

using base::fail;
using base::result;
using base::status;

struct row_facts {
  uint64_t hidden_dim;
  uint64_t row_bytes;
};

// Shape of the rows of this call, which may be narrower than the config's.
result<row_facts> check_row(const settings& s, int32_t dtype, uint64_t hidden_dim) {
  const dtype_facts* facts = facts_of_dtype(dtype);
  if (facts == nullptr) return fail(MORI_E_INVALID, "dtype is {}, allowed are 1 .. 7", dtype);
  if (facts->elem_bytes > s.max_token_elem_bytes)
    return fail(MORI_E_INVALID, "dtype {} has {} bytes, max_token_elem_bytes is {}", facts->name,
                facts->elem_bytes, s.max_token_elem_bytes);
  const uint64_t hidden = hidden_dim == 0 ? s.hidden_dim : hidden_dim;
  if (hidden > s.hidden_dim)
    return fail(MORI_E_INVALID, "hidden_dim is {}, the config allows {}", hidden, s.hidden_dim);
  const uint64_t bytes = hidden * facts->elem_bytes;
  if (bytes % row_granule_bytes != 0)
    return fail(MORI_E_INVALID, "hidden_dim {} of dtype {} is {} bytes a row, not a multiple of {}",
                hidden, facts->name, bytes, row_granule_bytes);
  return row_facts{hidden, bytes};
}

status check_array(const char* name, const void* array, uint64_t count, uint64_t alignment) {
  if (array == nullptr)
    return fail(MORI_E_INVALID, "{} is NULL, but has {} rows to be read", name, count);
  if (reinterpret_cast<uintptr_t>(array) % alignment != 0)
    return fail(MORI_E_INVALID, "{} at {} is not aligned to {} bytes", name, array, alignment);
  return {};
}

struct launch_fields {
  int32_t block_count, warp_per_block_count, rdma_block_count, reserved;
  void* stream;
};

template <class Args>
launch_fields launch_of(const Args& args) {
  return {args.block_count, args.warp_per_block_count, args.rdma_block_count, args.reserved,
          args.stream};
}

result<launch_request> check_launch(const settings& s, bool has_streams,
                                    const launch_fields& asked) {
  const struct {
    const char* name;
    int32_t value;
    uint64_t limit;
  } requests[] = {{"block_count", asked.block_count, block_limit},
                  {"warp_per_block_count", asked.warp_per_block_count, warp_limit},
                  {"rdma_block_count", asked.rdma_block_count, block_limit}};
  for (const auto& each : requests)
    if (each.value < 0 || static_cast<uint64_t>(each.value) > each.limit)
      return fail(MORI_E_INVALID, "{} is {}, allowed are 0 .. {}", each.name, each.value,
                  each.limit);
  const uint64_t blocks =
      asked.block_count == 0 ? s.block_count : static_cast<uint64_t>(asked.block_count);
  const uint64_t rdma_blocks = asked.rdma_block_count == 0
                                   ? s.rdma_block_count
                                   : static_cast<uint64_t>(asked.rdma_block_count);
  if (rdma_blocks != 0 && rdma_blocks >= blocks)
    return fail(MORI_E_INVALID, "rdma_block_count {} is not below block_count {}", rdma_blocks,
                blocks);
  if (asked.reserved != 0) return fail(MORI_E_INVALID, "reserved is {}, not 0", asked.reserved);
  if (asked.stream != nullptr && !has_streams)
    return fail(MORI_E_INVALID, "stream is {}: the host back end has none, pass NULL",
                asked.stream);
  const uint64_t waves = asked.warp_per_block_count == 0
                             ? s.warp_per_block_count
                             : static_cast<uint64_t>(asked.warp_per_block_count);
  return launch_request{static_cast<uint32_t>(blocks), static_cast<uint32_t>(waves), asked.stream};
}

status check_token_count(const settings& s, uint64_t token_count) {
  if (token_count > s.max_input_token_count)
    return fail(MORI_E_INVALID, "token_count is {}, max_input_token_count is {}", token_count,
                s.max_input_token_count);
  return {};
}

uint64_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

result<dispatch_request> check_dispatch(const settings& s, const dispatch_facts& facts,
                                        const mori_ep_dispatch_args& args) {
  MORI_CHECK(check_token_count(s, args.token_count));
  MORI_TRY(const row_facts row, check_row(s, args.dtype, args.hidden_dim));
  MORI_TRY(const launch_request how, check_launch(s, facts.has_streams, launch_of(args)));
  if (args.count_local_experts != 0 && args.count_local_experts != 1)
    return fail(MORI_E_INVALID, "count_local_experts is {}, allowed are 0 and 1",
                args.count_local_experts);
  if (args.scales != nullptr && s.scale_dim == 0)
    return fail(MORI_E_INVALID, "scales are given, but the config's scale_dim is 0");
  const uint64_t T = args.token_count, K = s.expert_per_token_count;
  if (T != 0) {
    MORI_CHECK(check_array("input", args.input, T, 1));
    MORI_CHECK(check_array("indices", args.indices, T, alignof(int32_t)));
    if (args.weights != nullptr)
      MORI_CHECK(check_array("weights", args.weights, T, alignof(float)));
  }
  const struct {
    const char* name;
    const void* array;
    uint64_t bytes;
  } arrays[] = {{"input", args.input, T * row.row_bytes},
                {"weights", args.weights, T * K * sizeof(float)},
                {"scales", args.scales, T * s.scale_row_bytes()},
                {"indices", args.indices, T * K * sizeof(int32_t)}};
  for (const auto& each : arrays)
    if (each.array != nullptr && facts.receive_buffers.overlaps({address(each.array), each.bytes}))
      return fail(MORI_E_INVALID,
                  "{} overlaps the operator's receive buffers, which peers write to meanwhile",
                  each.name);
  return dispatch_request{T, row.hidden_dim, row.row_bytes, how};
}

namespace {

result<input_place> check_input(const settings& s, const combine_facts& facts,
                                const mori_ep_combine_args& args, uint64_t row_bytes) {
  int32_t mode = args.input_mode;
  if (mode < MORI_EP_INPUT_CONFIG || mode > MORI_EP_INPUT_REGISTERED)
    return fail(MORI_E_INVALID, "input_mode is {}, allowed are 0 .. 2", mode);
  if (mode == MORI_EP_INPUT_CONFIG)
    mode = s.registered_input != 0 ? MORI_EP_INPUT_REGISTERED : MORI_EP_INPUT_EXTERNAL;
  const bool external = mode == MORI_EP_INPUT_EXTERNAL;
  if (!external && !facts.has_registered)
    return fail(MORI_E_STATE,
                "input_mode is registered, but there is no registered buffer: set "
                "registered_input or call mori_ep_combine_buffer");
  // Where the host does not know how many rows there are, the caller's word is taken here, and
  // checked by the kernel.
  const uint64_t rows =
      facts.recv_count.value_or(std::min(args.input_row_count, s.recv_token_capacity_count));
  if ((external || args.weights != nullptr) && args.input_row_count < rows)
    return fail(MORI_E_INVALID, "input_row_count is {}, but {} tokens were received",
                args.input_row_count, rows);
  if (rows != 0 && args.weights != nullptr)
    MORI_CHECK(check_array("weights", args.weights, rows, alignof(float)));
  const extent weights{address(args.weights), rows * s.expert_per_token_count * sizeof(float)};
  if (args.weights != nullptr && facts.combine_weights.overlaps(weights))
    return fail(MORI_E_INVALID, "weights overlap the operator's own copy of them");
  if (!external) return input_place::in_registered;
  if (rows == 0) return input_place::copied;
  MORI_CHECK(check_array("input", args.input, rows, 1));
  if (address(args.input) == facts.tokens.begin) return input_place::in_tokens;
  if (facts.tokens.overlaps({address(args.input), rows * row_bytes}))
    return fail(MORI_E_INVALID,
                "input overlaps dispatch's output by a part: pass its start, or another buffer");
  if (facts.tokens.overlaps(weights))
    return fail(MORI_E_INVALID, "weights overlap dispatch's output, to which input is copied");
  return input_place::copied;
}

}  // namespace

result<combine_request> check_combine(const settings& s, const combine_facts& facts,
                                      const mori_ep_combine_args& args) {
  if (!facts.dispatched) return fail(MORI_E_STATE, "combine without a dispatch before it");
  MORI_CHECK(check_token_count(s, args.token_count));
  if (args.token_count != facts.token_count)
    return fail(MORI_E_INVALID, "token_count is {}, the dispatch had {}", args.token_count,
                facts.token_count);
  MORI_TRY(const row_facts row, check_row(s, args.dtype, args.hidden_dim));
  if (!facts_of_dtype(args.dtype)->combines)
    return fail(MORI_E_UNSUPPORTED, "combine of dtype {} ({}) is not in this build", args.dtype,
                facts_of_dtype(args.dtype)->name);
  MORI_TRY(const launch_request how, check_launch(s, facts.has_streams, launch_of(args)));
  if (args.token_count != 0)
    MORI_CHECK(check_array("indices", args.indices, args.token_count, alignof(int32_t)));
  MORI_TRY(const input_place place, check_input(s, facts, args, row.row_bytes));
  return combine_request{row.hidden_dim, row.row_bytes, how, place};
}

}  // namespace mori::ep_core
