// Tests of the reference itself, on data small enough to check by hand: two
// ranks with two experts each, rows of one f32 element where that is legal.
#include "kernels/reference.hpp"
#include "kernels/number_format.hpp"

#include <doctest/doctest.h>
#include <mori/ep.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace ref = mori::ep_reference;

namespace {

ref::bytes floats(std::initializer_list<float> values) {
  ref::bytes out(values.size() * sizeof(float));
  std::memcpy(out.data(), std::data(values), out.size());
  return out;
}

// W = 2, E = 2, K = 2: experts 0 and 1 on rank 0, 2 and 3 on rank 1.
ref::shape two_ranks() {
  ref::shape s;
  s.rank_count = 2;
  s.expert_per_rank_count = 2;
  s.expert_per_token_count = 2;
  s.max_input_token_count = 3;
  s.row_bytes = sizeof(float);
  s.has_weights = true;
  return s;
}

std::vector<ref::source> example() {
  std::vector<ref::source> ranks(2);
  ranks[0].token_count = 3;
  ranks[0].rows = floats({10, 11, 12});
  ranks[0].indices = {0, 1, /**/ 3, 0, /**/ -1, -1};
  ranks[0].weights = {.5f, .25f, /**/ 1, 2, /**/ 3, 4};
  ranks[1].token_count = 2;
  ranks[1].rows = floats({20, 21});
  ranks[1].indices = {2, -5, /**/ 4, 1};
  ranks[1].weights = {5, 6, /**/ 7, 8};
  return ranks;
}

}  // namespace

TEST_CASE("dispatch: once per rank, ordered by source rank and token") {
  const auto got = ref::dispatch(two_ranks(), example());
  // Rank 0: token 0 (both experts, one copy), token 1 (expert 0); from rank 1 token 1 (expert 1,
  // its other id 4 lies outside).
  CHECK(got[0].row_count == 3);
  CHECK(got[0].rows == floats({10, 11, 21}));
  CHECK(got[0].indices == std::vector<int32_t>{0, 1, 3, 0, 4, 1});
  CHECK(got[0].weights == std::vector<float>{.5f, .25f, 1, 2, 7, 8});
  CHECK(got[0].positions == std::vector<int32_t>{0, 1, 6 + 1});
  CHECK(got[0].local_expert_count == std::vector<int32_t>{2, 2});
  CHECK(got[1].row_count == 2);
  CHECK(got[1].rows == floats({11, 20}));
  CHECK(got[1].positions == std::vector<int32_t>{1, 6 + 0});
  CHECK(got[1].local_expert_count == std::vector<int32_t>{1, 1});
}

TEST_CASE("combine: unweighted sum over distinct ranks, zeros for a token that went nowhere") {
  std::vector<ref::expert_output> outputs(2);
  outputs[0] = {floats({100, 200, 300}), {1, 2, 3, 4, 5, 6}};
  outputs[1] = {floats({0.5f, 0.25f}), {10, 20, 30, 40}};
  const auto got = ref::combine(two_ranks(), MORI_EP_F32, example(), outputs);
  CHECK(got[0].rows == floats({100, 200.5f, 0}));
  CHECK(got[0].weights == std::vector<float>{1, 2, 3 + 10, 4 + 20, 0, 0});
  CHECK(got[1].rows == floats({0.25f, 300}));
  CHECK(got[1].weights == std::vector<float>{30, 40, 5, 6});
}

TEST_CASE("combine adds in fp32 in ascending rank and rounds once") {
  ref::shape s = two_ranks();
  s.rank_count = 3;
  s.expert_per_rank_count = 1;
  s.expert_per_token_count = 3;
  s.has_weights = false;
  std::vector<ref::source> ranks(3);
  ranks[0].token_count = 1;
  ranks[0].rows = floats({0});
  ranks[0].indices = {2, 0, 1};
  // 2^24 + 1 + 1: each addition is rounded to fp32, so the ones are lost one by one.
  const std::vector<ref::expert_output> f32_outputs = {
      {floats({16'777'216}), {}}, {floats({1}), {}}, {floats({1}), {}}};
  CHECK(ref::combine(s, MORI_EP_F32, ranks, f32_outputs)[0].rows == floats({16'777'216}));

  // bf16: 256 + 1 + 1 is 258 in fp32 and only then rounded (258 is representable, 257 is not).
  s.row_bytes = 2;
  ranks[0].rows.resize(2);
  const auto bf16 = [](float value) {
    const uint32_t bits = ref::encode(ref::bf16, value);
    return ref::bytes{static_cast<std::byte>(bits & 0xFF), static_cast<std::byte>(bits >> 8)};
  };
  const std::vector<ref::expert_output> outputs = {{bf16(256), {}}, {bf16(1), {}}, {bf16(1), {}}};
  CHECK(ref::combine(s, MORI_EP_BF16, ranks, outputs)[0].rows == bf16(258));
}

