// ep_naive.hpp - the plainest dispatch and combine that are still right, as a
// yardstick: where every row goes is known beforehand, a warp copies or adds one
// row, and a word for each peer says that all rows are there. No routing, no
// counts, no checks, and no indices, weights or scales travel. ep_gpu.cu times them.
#pragma once

#include "device.hpp"
#include "ep_case.hpp"

namespace mori_bench {

// Buffers and words of all ranks, as this rank reaches them. Words: [ranks] of 64 bytes each.
struct naive_peers {
  unsigned char* rows[most_ranks];
  unsigned char* words[most_ranks];
  int rank;
  int ranks;
};

struct naive_work {
  naive_peers peers;
  const sent_row* sent;        // [sent_count], in order of (token, rank)
  const std::uint32_t* first;  // [tokens + 1]: of a token, in `sent`
  std::uint64_t sent_count;
  std::uint64_t tokens;
  std::uint64_t row_bytes;  // a multiple of 16
  unsigned* arrived;        // blocks that are done, zero between launches
  std::uint64_t epoch;      // of this launch; grows by 2
};

constexpr unsigned naive_lanes = 512;  // of a block
constexpr std::uint64_t naive_patience_ns = 10'000'000'000;

__device__ inline std::uint64_t* naive_word(const naive_peers& peers, int of, int writer) {
  return reinterpret_cast<std::uint64_t*>(peers.words[of] + 64 * writer);
}

// The first lanes of a block: tell every peer, wait for every peer. A wait that is given up leaves
// rows that the check finds wrong.
__device__ inline void naive_tell(const naive_peers& peers, std::uint64_t epoch) {
  const int to = static_cast<int>(threadIdx.x);
  if (to < peers.ranks)
    asm volatile("st.release.sys.b64 [%0], %1;" ::"l"(naive_word(peers, to, peers.rank)), "l"(epoch)
                 : "memory");
}
__device__ inline void naive_wait(const naive_peers& peers, std::uint64_t epoch) {
  const int from = static_cast<int>(threadIdx.x);
  if (from < peers.ranks) {
    const std::uint64_t* word = naive_word(peers, peers.rank, from);
    const std::uint64_t start_ns = gpu_clock_ns();
    std::uint64_t seen = 0;
    do {
      asm volatile("ld.acquire.sys.b64 %0, [%1];" : "=l"(seen) : "l"(word) : "memory");
    } while (seen < epoch && gpu_clock_ns() - start_ns < naive_patience_ns);
  }
  __syncthreads();
}

// Whether all other blocks are done: true in one block only.
__device__ inline bool naive_is_last(unsigned* arrived) {
  __shared__ bool last;
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(arrived, 1u) + 1 == gridDim.x;
    if (last) *arrived = 0;
    __threadfence_system();
  }
  __syncthreads();
  return last;
}

struct warp_place {
  unsigned lane = threadIdx.x % 32;
  std::uint64_t index = (std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  std::uint64_t count = std::uint64_t{gridDim.x} * blockDim.x / 32;
};

// Four chunks of 16 bytes in flight.
__device__ inline void naive_copy_row(uint4* to, const uint4* from, unsigned chunks,
                                      unsigned lane) {
  unsigned i = lane;
  for (; i + 96 < chunks; i += 128) {
    const uint4 a = from[i], b = from[i + 32], c = from[i + 64], d = from[i + 96];
    to[i] = a;
    to[i + 32] = b;
    to[i + 64] = c;
    to[i + 96] = d;
  }
  for (; i < chunks; i += 32) to[i] = from[i];
}

static __global__ void __launch_bounds__(naive_lanes, 3)
    naive_dispatch(const __grid_constant__ naive_work work, const unsigned char* input) {
  const warp_place warp;
  const auto chunks = static_cast<unsigned>(work.row_bytes / 16);
  for (std::uint64_t i = warp.index; i < work.sent_count; i += warp.count) {
    const sent_row row = work.sent[i];
    naive_copy_row(reinterpret_cast<uint4*>(work.peers.rows[row.rank] + row.row * work.row_bytes),
                   reinterpret_cast<const uint4*>(input + row.token * work.row_bytes), chunks,
                   warp.lane);
  }
  if (!naive_is_last(work.arrived)) return;
  naive_tell(work.peers, work.epoch);
  naive_wait(work.peers, work.epoch);
}

__device__ inline void naive_add(float (&sum)[8], const uint4& chunk) {
  const unsigned words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum[2 * i] += __uint_as_float(words[i] << 16);
    sum[2 * i + 1] += __uint_as_float(words[i] & 0xffff'0000u);
  }
}

// bf16 of a float, to nearest even; no NaN comes here.
__device__ inline unsigned naive_round(float value) {
  const unsigned bits = __float_as_uint(value);
  return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}

__device__ inline uint4 naive_pack(const float (&sum)[8]) {
  unsigned words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    words[i] = naive_round(sum[2 * i]) | naive_round(sum[2 * i + 1]) << 16;
  return {words[0], words[1], words[2], words[3]};
}

// One token: the rows at `from` (null beyond the last), all of them in flight at once.
__device__ inline void naive_add_rows(uint4* out, const uint4* const (&from)[most_ranks],
                                      unsigned chunks, unsigned lane) {
  for (unsigned i = lane; i < chunks; i += 32) {
    uint4 parts[most_ranks] = {};
#pragma unroll
    for (int r = 0; r < most_ranks; ++r)
      if (from[r] != nullptr) parts[r] = from[r][i];
    float sum[8] = {};
#pragma unroll
    for (int r = 0; r < most_ranks; ++r) naive_add(sum, parts[r]);
    out[i] = naive_pack(sum);
  }
}

// bf16 rows. Reads the peers' buffers when all are ready, and ends when all have read.
static __global__ void __launch_bounds__(naive_lanes, 2)
    naive_combine(const __grid_constant__ naive_work work, unsigned char* out) {
  if (blockIdx.x == 0) naive_tell(work.peers, work.epoch);
  naive_wait(work.peers, work.epoch);
  const warp_place warp;
  const auto chunks = static_cast<unsigned>(work.row_bytes / 16);
  for (std::uint64_t token = warp.index; token < work.tokens; token += warp.count) {
    const std::uint32_t begin = work.first[token], end = work.first[token + 1];
    const uint4* from[most_ranks];
#pragma unroll
    for (std::uint32_t r = 0; r < most_ranks; ++r) {
      from[r] = nullptr;
      if (begin + r >= end) continue;
      const sent_row row = work.sent[begin + r];
      from[r] =
          reinterpret_cast<const uint4*>(work.peers.rows[row.rank] + row.row * work.row_bytes);
    }
    naive_add_rows(reinterpret_cast<uint4*>(out + token * work.row_bytes), from, chunks, warp.lane);
  }
  if (!naive_is_last(work.arrived)) return;
  naive_tell(work.peers, work.epoch + 1);
  naive_wait(work.peers, work.epoch + 1);
}

}  // namespace mori_bench
