// Tests of config validation: every field at 0, 1, its limit and one beyond,
// and that messages say value and limit.
#include "layout/settings.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <string>

namespace core = mori::ep_core;

namespace {

mori_ep_config plain() {
  mori_ep_config c{};
  c.struct_size = sizeof c;
  c.hidden_dim = 7168;
  c.max_input_token_count = 512;
  c.expert_per_rank_count = 32;
  c.expert_per_token_count = 8;
  return c;
}

void refuse(const std::function<void(mori_ep_config&)>& change, const std::string& text,
            int32_t pe_count = 8, mori_status status = MORI_E_INVALID) {
  mori_ep_config c = plain();
  change(c);
  const auto got = core::check_config(c, pe_count);
  REQUIRE_MESSAGE(!got, text);
  CHECK(got.error().status == status);
  CHECK(got.error().text == text);
}

core::settings accept(const std::function<void(mori_ep_config&)>& change, int32_t pe_count = 8) {
  mori_ep_config c = plain();
  change(c);
  const auto got = core::check_config(c, pe_count);
  if (!got) FAIL(got.error().text);
  return *got;
}

void nothing(mori_ep_config&) {}

}  // namespace

TEST_CASE("defaults") {
  const core::settings s = accept(nothing);
  CHECK(s.max_token_elem_bytes == 4);
  CHECK(s.row_bytes() == 28'672);
  CHECK(s.recv_token_capacity_count == 8 * 512);
  CHECK(s.gpu_per_node_count == 8);
  CHECK(s.block_count == 80);
  CHECK(s.warp_per_block_count == 8);
  CHECK(s.rdma_block_count == 0);
  CHECK(s.queue_pair_per_pe_count == 1);
  CHECK(s.scale_row_bytes() == 0);
  CHECK(s.timeout_ns == 0);
  CHECK(s.fan_out() == 8);
  CHECK(accept(nothing, 3).fan_out() == 3);
}

TEST_CASE("default node size is the largest divisor of the ranks up to 8") {
  for (const auto& [ranks, size] :
       {std::pair{1, 1}, {2, 2}, {3, 3}, {7, 7}, {8, 8}, {12, 6}, {16, 8}, {11, 1}, {1024, 8}})
    CHECK_MESSAGE(accept(nothing, ranks).gpu_per_node_count == static_cast<uint64_t>(size), ranks);
}

TEST_CASE("number of ranks") {
  accept(nothing, 1);
  accept(nothing, 1024);
  refuse(nothing, "0 ranks, allowed are 1 .. 1024", 0);
  refuse(nothing, "1025 ranks, allowed are 1 .. 1024", 1025);
  refuse(nothing, "-1 ranks, allowed are 1 .. 1024", -1);
}

TEST_CASE("kernel and quantisation types name their value") {
  CHECK(accept([](auto& c) { c.kernel_type = MORI_EP_KERNEL_INTRA_NODE_LL; }).kernel_type == 5);
  for (int32_t kind = 1; kind <= 4; ++kind)
    refuse([=](auto& c) { c.kernel_type = kind; },
           "kernel_type " + std::to_string(kind) +
               " is not in this build; 0 (IntraNode) and 5 (IntraNodeLL) are",
           8, MORI_E_UNSUPPORTED);
  refuse([](auto& c) { c.kernel_type = 6; }, "kernel_type is 6, allowed are 0 .. 5");
  refuse([](auto& c) { c.kernel_type = -1; }, "kernel_type is -1, allowed are 0 .. 5");
  for (int32_t kind = 1; kind <= 3; ++kind)
    refuse([=](auto& c) { c.quant_type = kind; },
           "quant_type " + std::to_string(kind) + " is not in this build; 0 (none) is", 8,
           MORI_E_UNSUPPORTED);
  refuse([](auto& c) { c.quant_type = 4; }, "quant_type is 4, allowed are 0 .. 3");
  refuse([](auto& c) { c.quant_type = -1; }, "quant_type is -1, allowed are 0 .. 3");
}

TEST_CASE("rows: a multiple of 16 bytes, at most 1 MiB") {
  accept([](auto& c) { c.hidden_dim = 4; });
  accept([](auto& c) { c.hidden_dim = 262'144; });
  accept([](auto& c) {
    c.hidden_dim = 1 << 20;
    c.max_token_elem_bytes = 1;
  });
  accept([](auto& c) {
    c.hidden_dim = 1;
    c.max_token_elem_bytes = 16;
  });
  refuse([](auto& c) { c.hidden_dim = 0; }, "hidden_dim is 0, allowed are 1 .. 1048576");
  refuse([](auto& c) { c.hidden_dim = UINT64_MAX; },
         "hidden_dim is 18446744073709551615, allowed are 1 .. 1048576");
  refuse([](auto& c) { c.hidden_dim = 5; },
         "hidden_dim 5 * max_token_elem_bytes 4 is 20 bytes: a row must be a multiple of 16 and at "
         "most 1048576");
  refuse([](auto& c) { c.hidden_dim = 262'148; },
         "hidden_dim 262148 * max_token_elem_bytes 4 is 1048592 bytes: a row must be a multiple of "
         "16 and at most 1048576");
  refuse([](auto& c) { c.max_token_elem_bytes = 17; },
         "max_token_elem_bytes is 17, allowed are 1 .. 16");
  refuse([](auto& c) { c.max_token_elem_bytes = UINT64_MAX; },
         "max_token_elem_bytes is 18446744073709551615, allowed are 1 .. 16");
}

TEST_CASE("scales") {
  CHECK(accept([](auto& c) {
          c.scale_dim = 56;
          c.scale_elem_bytes = 4;
        }).scale_row_bytes() == 224);
  // The size of no scales does not matter.
  CHECK(accept([](auto& c) { c.scale_elem_bytes = 99; }).scale_row_bytes() == 0);
  CHECK(accept([](auto& c) {
          c.scale_dim = 65'536;
          c.scale_elem_bytes = 16;
        }).scale_row_bytes() == 1 << 20);
  refuse([](auto& c) { c.scale_dim = 1; }, "scale_elem_bytes is 0, allowed are 1 .. 16");
  refuse(
      [](auto& c) {
        c.scale_dim = 65'537;
        c.scale_elem_bytes = 16;
      },
      "scale_dim 65537 * scale_elem_bytes 16 is 1048592 bytes, the limit is 1048576");
  refuse(
      [](auto& c) {
        c.scale_dim = UINT64_MAX;
        c.scale_elem_bytes = 4;
      },
      "scale_dim is 18446744073709551615, allowed are 0 .. 1048576");
}

TEST_CASE("counts: tokens, experts, top-k") {
  accept([](auto& c) { c.max_input_token_count = 1; });
  accept([](auto& c) { c.max_input_token_count = INT32_MAX; }, 1);
  refuse([](auto& c) { c.max_input_token_count = 0; },
         "max_input_token_count is 0, allowed are 1 .. 2147483647");
  refuse([](auto& c) { c.max_input_token_count = uint64_t{1} << 31; },
         "max_input_token_count is 2147483648, allowed are 1 .. 2147483647");
  refuse([](auto& c) { c.max_input_token_count = INT32_MAX; },
         "8 ranks * 2147483647 tokens each is a capacity of 17179869176 received tokens, the limit "
         "is 2147483647");
  // A cap makes the same maximum possible.
  CHECK(accept([](auto& c) {
          c.max_input_token_count = INT32_MAX;
          c.max_total_recv_token_count = 100;
        }).recv_token_capacity_count == 104);

  accept([](auto& c) { c.expert_per_token_count = 1; });
  accept([](auto& c) { c.expert_per_token_count = 32; });
  refuse([](auto& c) { c.expert_per_token_count = 0; },
         "expert_per_token_count is 0, allowed are 1 .. 32");
  refuse([](auto& c) { c.expert_per_token_count = 33; },
         "expert_per_token_count is 33, allowed are 1 .. 32");

  accept([](auto& c) { c.expert_per_rank_count = 268'435'455; });
  refuse([](auto& c) { c.expert_per_rank_count = 268'435'456; },
         "expert_per_rank_count is 268435456, allowed are 1 .. 268435455");
  refuse([](auto& c) { c.expert_per_rank_count = 0; },
         "expert_per_rank_count is 0, allowed are 1 .. 268435455");
}

TEST_CASE("capacity: R = W * min(M, ceil(cap / W))") {
  const auto capacity = [](uint64_t cap) {
    return accept([=](auto& c) { c.max_total_recv_token_count = cap; }).recv_token_capacity_count;
  };
  CHECK(capacity(0) == 4096);
  CHECK(capacity(1) == 8);
  CHECK(capacity(8) == 8);
  CHECK(capacity(9) == 16);
  CHECK(capacity(4095) == 4096);
  CHECK(capacity(4096) == 4096);
  CHECK(capacity(4097) == 4096);
  CHECK(capacity(UINT64_MAX) == 4096);
}

TEST_CASE("launch requests and flags") {
  CHECK(accept([](auto& c) { c.block_count = 1; }).block_count == 1);
  CHECK(accept([](auto& c) { c.block_count = 65'535; }).block_count == 65'535);
  refuse([](auto& c) { c.block_count = 65'536; },
         "block_count is 65536, allowed are 1 .. 65535, or 0 for the default 80");
  refuse([](auto& c) { c.block_count = -1; },
         "block_count is -1, allowed are 1 .. 65535, or 0 for the default 80");
  CHECK(accept([](auto& c) { c.warp_per_block_count = 32; }).warp_per_block_count == 32);
  refuse([](auto& c) { c.warp_per_block_count = 33; },
         "warp_per_block_count is 33, allowed are 1 .. 32, or 0 for the default 8");
  CHECK(accept([](auto& c) { c.rdma_block_count = 79; }).rdma_block_count == 79);
  refuse([](auto& c) { c.rdma_block_count = 80; },
         "rdma_block_count is 80, allowed are 1 .. 79, or 0 for the default 0");
  CHECK(accept([](auto& c) { c.gpu_per_node_count = 4; }).gpu_per_node_count == 4);
  refuse([](auto& c) { c.gpu_per_node_count = 3; }, "gpu_per_node_count 3 does not divide 8 ranks");
  refuse([](auto& c) { c.gpu_per_node_count = 9; },
         "gpu_per_node_count is 9, allowed are 1 .. 8, or 0 for the default 8");
  refuse([](auto& c) { c.gpu_per_node_count = -8; },
         "gpu_per_node_count is -8, allowed are 1 .. 8, or 0 for the default 8");
  refuse([](auto& c) { c.queue_pair_per_pe_count = -1; },
         "queue_pair_per_pe_count is -1, allowed are 1 .. 1024, or 0 for the default 1");
  refuse([](auto& c) { c.registered_input = 2; }, "registered_input is 2, allowed are 0 and 1");
  refuse([](auto& c) { c.drop_invalid_experts = -1; },
         "drop_invalid_experts is -1, allowed are 0 and 1");
  refuse([](auto& c) { c.deterministic = 7; }, "deterministic is 7, allowed are 0 and 1");
}

TEST_CASE("ranks that differ learn in which field") {
  const core::settings own = accept(nothing);
  CHECK(core::compare_settings(own, own, 3));
  const core::settings other = accept([](auto& c) { c.hidden_dim = 4096; });
  const auto differ = core::compare_settings(own, other, 3);
  REQUIRE(!differ);
  CHECK(differ.error().status == MORI_E_MISMATCH);
  CHECK(differ.error().text == "configs differ: hidden_dim is 7168 here and 4096 on rank 3");
  const core::settings slow = accept([](auto& c) { c.timeout_ns = 5; });
  CHECK(core::compare_settings(own, slow, 1).error().text ==
        "configs differ: timeout_ns is 0 here and 5 on rank 1");
}
