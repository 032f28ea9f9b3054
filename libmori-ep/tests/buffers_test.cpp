// Tests of the buffer layout: the documented formula, that regions neither
// overlap nor start unaligned, and that the largest configs do not overflow.
#include "layout/buffers.hpp"
#include "layout/dtype.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace core = mori::ep_core;

namespace {

uint64_t up(uint64_t value) { return (value + 255) / 256 * 256; }

// The formula of README.md, once more by hand.
uint64_t documented_symmetric(const mori_ep_config& c, uint64_t W, uint64_t R) {
  const uint64_t row = c.hidden_dim * (c.max_token_elem_bytes == 0 ? 4 : c.max_token_elem_bytes);
  const uint64_t K = c.expert_per_token_count;
  const uint64_t count_words = (W + 1 + 7) / 8 * 8;
  return up(2 * W * count_words * 8) + up(64 * W) + up(R * row) + 3 * up(4 * R * K) +
         up(R * c.scale_dim * c.scale_elem_bytes) + up(4 * R) +
         (c.registered_input == 1 ? up(R * row) : 0);
}

uint64_t documented_private(const mori_ep_config& c, uint64_t W) {
  const uint64_t row = c.hidden_dim * (c.max_token_elem_bytes == 0 ? 4 : c.max_token_elem_bytes);
  const uint64_t M = c.max_input_token_count, K = c.expert_per_token_count;
  const uint64_t fan_out = K < W ? K : W;
  return 256 + up(4 * W) + up(4 * (W + 1)) + up(256 * 4 * W) + 256 * 16 + up(8 * M * fan_out) +
         up(4 * c.expert_per_rank_count) + up(M * row) + up(4 * M * K);
}

mori_ep_config config_of(uint64_t hidden, uint64_t tokens, uint64_t experts, uint64_t top_k) {
  mori_ep_config c{};
  c.struct_size = sizeof c;
  c.hidden_dim = hidden;
  c.max_input_token_count = tokens;
  c.expert_per_rank_count = experts;
  c.expert_per_token_count = top_k;
  return c;
}

}  // namespace

TEST_CASE("sizes follow the documented formula") {
  std::vector<mori_ep_config> configs = {config_of(4, 1, 1, 1), config_of(7168, 512, 32, 8),
                                         config_of(68, 33, 5, 32)};
  configs[1].registered_input = 1;
  configs[2].scale_dim = 7;
  configs[2].scale_elem_bytes = 1;
  configs[2].max_total_recv_token_count = 50;
  for (const mori_ep_config& c : configs)
    for (const int32_t ranks : {1, 2, 7, 8, 9, 64, 1024}) {
      const auto s = core::check_config(c, ranks);
      REQUIRE(s);
      const auto W = static_cast<uint64_t>(ranks);
      CHECK(core::lay_out_symmetric(*s).total_bytes ==
            documented_symmetric(c, W, s->recv_token_capacity_count));
      CHECK(core::lay_out_private(*s).total_bytes == documented_private(c, W));
    }
}

TEST_CASE("regions are aligned, in order and apart") {
  mori_ep_config c = config_of(68, 33, 5, 3);
  c.scale_dim = 7;
  c.scale_elem_bytes = 2;
  c.registered_input = 1;
  const auto s = core::check_config(c, 5);
  REQUIRE(s);
  const core::symmetric_layout at = core::lay_out_symmetric(*s);
  const uint64_t R = s->recv_token_capacity_count, K = 3;
  struct region {
    uint64_t begin, bytes;
  };
  const region regions[] = {{at.counts, 2 * 5 * at.count_row_words * 8},
                            {at.flags, 5 * 64},
                            {at.tokens, R * 68 * 4},
                            {at.indices, R * K * 4},
                            {at.weights, R * K * 4},
                            {at.scales, R * 14},
                            {at.source_tokens, R * 4},
                            {at.combine_weights, R * K * 4},
                            {at.registered, R * 68 * 4},
                            {at.total_bytes, 0}};
  CHECK(at.counts == 0);
  for (size_t i = 0; i + 1 < std::size(regions); ++i) {
    CHECK(regions[i].begin % 256 == 0);
    CHECK(regions[i].begin + regions[i].bytes <= regions[i + 1].begin);
  }
  CHECK(at.sync_bytes == at.tokens);
  CHECK(at.count_row_words == 8);
  CHECK(core::lay_out_symmetric(*core::check_config(c, 8)).count_row_words == 16);
}

TEST_CASE("the largest configs fit in 64 bits") {
  mori_ep_config c = config_of(1 << 20, INT32_MAX, INT32_MAX, 32);
  c.max_token_elem_bytes = 1;
  c.registered_input = 1;
  c.scale_dim = 1 << 20;
  c.scale_elem_bytes = 1;
  const auto s = core::check_config(c, 1);
  REQUIRE(s);
  const uint64_t R = INT32_MAX;
  CHECK(core::lay_out_symmetric(*s).total_bytes == documented_symmetric(c, 1, R));
  CHECK(core::lay_out_symmetric(*s).total_bytes > 3 * R * (1 << 20));
  CHECK(core::lay_out_private(*s).total_bytes > R * (1 << 20));
}

TEST_CASE("dtypes") {
  CHECK(core::facts_of_dtype(0) == nullptr);
  CHECK(core::facts_of_dtype(8) == nullptr);
  CHECK(core::facts_of_dtype(-1) == nullptr);
  const uint64_t widths[] = {4, 2, 2, 1, 1, 1, 1};
  for (int32_t dtype = MORI_EP_F32; dtype <= MORI_EP_F4_E2M1X2; ++dtype) {
    REQUIRE(core::facts_of_dtype(dtype) != nullptr);
    CHECK(core::facts_of_dtype(dtype)->elem_bytes == widths[dtype - 1]);
    CHECK(core::facts_of_dtype(dtype)->combines == (dtype <= MORI_EP_F8_E4M3FNUZ));
  }
}
