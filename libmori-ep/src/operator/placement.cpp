// placement.cpp - see placement.hpp.
#include "operator/placement.hpp"

namespace mori::ep_core {

places place(const placement& of, const addresses& here, const mori_shmem_device_state_v1& state) {
  const settings& config = of.config;
  const symmetric_layout& symmetric = of.symmetric;
  const private_layout& own = of.own;
  const uint64_t s = here.symmetric, p = here.own;
  places at{};
  at.state = state;
  at.counts = s + symmetric.counts;
  at.flags = s + symmetric.flags;
  at.tokens = s + symmetric.tokens;
  at.indices = s + symmetric.indices;
  at.weights = s + symmetric.weights;
  at.scales = s + symmetric.scales;
  at.source_tokens = s + symmetric.source_tokens;
  at.combine_weights = s + symmetric.combine_weights;
  at.registered = config.registered_input != 0 ? s + symmetric.registered : 0;
  at.plan = p + own.plan;
  at.send_begin = p + own.send_begin;
  at.source_begin = p + own.source_begin;
  at.block_counts = p + own.block_counts;
  at.block_reports = p + own.block_reports;
  at.routes = p + own.routes;
  at.local_expert_count = p + own.local_expert_count;
  at.out = p + own.out;
  at.out_weights = p + own.out_weights;
  at.mishap = here.mishap;
  at.count_row_words = symmetric.count_row_words;
  at.recv_capacity = config.recv_token_capacity_count;
  at.wait_budget_ns = config.timeout_ns != 0 ? config.timeout_ns : state.wait_budget_ns;
  at.rank = here.rank;
  at.rank_count = static_cast<u32>(config.rank_count);
  at.experts_per_rank = static_cast<u32>(config.expert_per_rank_count);
  at.by_experts_per_rank = divisor_of(at.experts_per_rank);
  at.top_k = static_cast<u32>(config.expert_per_token_count);
  at.fan_out = static_cast<u32>(config.fan_out());
  at.drop_invalid_experts = static_cast<u32>(config.drop_invalid_experts);
  return at;
}

}  // namespace mori::ep_core
