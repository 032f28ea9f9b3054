// Tests of what kernels find out without the host: on a GPU nobody looks at a
// call before the next one is enqueued. One rank alone, whose peer is itself, in plain memory,
// kernels launched one after the other as a stream would run them.
#include "kernels/routing.hpp"
#include "layout/buffers.hpp"
#include "operator/kernels.hpp"
#include "operator/mishaps.hpp"
#include "operator/placement.hpp"

#include <mori/base/boundary.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

namespace core = mori::ep_core;
using core::u32;
using core::u64;

namespace {

constexpr u64 hidden = 8, top_k = 2, most_tokens = 6;

core::settings config_of(u64 receive_cap) {
  mori_ep_config c{};
  c.struct_size = sizeof c;
  c.hidden_dim = hidden;
  c.max_input_token_count = most_tokens;
  c.expert_per_rank_count = 4;
  c.expert_per_token_count = top_k;
  c.max_total_recv_token_count = receive_cap;
  const auto checked = core::check_config(c, 1);
  REQUIRE(checked);
  return *checked;
}

// The start of an allocation of exactly that many elements: a sanitizer sees what is read beyond.
template <class T>
std::unique_ptr<T[]> exactly(u64 count, T value) {
  auto made = std::make_unique<T[]>(count);
  std::fill_n(made.get(), count, value);
  return made;
}

class lone_rank {
 public:
  explicit lone_rank(u64 receive_cap = 0)
      : config_(config_of(receive_cap)),
        symmetric_(core::lay_out_symmetric(config_)),
        own_(core::lay_out_private(config_)),
        heap_(sizeof(mori_shmem_sync_v1) + 256 + symmetric_.total_bytes),
        memory_(own_.total_bytes + 256) {
    auto made = core::mishaps::create(nullptr);
    REQUIRE(made);
    mishaps_ = std::make_unique<core::mishaps>(std::move(*made));
    base_ = mori::device::address_of(heap_.data());
    mori_shmem_device_state_v1 state{};
    state.heap_base = base_;
    state.heap_bytes = heap_.size();
    state.pe_count = 1;
    state.peer_bases = mori::device::address_of(&base_);
    state.wait_budget_ns = 5'000'000'000;
    const auto up = [](u64 address) { return (address + 255) / 256 * 256; };
    at = core::place({config_, symmetric_, own_},
                     {up(base_ + sizeof(mori_shmem_sync_v1)),
                      up(mori::device::address_of(memory_.data())), mishaps_->address(), 0},
                     state);
    mori::device::runtime_options with;
    with.worker_count = 2;
    auto runtime = mori::device::runtime::create(with);
    REQUIRE(runtime);
    runtime_ = std::move(*runtime);
  }

  void dispatch(u64 tokens, core::i32 id = 1) {
    rows_ = exactly(tokens * hidden, 1.5f);
    ids_ = exactly(tokens * top_k, id);
    core::dispatch_args args{};
    args.at = at;
    args.input = mori::device::address_of(rows_.get());
    args.indices = mori::device::address_of(ids_.get());
    args.token_count = static_cast<u32>(tokens);
    args.row_bytes = hidden * sizeof(float);
    args.fingerprint = core::pack({MORI_EP_F32, hidden,
                                   tokens == 0 ? core::presence::no_rows : core::presence::none,
                                   core::presence::no_rows, false});
    launch(core::dispatch_kernel_handle(), args);
    tokens_ = tokens;
  }

  // Of input_rows rows, each element of which is `value`.
  void combine(u64 input_rows, float value, bool with_weights = false, bool foreign = false) {
    const auto input = exactly(input_rows * hidden, value);
    const auto weights = exactly(input_rows * top_k, value);
    if (foreign) ids_[0] ^= 1;
    core::combine_args args{};
    args.at = at;
    args.input = mori::device::address_of(input.get());
    args.input_weights = with_weights ? mori::device::address_of(weights.get()) : 0;
    args.indices = mori::device::address_of(ids_.get());
    args.input_row_count = input_rows;
    args.row_bytes = hidden * sizeof(float);
    args.token_count = static_cast<u32>(tokens_);
    args.fingerprint = core::pack({MORI_EP_F32, hidden,
                                   with_weights ? core::presence::given : core::presence::none,
                                   core::presence::no_rows, false});
    args.needs_rows = 1;
    launch(core::combine_kernel_handle(MORI_EP_F32), args);
    if (foreign) ids_[0] ^= 1;
  }

  // "" or "MORI_E_X: text" of the mishap that is there.
  std::string mishap() {
    const auto got = mishaps_->raise(config_);
    if (got) return "";
    return std::string(mori::base::status_name(got.error().status)) + ": " + got.error().text;
  }

