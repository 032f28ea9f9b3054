// ep_kernels.hpp - kernels that make what the ep benchmark sends, stand for the
// experts, and count elements that are not what they must be. None of them is
// timed. Read ep_naive.hpp for the kernels that ours are compared with.
#pragma once

#include "device.hpp"
#include "ep_case.hpp"

namespace mori_bench {

using wrong_count = unsigned long long;

struct ep_inputs {
  std::uint16_t* bf16;  // [tokens, hidden]
  std::uint8_t* f8;     // [tokens, hidden]
  float* scales;        // [tokens, scale_dim]
  float* weights;       // [tokens, top_k]
};

// A block for each token.
static __global__ void fill_inputs(ep_inputs to, unsigned rank, ep_shape of) {
  for (unsigned token = blockIdx.x; token < of.tokens; token += gridDim.x) {
    for (unsigned column = threadIdx.x; column < of.hidden; column += blockDim.x) {
      const unsigned value = small_value(rank, token, column);
      to.bf16[token * of.hidden + column] = bf16_of(value);
      to.f8[token * of.hidden + column] = f8_of(value);
    }
    for (unsigned i = threadIdx.x; i < scale_dim; i += blockDim.x)
      to.scales[token * scale_dim + i] = scale_of(rank, token, i);
    if (threadIdx.x < top_k)
      to.weights[token * top_k + threadIdx.x] = weight_of(rank, token, threadIdx.x);
  }
}

// The experts: bf16 rows times a small integer; `to` may be `from`.
static __global__ void answer(std::uint16_t* to, const std::uint16_t* from, std::uint64_t count,
                              unsigned factor) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += step) {
    const float value = __uint_as_float(static_cast<unsigned>(from[i]) << 16);
    to[i] = static_cast<std::uint16_t>(__float_as_uint(value * static_cast<float>(factor)) >> 16);
  }
}

// --- Checks --------------------------------------------------------------------------------------

// Rows of a receiver. What is null is not looked at; `experts` are all ranks'.
struct ep_received {
  const std::uint16_t* bf16;
  const std::uint8_t* f8;
  const float* scales;
  const float* weights;
  const std::int32_t* indices;
  const std::int32_t* positions;  // source rank * capacity + token
  std::uint64_t count;
};

// A block for each row.
static __global__ void check_received(ep_received got, const std::int32_t* experts, ep_shape of,
                                      wrong_count* wrong) {
  const auto capacity = static_cast<unsigned>(of.ranks) * of.tokens;
  for (std::uint64_t row = blockIdx.x; row < got.count; row += gridDim.x) {
    const auto rank = static_cast<unsigned>(got.positions[row] / capacity);
    const auto token = static_cast<unsigned>(got.positions[row] % capacity);
    bool good = true;
    for (unsigned column = threadIdx.x; column < of.hidden; column += blockDim.x) {
      const unsigned value = small_value(rank, token, column);
      if (got.bf16 != nullptr) good &= got.bf16[row * of.hidden + column] == bf16_of(value);
      if (got.f8 != nullptr) good &= got.f8[row * of.hidden + column] == f8_of(value);
    }
    for (unsigned i = threadIdx.x; got.scales != nullptr && i < scale_dim; i += blockDim.x)
      good &= got.scales[row * scale_dim + i] == scale_of(rank, token, i);
    if (threadIdx.x < top_k && got.weights != nullptr)
      good &= got.weights[row * top_k + threadIdx.x] == weight_of(rank, token, threadIdx.x);
    if (threadIdx.x < top_k && got.indices != nullptr)
      good &= got.indices[row * top_k + threadIdx.x] ==
              experts[(rank * of.tokens + token) * top_k + threadIdx.x];
    if (!good) atomicAdd(wrong, wrong_count{1});
  }
}

struct ep_combined {
  const std::uint16_t* rows;          // [tokens, hidden]
  const float* weights;               // [tokens, top_k] or null
  const std::uint32_t* factors;       // [tokens]: what each element was multiplied by, in sum
  const std::uint32_t* destinations;  // [tokens]: how often the weights were added
};

// A block for each token of rank `rank`.
static __global__ void check_combined(ep_combined got, unsigned rank, ep_shape of,
                                      wrong_count* wrong) {
  for (unsigned token = blockIdx.x; token < of.tokens; token += gridDim.x) {
    bool good = true;
    for (unsigned column = threadIdx.x; column < of.hidden; column += blockDim.x)
      good &= got.rows[token * of.hidden + column] ==
              bf16_of(small_value(rank, token, column) * got.factors[token]);
    if (threadIdx.x < top_k && got.weights != nullptr)
      good &= got.weights[token * top_k + threadIdx.x] ==
              weight_of(rank, token, threadIdx.x) * static_cast<float>(got.destinations[token]);
    if (!good) atomicAdd(wrong, wrong_count{1});
  }
}

}  // namespace mori_bench
