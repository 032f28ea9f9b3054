// buffers.hpp - where everything of an operator lies: one block of the
// symmetric heap, the same offsets on every rank, and one block of private
// memory. The formula in README.md and mori_ep_memory_query() is the sum of
// these regions; create allocates exactly that. Pure arithmetic: no memory is
// touched here. Read operator/operator.hpp next.
#pragma once

#include "layout/settings.hpp"

namespace mori::ep_core {

inline constexpr uint64_t region_alignment = 256;
// Words that one rank writes and another polls share no line with others.
inline constexpr uint64_t line_bytes = 64;
// Most blocks that a launch may have; each needs a row of counters.
inline constexpr uint64_t grid_limit = 256;

// Offsets from the start of the symmetric block. All sizes are multiples of
// region_alignment, so the regions' alignment is that of the block.
struct symmetric_layout {
  uint64_t counts;           // [2 parities][W sources][count_row_words] u64
  uint64_t flags;            // [W sources][8] u64, one line each
  uint64_t tokens;           // [R] rows: dispatch's output, combine's input
  uint64_t indices;          // [R, K] i32
  uint64_t weights;          // [R, K] f32
  uint64_t scales;           // [R] rows of scales
  uint64_t source_tokens;    // [R] i32, position at the source
  uint64_t combine_weights;  // [R, K] f32
  uint64_t registered;       // [R] rows, present if registered_input
  uint64_t total_bytes;      // without the registered buffer of a later call
  uint64_t sync_bytes;       // counts and flags: zeroed at create
  uint64_t count_row_words;  // fingerprint, W counts, padded to lines
  uint64_t token_bytes;      // size of the tokens region, and of registered
};

// Offsets from the start of the private block.
struct private_layout {
  uint64_t plan;                // one line, see kernels/plan.hpp
  uint64_t send_begin;          // [W] u32: first row at each destination
  uint64_t source_begin;        // [W + 1] u32: first own row of each source
  uint64_t block_counts;        // [grid_limit, W] u32
  uint64_t block_reports;       // [grid_limit] of block_report, see kernels/plan.hpp
  uint64_t routes;              // [M, fan_out] of {i32 rank, u32 row}
  uint64_t local_expert_count;  // [E] i32
  uint64_t out;                 // [M] rows
  uint64_t out_weights;         // [M, K] f32
  uint64_t total_bytes;
};

inline constexpr uint64_t plan_bytes = 256;
inline constexpr uint64_t route_bytes = 8;
inline constexpr uint64_t block_report_bytes = 16;

symmetric_layout lay_out_symmetric(const settings& s);
private_layout lay_out_private(const settings& s);

}  // namespace mori::ep_core
