// settings.cpp - see settings.hpp.
#include "layout/settings.hpp"

#include <algorithm>

namespace mori::ep_core {
namespace {

using base::fail;
using base::result;
using base::status;

struct range {
  uint64_t minimum, maximum;
};

status check_range(const char* name, uint64_t value, range allowed) {
  if (value < allowed.minimum || value > allowed.maximum)
    return fail(MORI_E_INVALID, "{} is {}, allowed are {} .. {}", name, value, allowed.minimum,
                allowed.maximum);
  return {};
}

// Signed fields, where 0 selects `instead`.
result<uint64_t> check_signed(const char* name, int32_t value, uint64_t instead, range allowed) {
  if (value == 0) return instead;
  if (value < 0 || static_cast<uint64_t>(value) < allowed.minimum ||
      static_cast<uint64_t>(value) > allowed.maximum)
    return fail(MORI_E_INVALID, "{} is {}, allowed are {} .. {}, or 0 for the default {}", name,
                value, allowed.minimum, allowed.maximum, instead);
  return static_cast<uint64_t>(value);
}

result<uint64_t> check_flag(const char* name, int32_t value) {
  if (value != 0 && value != 1)
    return fail(MORI_E_INVALID, "{} is {}, allowed are 0 and 1", name, value);
  return static_cast<uint64_t>(value);
}

status check_kinds(const mori_ep_config& config, settings& to) {
  switch (config.kernel_type) {
    case MORI_EP_KERNEL_INTRA_NODE:
    // Same contract; the host has no second way worth choosing for small batches.
    case MORI_EP_KERNEL_INTRA_NODE_LL: break;
    case MORI_EP_KERNEL_INTER_NODE:
    case MORI_EP_KERNEL_INTER_NODE_V1:
    case MORI_EP_KERNEL_INTER_NODE_V1LL:
    case MORI_EP_KERNEL_ASYNC_LL:
      return fail(MORI_E_UNSUPPORTED,
                  "kernel_type {} is not in this build; 0 (IntraNode) and 5 (IntraNodeLL) are",
                  config.kernel_type);
    default:
      return fail(MORI_E_INVALID, "kernel_type is {}, allowed are 0 .. 5", config.kernel_type);
  }
  if (config.quant_type < MORI_EP_QUANT_NONE || config.quant_type > MORI_EP_QUANT_FP4_BLOCKWISE)
    return fail(MORI_E_INVALID, "quant_type is {}, allowed are 0 .. 3", config.quant_type);
  if (config.quant_type != MORI_EP_QUANT_NONE)
    return fail(MORI_E_UNSUPPORTED, "quant_type {} is not in this build; 0 (none) is",
                config.quant_type);
  to.kernel_type = static_cast<uint64_t>(config.kernel_type);
  to.quant_type = static_cast<uint64_t>(config.quant_type);
  return {};
}

status check_rows(const mori_ep_config& config, settings& to) {
  to.max_token_elem_bytes = config.max_token_elem_bytes == 0 ? 4 : config.max_token_elem_bytes;
  MORI_CHECK(check_range("max_token_elem_bytes", to.max_token_elem_bytes, {1, elem_bytes_limit}));
  MORI_CHECK(check_range("hidden_dim", config.hidden_dim, {1, row_bytes_limit}));
  to.hidden_dim = config.hidden_dim;
  if (to.row_bytes() % row_granule_bytes != 0 || to.row_bytes() > row_bytes_limit)
    return fail(MORI_E_INVALID,
                "hidden_dim {} * max_token_elem_bytes {} is {} bytes: a row must be a multiple of "
                "{} and at most {}",
                to.hidden_dim, to.max_token_elem_bytes, to.row_bytes(), row_granule_bytes,
                row_bytes_limit);
  if (config.scale_dim == 0) return {};
  MORI_CHECK(check_range("scale_dim", config.scale_dim, {0, row_bytes_limit}));
  MORI_CHECK(check_range("scale_elem_bytes", config.scale_elem_bytes, {1, elem_bytes_limit}));
  to.scale_dim = config.scale_dim;
  to.scale_elem_bytes = config.scale_elem_bytes;
  if (to.scale_row_bytes() > row_bytes_limit)
    return fail(MORI_E_INVALID, "scale_dim {} * scale_elem_bytes {} is {} bytes, the limit is {}",
                to.scale_dim, to.scale_elem_bytes, to.scale_row_bytes(), row_bytes_limit);
  return {};
}

status check_counts(const mori_ep_config& config, settings& to) {
  MORI_CHECK(check_range("max_input_token_count", config.max_input_token_count, {1, int32_limit}));
  MORI_CHECK(
      check_range("expert_per_token_count", config.expert_per_token_count, {1, top_k_limit}));
  // Ids are int32, so the last one must be.
  MORI_CHECK(check_range("expert_per_rank_count", config.expert_per_rank_count,
                         {1, int32_limit / to.rank_count}));
  to.max_input_token_count = config.max_input_token_count;
  to.expert_per_token_count = config.expert_per_token_count;
  to.expert_per_rank_count = config.expert_per_rank_count;

  const uint64_t cap = config.max_total_recv_token_count;
  const uint64_t per_rank = cap == 0
                                ? to.max_input_token_count
                                : std::min(to.max_input_token_count, (cap - 1) / to.rank_count + 1);
  to.recv_token_capacity_count = to.rank_count * per_rank;
  if (to.recv_token_capacity_count > int32_limit)
    return fail(MORI_E_INVALID,
                "{} ranks * {} tokens each is a capacity of {} received tokens, the limit is {}",
                to.rank_count, per_rank, to.recv_token_capacity_count, int32_limit);
  return {};
}

// The largest divisor of the ranks that is at most 8: min(8, W) wherever that divides.
uint64_t default_node_size(uint64_t rank_count) {
  uint64_t size = std::min<uint64_t>(8, rank_count);
  while (rank_count % size != 0) --size;
  return size;
}

status check_launch(const mori_ep_config& config, settings& to) {
  MORI_TRY(to.gpu_per_node_count,
           check_signed("gpu_per_node_count", config.gpu_per_node_count,
                        default_node_size(to.rank_count), {1, to.rank_count}));
  if (to.rank_count % to.gpu_per_node_count != 0)
    return fail(MORI_E_INVALID, "gpu_per_node_count {} does not divide {} ranks",
                to.gpu_per_node_count, to.rank_count);
  MORI_TRY(to.block_count, check_signed("block_count", config.block_count, 80, {1, block_limit}));
  MORI_TRY(to.warp_per_block_count,
           check_signed("warp_per_block_count", config.warp_per_block_count, 8, {1, warp_limit}));
  MORI_TRY(to.rdma_block_count,
           check_signed("rdma_block_count", config.rdma_block_count, 0, {1, to.block_count - 1}));
  MORI_TRY(to.queue_pair_per_pe_count,
           check_signed("queue_pair_per_pe_count", config.queue_pair_per_pe_count, 1,
                        {1, queue_pair_limit}));
  return {};
}

struct named_field {
  const char* name;
  uint64_t settings::* field;
};

constexpr named_field fields[] = {
    {"number of ranks", &settings::rank_count},
    {"kernel_type", &settings::kernel_type},
    {"quant_type", &settings::quant_type},
    {"hidden_dim", &settings::hidden_dim},
    {"max_token_elem_bytes", &settings::max_token_elem_bytes},
    {"scale_dim", &settings::scale_dim},
    {"scale_elem_bytes", &settings::scale_elem_bytes},
    {"max_input_token_count", &settings::max_input_token_count},
    {"expert_per_rank_count", &settings::expert_per_rank_count},
    {"expert_per_token_count", &settings::expert_per_token_count},
    {"capacity in received tokens", &settings::recv_token_capacity_count},
    {"registered_input", &settings::registered_input},
    {"drop_invalid_experts", &settings::drop_invalid_experts},
    {"gpu_per_node_count", &settings::gpu_per_node_count},
    {"block_count", &settings::block_count},
    {"warp_per_block_count", &settings::warp_per_block_count},
    {"rdma_block_count", &settings::rdma_block_count},
    {"queue_pair_per_pe_count", &settings::queue_pair_per_pe_count},
    {"deterministic", &settings::deterministic},
    {"timeout_ns", &settings::timeout_ns},
};
static_assert(sizeof(fields) / sizeof(fields[0]) * sizeof(uint64_t) == sizeof(settings),
              "every field of settings is compared");

}  // namespace

result<settings> check_config(const mori_ep_config& config, int32_t pe_count) {
  settings made{};
  if (pe_count < 1 || static_cast<uint64_t>(pe_count) > rank_limit)
    return fail(MORI_E_INVALID, "{} ranks, allowed are 1 .. {}", pe_count, rank_limit);
  made.rank_count = static_cast<uint64_t>(pe_count);
  MORI_CHECK(check_kinds(config, made));
  MORI_CHECK(check_rows(config, made));
  MORI_CHECK(check_counts(config, made));
  MORI_CHECK(check_launch(config, made));
  MORI_TRY(made.registered_input, check_flag("registered_input", config.registered_input));
  MORI_TRY(made.drop_invalid_experts,
           check_flag("drop_invalid_experts", config.drop_invalid_experts));
  MORI_TRY(made.deterministic, check_flag("deterministic", config.deterministic));
  made.timeout_ns = config.timeout_ns;
  return made;
}

status compare_settings(const settings& own, const settings& other, uint64_t other_rank) {
  for (const named_field& each : fields)
    if (own.*each.field != other.*each.field)
      return fail(MORI_E_MISMATCH, "configs differ: {} is {} here and {} on rank {}", each.name,
                  own.*each.field, other.*each.field, other_rank);
  return {};
}

}  // namespace mori::ep_core
