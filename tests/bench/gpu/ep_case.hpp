// ep_case.hpp - what the ep benchmark sends and must get back: the shape, the
// routing of every rank (random, seeded, so each rank knows all), and the value of each
// element as a function of where its token came from. Values are small integers,
// exact in every format and in their sums, so checks are for equality. Read ep_kernels.hpp next.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace mori_bench {

constexpr int most_ranks = 8;
constexpr std::uint64_t expert_count = 256;
constexpr std::uint64_t top_k = 8;
constexpr std::uint64_t scale_dim = 56;  // float32: one for each 128 elements of 7168

struct ep_shape {
  int ranks;
  std::uint64_t tokens;  // of each rank
  std::uint64_t hidden;
  std::uint64_t experts_per_rank() const { return expert_count / static_cast<unsigned>(ranks); }
  std::uint64_t capacity() const { return static_cast<unsigned>(ranks) * tokens; }
};

// --- Values --------------------------------------------------------------------------------------

// 1, 2 or 3.
__host__ __device__ inline unsigned small_value(unsigned rank, unsigned token, unsigned column) {
  const unsigned mixed = (rank * 65'537u + token) * 2'654'435'761u;
  return 1 + ((mixed >> 16) + column + (column >> 6)) % 3;
}
// Exact for integers up to 256.
__host__ __device__ inline std::uint16_t bf16_of(unsigned integer) {
  union {
    float value;
    std::uint32_t bits;
  } same;
  same.value = static_cast<float>(integer);
  return static_cast<std::uint16_t>(same.bits >> 16);
}
// e4m3fn of 1, 2 and 3.
__host__ __device__ inline std::uint8_t f8_of(unsigned small) {
  return small == 1 ? 0x38 : small == 2 ? 0x40 : 0x44;
}
__host__ __device__ inline float weight_of(unsigned rank, unsigned token, unsigned slot) {
  return static_cast<float>(1 + (rank + token + slot) % 15) / 16;
}
__host__ __device__ inline float scale_of(unsigned rank, unsigned token, unsigned column) {
  return static_cast<float>(1 + (rank * 7 + token * 3 + column) % 31) / 8;
}
// What the experts of a rank multiply their rows by, where they do anything.
__host__ __device__ inline unsigned answer_factor(unsigned rank) { return rank + 1; }

// --- Routing -------------------------------------------------------------------------------------

// One row on its way: a rank's token, and where it lies at the destination when rows are in order
// of (source rank, token).
struct sent_row {
  std::uint32_t token;
  std::uint32_t rank;
  std::uint32_t row;
};

class ep_routing {
 public:
  explicit ep_routing(const ep_shape& of) : of_(of) {
    for (int rank = 0; rank < of.ranks; ++rank) draw(static_cast<unsigned>(rank));
    for (int rank = 0; rank < of.ranks; ++rank) place(static_cast<unsigned>(rank));
  }

  // [ranks, tokens, top_k]
  const std::vector<std::int32_t>& experts() const { return experts_; }
  // The rows that a rank sends, in order of (token, destination rank).
  const std::vector<sent_row>& sent(int rank) const { return sent_[static_cast<unsigned>(rank)]; }
  // Positions (source rank * capacity + token) of what a rank receives, ascending.
  const std::vector<std::int32_t>& received(int rank) const {
    return received_[static_cast<unsigned>(rank)];
  }
  std::uint64_t routed_rows() const {
    std::uint64_t sum = 0;
    for (const auto& rows : sent_) sum += rows.size();
    return sum;
  }
  // For each token of a rank: the sum of `part(destination rank)` over its destinations.
  template <class Part>
  std::vector<std::uint32_t> sums(int rank, Part part) const {
    std::vector<std::uint32_t> of_token(of_.tokens, 0);
    for (const sent_row& row : sent(rank)) of_token[row.token] += part(row.rank);
    return of_token;
  }

 private:
  // Distinct experts for each token.
  void draw(unsigned rank) {
    std::mt19937_64 random(2024 + rank);
    std::vector<std::int32_t> all(expert_count);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
    for (std::uint64_t token = 0; token < of_.tokens; ++token)
      for (std::size_t slot = 0; slot < top_k; ++slot) {
        std::swap(all[slot], all[slot + random() % (expert_count - slot)]);
        experts_.push_back(all[slot]);
      }
  }

  void place(unsigned rank) {
    const std::int32_t* slots = &experts_[rank * of_.tokens * top_k];
    for (std::uint64_t token = 0; token < of_.tokens; ++token, slots += top_k) {
      unsigned destinations = 0;
      for (std::size_t slot = 0; slot < top_k; ++slot)
        destinations |= 1u << (static_cast<std::uint64_t>(slots[slot]) / of_.experts_per_rank());
      for (unsigned to = 0; to < static_cast<unsigned>(of_.ranks); ++to) {
        if ((destinations >> to & 1) == 0) continue;
        const auto row = static_cast<std::uint32_t>(received_[to].size());
        sent_[rank].push_back({static_cast<std::uint32_t>(token), to, row});
        received_[to].push_back(static_cast<std::int32_t>(rank * of_.capacity() + token));
      }
    }
  }

  const ep_shape of_;
  std::vector<std::int32_t> experts_;
  std::vector<sent_row> sent_[most_ranks];
  std::vector<std::int32_t> received_[most_ranks];
};

}  // namespace mori_bench
