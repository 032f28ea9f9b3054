// Tests of the checks before a launch: each argument at its limit and one
// beyond, NULLs, overlaps, and messages that say value and limit.
#include "request/request.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

namespace core = mori::ep_core;

namespace {

// M = 4, H = 8 of up to 4 bytes, K = 2, W = 2, S = 3 of 2 bytes.
core::settings small(uint64_t scale_dim = 3, int32_t registered = 0) {
  mori_ep_config c{};
  c.struct_size = sizeof c;
  c.hidden_dim = 8;
  c.max_input_token_count = 4;
  c.expert_per_rank_count = 2;
  c.expert_per_token_count = 2;
  c.scale_dim = scale_dim;
  c.scale_elem_bytes = 2;
  c.registered_input = registered;
  const auto s = core::check_config(c, 2);
  REQUIRE(s);
  return *s;
}

// Memory that only has an address.
template <class T>
T* at(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

mori_ep_dispatch_args plain_dispatch() {
  mori_ep_dispatch_args a{};
  a.struct_size = sizeof a;
  a.input = at<void>(0x10000);
  a.indices = at<int32_t>(0x20000);
  a.token_count = 4;
  a.dtype = MORI_EP_F32;
  return a;
}

const core::dispatch_facts plain_dispatch_facts{{0x80000, 0x1000}, false};

template <class Change>
auto try_dispatch(Change change, const core::settings& s = small()) {
  mori_ep_dispatch_args a = plain_dispatch();
  change(a);
  return core::check_dispatch(s, plain_dispatch_facts, a);
}

void refuse_dispatch(const std::function<void(mori_ep_dispatch_args&)>& change,
                     const std::string& text, const core::settings& s = small()) {
  const auto got = try_dispatch(change, s);
  REQUIRE_MESSAGE(!got, text);
  CHECK(got.error().status == MORI_E_INVALID);
  CHECK(got.error().text == text);
}

mori_ep_combine_args plain_combine() {
  mori_ep_combine_args a{};
  a.struct_size = sizeof a;
  a.input = at<void>(0x10000);
  a.indices = at<int32_t>(0x20000);
  a.token_count = 4;
  a.input_row_count = 5;
  a.dtype = MORI_EP_F32;
  return a;
}

core::combine_facts plain_facts() {
  core::combine_facts f;
  f.dispatched = true;
  f.token_count = 4;
  f.recv_count = 5;
  f.tokens = {0x80000, 8 * 32};
  f.combine_weights = {0x90000, 256};
  return f;
}

template <class Change>
auto try_combine(Change change, const core::combine_facts& facts = plain_facts(),
                 const core::settings& s = small()) {
  mori_ep_combine_args a = plain_combine();
  change(a);
  return core::check_combine(s, facts, a);
}

void refuse_combine(const std::function<void(mori_ep_combine_args&)>& change,
                    const std::string& text, mori_status status = MORI_E_INVALID,
                    const core::combine_facts& facts = plain_facts()) {
  const auto got = try_combine(change, facts);
  REQUIRE_MESSAGE(!got, text);
  CHECK(got.error().status == status);
  CHECK(got.error().text == text);
}

void nothing(mori_ep_combine_args&) {}

}  // namespace

TEST_CASE("dispatch: what is accepted") {
  const auto plain = try_dispatch([](auto&) {});
  REQUIRE(plain);
  CHECK(plain->row_bytes == 32);
  CHECK(plain->hidden_dim == 8);
  CHECK(plain->how.block_count == 80);
  const auto narrow = try_dispatch([](auto& a) {
    a.hidden_dim = 8;
    a.dtype = MORI_EP_BF16;
    a.block_count = 3;
  });
  REQUIRE(narrow);
  CHECK(narrow->row_bytes == 16);
  CHECK(narrow->how.block_count == 3);
  CHECK(try_dispatch([](auto& a) { a.hidden_dim = 4; })->row_bytes == 16);
  // Nothing to read: NULL is fine.
  CHECK(try_dispatch([](auto& a) {
    a.token_count = 0;
    a.input = nullptr;
    a.indices = nullptr;
  }));
  for (const int32_t dtype : {MORI_EP_F8_E5M2, MORI_EP_F4_E2M1X2}) {
    mori_ep_config c{};
    c.struct_size = sizeof c;
    c.hidden_dim = 16;
    c.max_input_token_count = c.expert_per_rank_count = c.expert_per_token_count = 4;
    CHECK(try_dispatch([=](auto& a) { a.dtype = dtype; }, *core::check_config(c, 2)));
  }
}

TEST_CASE("dispatch: limits") {
  refuse_dispatch([](auto& a) { a.token_count = 5; },
                  "token_count is 5, max_input_token_count is 4");
  refuse_dispatch([](auto& a) { a.token_count = UINT64_MAX; },
                  "token_count is 18446744073709551615, max_input_token_count is 4");
  refuse_dispatch([](auto& a) { a.hidden_dim = 9; }, "hidden_dim is 9, the config allows 8");
  refuse_dispatch([](auto& a) { a.hidden_dim = UINT64_MAX; },
                  "hidden_dim is 18446744073709551615, the config allows 8");
  refuse_dispatch([](auto& a) { a.hidden_dim = 5; },
                  "hidden_dim 5 of dtype f32 is 20 bytes a row, not a multiple of 16");
  refuse_dispatch([](auto& a) { a.dtype = MORI_EP_F8_E4M3FN; },
                  "hidden_dim 8 of dtype f8_e4m3fn is 8 bytes a row, not a multiple of 16");
  refuse_dispatch([](auto& a) { a.dtype = 0; }, "dtype is 0, allowed are 1 .. 7");
  refuse_dispatch([](auto& a) { a.dtype = 8; }, "dtype is 8, allowed are 1 .. 7");
  mori_ep_config c{};
  c.struct_size = sizeof c;
  c.hidden_dim = 8;
  c.max_token_elem_bytes = 2;
  c.max_input_token_count = c.expert_per_rank_count = c.expert_per_token_count = 4;
  refuse_dispatch([](auto&) {}, "dtype f32 has 4 bytes, max_token_elem_bytes is 2",
                  *core::check_config(c, 2));
}

TEST_CASE("dispatch: pointers") {
  refuse_dispatch([](auto& a) { a.input = nullptr; }, "input is NULL, but has 4 rows to be read");
  refuse_dispatch([](auto& a) { a.indices = nullptr; },
                  "indices is NULL, but has 4 rows to be read");
  refuse_dispatch([](auto& a) { a.indices = at<int32_t>(0x20002); },
                  "indices at 0x20002 is not aligned to 4 bytes");
  refuse_dispatch([](auto& a) { a.weights = at<float>(0x20001); },
                  "weights at 0x20001 is not aligned to 4 bytes");
  refuse_dispatch([](auto& a) { a.scales = at<void>(0x30000); },
                  "scales are given, but the config's scale_dim is 0", small(0));
  refuse_dispatch([](auto& a) { a.stream = at<void>(0x1); },
                  "stream is 0x1: the host back end has none, pass NULL");
  // 4 rows of 32 bytes end at the receive buffers, one byte further they meet.
  CHECK(try_dispatch([](auto& a) { a.input = at<void>(0x80000 - 128); }));
  CHECK(try_dispatch([](auto& a) { a.input = at<void>(0x81000); }));
  const std::string tail =
      " overlaps the operator's receive buffers, which peers write to meanwhile";
  refuse_dispatch([](auto& a) { a.input = at<void>(0x80000 - 127); }, "input" + tail);
  refuse_dispatch([](auto& a) { a.input = at<void>(0x80FFF); }, "input" + tail);
  refuse_dispatch([](auto& a) { a.indices = at<int32_t>(0x80000); }, "indices" + tail);
  refuse_dispatch([](auto& a) { a.weights = at<float>(0x80000); }, "weights" + tail);
  refuse_dispatch([](auto& a) { a.scales = at<void>(0x80000); }, "scales" + tail);
}

TEST_CASE("dispatch: launch requests and flags") {
  refuse_dispatch([](auto& a) { a.block_count = -1; }, "block_count is -1, allowed are 0 .. 65535");
  refuse_dispatch([](auto& a) { a.block_count = 65'536; },
                  "block_count is 65536, allowed are 0 .. 65535");
  refuse_dispatch([](auto& a) { a.warp_per_block_count = 33; },
                  "warp_per_block_count is 33, allowed are 0 .. 32");
  refuse_dispatch(
      [](auto& a) {
        a.block_count = 4;
        a.rdma_block_count = 4;
      },
      "rdma_block_count 4 is not below block_count 4");
  refuse_dispatch([](auto& a) { a.count_local_experts = 2; },
                  "count_local_experts is 2, allowed are 0 and 1");
  refuse_dispatch([](auto& a) { a.reserved = 1; }, "reserved is 1, not 0");
}

TEST_CASE("combine: where the input lies") {
  CHECK(try_combine(nothing)->place == core::input_place::copied);
  CHECK(try_combine([](auto& a) { a.input = at<void>(0x80000); })->place ==
        core::input_place::in_tokens);
  refuse_combine([](auto& a) { a.input = at<void>(0x80010); },
                 "input overlaps dispatch's output by a part: pass its start, or another buffer");
  refuse_combine([](auto& a) { a.input = at<void>(0x80000 - 5 * 32 + 1); },
                 "input overlaps dispatch's output by a part: pass its start, or another buffer");
  CHECK(try_combine([](auto& a) { a.input = at<void>(0x80000 - 5 * 32); }));
  refuse_combine([](auto& a) { a.input_mode = MORI_EP_INPUT_REGISTERED; },
                 "input_mode is registered, but there is no registered buffer: set "
                 "registered_input or call mori_ep_combine_buffer",
                 MORI_E_STATE);
  core::combine_facts facts = plain_facts();
  facts.has_registered = true;
  // The registered buffer has room for all rows, so their number need not be told.
  CHECK(try_combine(
            [](auto& a) {
              a.input_mode = MORI_EP_INPUT_REGISTERED;
              a.input = nullptr;
              a.input_row_count = 0;
            },
            facts)
            ->place == core::input_place::in_registered);
  CHECK(try_combine(nothing, facts)->place == core::input_place::copied);
  CHECK(try_combine(nothing, facts, small(3, 1))->place == core::input_place::in_registered);
  CHECK(try_combine([](auto& a) { a.input_mode = MORI_EP_INPUT_EXTERNAL; }, facts, small(3, 1))
            ->place == core::input_place::copied);
  refuse_combine([](auto& a) { a.input_mode = 3; }, "input_mode is 3, allowed are 0 .. 2");
}

TEST_CASE("combine: counts and pointers") {
  refuse_combine([](auto& a) { a.input_row_count = 4; },
                 "input_row_count is 4, but 5 tokens were received");
  CHECK(try_combine([](auto& a) { a.input_row_count = 6; }));
  refuse_combine([](auto& a) { a.token_count = 3; }, "token_count is 3, the dispatch had 4");
  refuse_combine([](auto& a) { a.token_count = 5; },
                 "token_count is 5, max_input_token_count is 4");
  refuse_combine([](auto& a) { a.input = nullptr; }, "input is NULL, but has 5 rows to be read");
  refuse_combine([](auto& a) { a.indices = nullptr; },
                 "indices is NULL, but has 4 rows to be read");
  refuse_combine([](auto& a) { a.weights = at<float>(0x90000); },
                 "weights overlap the operator's own copy of them");
  refuse_combine([](auto& a) { a.weights = at<float>(0x80000); },
                 "weights overlap dispatch's output, to which input is copied");
  core::combine_facts idle = plain_facts();
  idle.recv_count = 0;
  CHECK(try_combine(
      [](auto& a) {
        a.input = nullptr;
        a.input_row_count = 0;
      },
      idle));
}

TEST_CASE("combine: phase and dtype") {
  core::combine_facts before;
  refuse_combine(nothing, "combine without a dispatch before it", MORI_E_STATE, before);
  mori_ep_config c{};
  c.struct_size = sizeof c;
  c.hidden_dim = 16;
  c.max_input_token_count = c.expert_per_rank_count = c.expert_per_token_count = 4;
  const core::settings s = *core::check_config(c, 2);
  for (int32_t dtype = MORI_EP_F32; dtype <= MORI_EP_F8_E4M3FNUZ; ++dtype)
    CHECK(try_combine([=](auto& a) { a.dtype = dtype; }, plain_facts(), s));
  const auto unsupported =
      try_combine([](auto& a) { a.dtype = MORI_EP_F8_E5M2; }, plain_facts(), s);
  REQUIRE(!unsupported);
  CHECK(unsupported.error().status == MORI_E_UNSUPPORTED);
  CHECK(unsupported.error().text == "combine of dtype 6 (f8_e5m2) is not in this build");
}

TEST_CASE("streams are taken where there are some, and waves of a block with them") {
  mori_ep_dispatch_args a = plain_dispatch();
  a.stream = at<void>(0x77);
  a.warp_per_block_count = 5;
  core::dispatch_facts on_gpu = plain_dispatch_facts;
  CHECK(!core::check_dispatch(small(), on_gpu, a));
  on_gpu.has_streams = true;
  const auto got = core::check_dispatch(small(), on_gpu, a);
  REQUIRE(got);
  CHECK(got->how.stream == a.stream);
  CHECK(got->how.wave_count == 5);
  a.warp_per_block_count = 0;
  CHECK(core::check_dispatch(small(), on_gpu, a)->how.wave_count == 8);
}

TEST_CASE("combine where only the device knows the receive count") {
  core::combine_facts unknown = plain_facts();
  unknown.recv_count.reset();
  unknown.has_streams = true;
  const auto try_unknown = [&](uint64_t rows, uint64_t input) {
    return try_combine(
        [=](auto& a) {
          a.input_row_count = rows;
          a.input = at<void>(input);
          a.stream = at<void>(0x77);
        },
        unknown);
  };
  // Too few for five rows, as the kernel will find out.
  for (const uint64_t rows : {0, 1, 4, 8})
    CHECK(try_unknown(rows, 0x10000)->place == core::input_place::copied);
  // No row, no pointer.
  CHECK(try_unknown(0, 0)->place == core::input_place::copied);
  CHECK(try_unknown(1, 0).error().text == "input is NULL, but has 1 rows to be read");
  // In place, and partial overlaps by the rows that the caller says there are: one has 32 bytes.
  CHECK(try_unknown(5, 0x80000)->place == core::input_place::in_tokens);
  CHECK(try_unknown(2, 0x80000 - 64)->place == core::input_place::copied);
  CHECK(try_unknown(3, 0x80000 - 64).error().text ==
        "input overlaps dispatch's output by a part: pass its start, or another buffer");
  // No more rows are read than can have been received (8), so no sum can wrap.
  CHECK(try_unknown(UINT64_MAX, 0x80000 - 8 * 32)->place == core::input_place::copied);
  CHECK(try_unknown(UINT64_MAX, 0x80000 - 8 * 32 + 1).error().status == MORI_E_INVALID);
}