TEST_CASE("formats: known patterns") {
  struct known {
    ref::number_format format;
    double value;
    uint32_t bits;
  };
  const double infinity = std::numeric_limits<double>::infinity();
  const known table[] = {
      {ref::f32, 1, 0x3F800000},
      {ref::f32, -0.0, 0x80000000},
      {ref::f32, 0x1p-149, 1},
      {ref::bf16, 1, 0x3F80},
      {ref::bf16, -2.5, 0xC020},
      {ref::bf16, infinity, 0x7F80},
      {ref::f16, 1, 0x3C00},
      {ref::f16, 65'504, 0x7BFF},
      {ref::f16, 65'519.996, 0x7BFF},
      {ref::f16, 65'520, 0x7C00},
      {ref::f16, 0x1p-24, 1},
      {ref::f16, 0x1p-25, 0},
      {ref::f16, 0x1.8p-24, 2},
      {ref::f16, -0x1p-14, 0x8400},
      {ref::e4m3fn, 1, 0x38},
      {ref::e4m3fn, 448, 0x7E},
      {ref::e4m3fn, 463.99, 0x7E},
      {ref::e4m3fn, 464.1, 0x7E},  // beyond halfway to "480": saturates
      {ref::e4m3fn, infinity, 0x7E},
      {ref::e4m3fn, -infinity, 0xFE},
      {ref::e4m3fn, std::numeric_limits<double>::quiet_NaN(), 0x7F},
      {ref::e4m3fn, 0x1p-9, 0x01},
      {ref::e4m3fn, -0x1p-6, 0x88},
      {ref::e4m3fnuz, 1, 0x40},
      {ref::e4m3fnuz, 240, 0x7F},
      {ref::e4m3fnuz, 247.9, 0x7F},
      {ref::e4m3fnuz, 248, 0x7F},
      {ref::e4m3fnuz, 1e9, 0x7F},
      {ref::e4m3fnuz, -infinity, 0xFF},
      {ref::e4m3fnuz, std::numeric_limits<double>::quiet_NaN(), 0x80},
      {ref::e4m3fnuz, -0.0, 0x00},
      {ref::e4m3fnuz, -0x1p-30, 0x00},
      {ref::e4m3fnuz, 0x1p-10, 0x01},
      {ref::e4m3fnuz, -240, 0xFF},
  };
  for (const known& k : table)
    CHECK_MESSAGE(ref::encode(k.format, k.value) == k.bits, k.value, " bits ", k.bits);
  CHECK(ref::is_nan(ref::e4m3fn, 0x7F));
  CHECK(ref::is_nan(ref::e4m3fn, 0xFF));
  CHECK(!ref::is_nan(ref::e4m3fn, 0x80));
  CHECK(ref::is_nan(ref::e4m3fnuz, 0x80));
  CHECK(!ref::is_nan(ref::e4m3fnuz, 0x7F));
  CHECK(ref::is_nan(ref::f16, 0x7C01));
}

TEST_CASE("formats: every pattern survives decode and encode") {
  for (const ref::number_format& f : {ref::bf16, ref::f16, ref::e4m3fn, ref::e4m3fnuz})
    for (uint32_t bits = 0; bits < 1u << f.total_bits(); ++bits) {
      const uint32_t again = ref::encode(f, ref::decode(f, bits));
      if (ref::is_nan(f, bits))
        REQUIRE(ref::is_nan(f, again));
      else
        REQUIRE(again == bits);
    }
}
