// reference.hpp - dispatch and combine as one sequential program that sees all
// ranks at once. It says what the kernels must compute, bit by bit, on every
// back end; it is written for reading and used by tests alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mori::ep_reference {

using bytes = std::vector<std::byte>;

struct shape {
  uint64_t rank_count = 0;
  uint64_t expert_per_rank_count = 0;
  uint64_t expert_per_token_count = 0;
  uint64_t max_input_token_count = 0;  // for source positions
  uint64_t row_bytes = 0;              // of this call
  uint64_t scale_row_bytes = 0;        // 0: no scales
  bool has_weights = false;
};

// What one rank gives to dispatch. Ids outside 0 .. W * E - 1 are not routed.
struct source {
  uint64_t token_count = 0;
  bytes rows;                    // [T] rows
  std::vector<int32_t> indices;  // [T, K]
  std::vector<float> weights;    // [T, K] or empty
  bytes scales;                  // [T] rows of scales or empty
};

// What one rank has after dispatch, rows by (source rank, source token).
struct received {
  uint64_t row_count = 0;
  bytes rows;
  std::vector<int32_t> indices;
  std::vector<float> weights;
  bytes scales;
  std::vector<int32_t> positions;           // source rank * (W * M) + source token
  std::vector<int32_t> local_expert_count;  // [E] (row, slot) pairs of own experts
};

std::vector<received> dispatch(const shape& s, const std::vector<source>& ranks);

// What one rank's experts give back, in its receive order.
struct expert_output {
  bytes rows;
  std::vector<float> weights;  // [receive count, K] or empty
};

// What one rank has after combine.
struct combined {
  bytes rows;                  // [T] rows
  std::vector<float> weights;  // [T, K]
};

// One entry per rank. dtype is MORI_EP_F32 ...
std::vector<combined> combine(const shape& s, int32_t dtype, const std::vector<source>& ranks,
                              const std::vector<expert_output>& outputs);

}  // namespace mori::ep_reference