  const core::plan& plan() const { return *mori::device::pointer<const core::plan>(at.plan); }
  float out(u64 token) const { return mori::device::pointer<const float>(at.out)[token * hidden]; }

  core::places at{};

 private:
  template <class Args>
  void launch(const mori::device::kernel& kernel, const Args& args) {
    mori::device::launch_options with;
    with.block_count = 2;
    with.wait_budget_ns = 5'000'000'000;
    REQUIRE(runtime_->launch(kernel, with, args));
  }

  const core::settings config_;
  const core::symmetric_layout symmetric_;
  const core::private_layout own_;
  std::vector<std::byte> heap_, memory_;
  u64 base_ = 0;
  std::unique_ptr<core::mishaps> mishaps_;
  std::unique_ptr<mori::device::runtime> runtime_;
  std::unique_ptr<float[]> rows_;
  std::unique_ptr<core::i32[]> ids_;
  u64 tokens_ = 0;
};

const std::string overflow =
    "MORI_E_OVERFLOW: rank 0 would receive 5 tokens, the capacity is 4 "
    "(max_total_recv_token_count); nothing was sent";

}  // namespace

TEST_CASE("kernels: a combine after a dispatch with a verdict does nothing, the next pair works") {
  lone_rank rank(4);
  rank.dispatch(3);
  rank.combine(3, 2.f);
  CHECK(rank.mishap() == "");
  CHECK(rank.out(2) == 2.f);
  rank.dispatch(5);
  CHECK(rank.plan().recv_count == 0);
  rank.combine(5, 3.f);
  CHECK(rank.plan().combine_epoch == 1);
  CHECK(rank.plan().finished_combine == 1);
  CHECK(rank.out(2) == 2.f);
  CHECK(rank.mishap() == overflow);
  CHECK(rank.mishap() == "");
  rank.dispatch(4);
  rank.combine(4, 4.f);
  CHECK(rank.mishap() == "");
  CHECK(rank.plan().combine_epoch == 2);
  CHECK(rank.out(3) == 4.f);
}

TEST_CASE("kernels: the first mishap stays until it is raised") {
  lone_rank rank(4);
  rank.dispatch(5);
  rank.dispatch(2, 4);
  CHECK(rank.plan().finished_dispatch == 2);
  CHECK(rank.mishap() == overflow);
  CHECK(rank.mishap() == "");
  rank.dispatch(2, 4);
  CHECK(rank.mishap() ==
        "MORI_E_INVALID: expert id 4 of token 0, slot 0 is not below 4 (1 ranks * 4 experts); "
        "drop_invalid_experts = 1 would ignore it");
}

TEST_CASE("kernels: too few rows are all that is read, and the call says so") {
  lone_rank rank;
  for (const u64 given : {0, 1, 4}) {
    rank.dispatch(5);
    rank.combine(5, 1.f);
    CHECK(rank.mishap() == "");
    rank.combine(given, 7.f, true);
    CHECK(rank.mishap() == "MORI_E_INVALID: input_row_count is " + std::to_string(given) +
                               ", but 5 tokens were received");
    // The rows that were given have come; where none was, lies what lay there.
    for (u64 token = 0; token < 5; ++token) CHECK(rank.out(token) == (token < given ? 7.f : 1.f));
  }
}

TEST_CASE("kernels: foreign indices, and more rows than were received") {
  lone_rank rank;
  rank.dispatch(3);
  rank.combine(6, 2.f, false, true);
  const std::string text = rank.mishap();
  CHECK_MESSAGE(
      text.find("MORI_E_INVALID: indices are not the routing of the last dispatch: hash 0x") == 0,
      text);
  rank.combine(6, 2.f);
  CHECK(rank.mishap() == "");
}

TEST_CASE("kernels: a rank without rows has no say in weights") {
  lone_rank rank;
  rank.dispatch(0);
  rank.combine(0, 0.f, true);
  CHECK(rank.mishap() == "");
  CHECK(rank.plan().flows == 0);
  rank.dispatch(1);
  rank.combine(1, 1.f, true);
  CHECK(rank.plan().flows == core::flows_weights);
}

TEST_CASE("kernels: an ended context is left alone") {
  lone_rank rank;
  rank.dispatch(2);
  rank.combine(2, 2.f);
  u64 abort_word = 1;
  rank.at.state.abort_word = mori::device::address_of(&abort_word);
  rank.dispatch(3);
  CHECK(rank.plan().dispatch_epoch == 1);
  CHECK(rank.plan().recv_count == 2);
  rank.combine(2, 9.f);
  CHECK(rank.plan().combine_epoch == 1);
  CHECK(rank.out(0) == 2.f);
  CHECK(rank.mishap() == "");
}
