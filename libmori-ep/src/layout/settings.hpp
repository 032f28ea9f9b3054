// settings.hpp - a config that has been checked: defaults filled in, every
// product of its fields known to fit. The rest of the library never looks at a
// mori_ep_config again. Limits and their reasons are constants here, so that
// messages, README and tests say the same. Read buffers.hpp next.
#pragma once

#include <mori/ep.h>
#include <mori/base/result.hpp>

#include <cstdint>

namespace mori::ep_core {

inline constexpr uint64_t rank_limit = 1024;
inline constexpr uint64_t row_bytes_limit = uint64_t{1} << 20;
// Rows are copied in vectors of this size.
inline constexpr uint64_t row_granule_bytes = 16;
inline constexpr uint64_t elem_bytes_limit = 16;
inline constexpr uint64_t top_k_limit = 32;
// Token counts, expert ids and receive counts are int32 in the ABI.
inline constexpr uint64_t int32_limit = INT32_MAX;
inline constexpr uint64_t block_limit = 65'535;
inline constexpr uint64_t warp_limit = 32;
inline constexpr uint64_t queue_pair_limit = 1024;

// All fields are uint64_t, so that ranks can compare them byte by byte and
// say which one differs (difference()).
struct settings {
  uint64_t rank_count;  // W
  uint64_t kernel_type;
  uint64_t quant_type;
  uint64_t hidden_dim;  // largest H
  uint64_t max_token_elem_bytes;
  uint64_t scale_dim;                  // S
  uint64_t scale_elem_bytes;           // 0 if S is 0
  uint64_t max_input_token_count;      // M
  uint64_t expert_per_rank_count;      // E
  uint64_t expert_per_token_count;     // K
  uint64_t recv_token_capacity_count;  // R
  uint64_t registered_input;
  uint64_t drop_invalid_experts;
  uint64_t gpu_per_node_count;
  uint64_t block_count;
  uint64_t warp_per_block_count;
  uint64_t rdma_block_count;
  uint64_t queue_pair_per_pe_count;
  uint64_t deterministic;
  uint64_t timeout_ns;  // 0: the context's

  uint64_t expert_count() const { return rank_count * expert_per_rank_count; }
  uint64_t row_bytes() const { return hidden_dim * max_token_elem_bytes; }
  uint64_t scale_row_bytes() const { return scale_dim * scale_elem_bytes; }
  // Most ranks that one token can go to.
  uint64_t fan_out() const {
    return expert_per_token_count < rank_count ? expert_per_token_count : rank_count;
  }
};

// Fails with MORI_E_INVALID, or MORI_E_UNSUPPORTED for kernel types and
// quantisations that exist but not in this build.
base::result<settings> check_config(const mori_ep_config& config, int32_t pe_count);

// Fails with MORI_E_MISMATCH, naming the first field that differs.
base::status compare_settings(const settings& own, const settings& other, uint64_t other_rank);

}  // namespace mori::ep_core
