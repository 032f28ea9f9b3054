// Tests of the C++ wrapper mori/ep.hpp: a round trip by results, one by
// exceptions, spans that do not fit, and ownership.
#include <mori/ep.hpp>

#include "rank_group.hpp"

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace ep = mori::ep;

namespace {

constexpr uint64_t hidden = 16, top_k = 2;

mori_ep_config small_config() {
  mori_ep_config c = ep::config();
  c.hidden_dim = hidden;
  c.max_input_token_count = 4;
  c.expert_per_rank_count = 1;
  c.expert_per_token_count = top_k;
  c.scale_dim = 4;
  c.scale_elem_bytes = 1;
  return c;
}

mori::shmem::context lone_context() {
  auto with = mori::shmem::options(0, 1);
  with.heap_bytes = 4 << 20;
  return mori::shmem::context::create(mori::shmem::make_unique_id().value(), with).value();
}

}  // namespace

static_assert(!std::is_copy_constructible_v<ep::op>);
static_assert(std::is_nothrow_move_constructible_v<ep::op>);
static_assert(ep::elem_bytes(MORI_EP_BF16) == 2 && ep::elem_bytes(0) == 0);

TEST_CASE("wrapper: a round trip") {
  mori::shmem::context context = lone_context();
  ep::op made = ep::op::create(context, small_config()).value();
  ep::op op = std::move(made);
  CHECK(made.handle() == nullptr);
  CHECK(op.check());

  std::vector<float> rows(3 * hidden);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
  const std::vector<int32_t> indices = {0, -1, -1, -1, 0, 0};
  const std::vector<float> weights = {1, 2, 3, 4, 5, 6};
  const std::vector<std::byte> scales(3 * 4, std::byte{7});
  ep::batch<float> from{MORI_EP_F32, rows, indices, weights, scales, 0, true};
  auto received = op.dispatch(from);
  REQUIRE(received);
  CHECK(received->count == 2);
  CHECK(received->rows.size() == 2 * hidden);
  CHECK(received->rows[hidden] == rows[2 * hidden]);
  CHECK(received->indices[2] == 0);
  CHECK(received->weights[3] == 6);
  CHECK(received->scales.size() == 8);
  CHECK(received->scales[7] == std::byte{7});
  CHECK(received->local_expert_count[0] == 3);
  std::vector<int32_t> positions(4, -1);
  CHECK(op.src_token_positions(positions).value() == 2);
  CHECK(positions == std::vector<int32_t>{0, 2, -1, -1});

  const std::vector<float> results(received->rows.begin(), received->rows.end());
  auto combined = op.combine<float>({MORI_EP_F32, results, indices, {}, 0});
  REQUIRE(combined);
  CHECK(combined->rows.size() == 3 * hidden);
  CHECK(combined->rows[1] == 1);
  CHECK(combined->rows[hidden + 1] == 0);
  CHECK(combined->weights.empty());

  auto buffer = op.combine_buffer();
  REQUIRE(buffer);
  CHECK(buffer->size() == 4 * hidden * 4);
  std::memcpy(buffer->data(), results.data(), results.size() * sizeof(float));
  combined = op.combine<float>({MORI_EP_F32, {}, indices, {}, 0});
  CHECK(combined.value().rows[2 * hidden + 1] == static_cast<float>(2 * hidden + 1));
  CHECK(op.reset());
}

TEST_CASE("wrapper: spans that do not fit are refused, by result or by exception") {
  mori::shmem::context context = lone_context();
  ep::op op = ep::op::create(context, small_config()).value();
  const std::vector<float> rows(2 * hidden);
  const std::vector<int32_t> indices(2 * top_k, 0);
  const std::span<const float> all_rows = rows;
  const std::span<const int32_t> all_indices = indices;
  const auto refused = [&](const ep::batch<float>& from) {
    const auto got = op.dispatch(from);
    CHECK(got.status() == MORI_E_INVALID);
    return got.error().message;
  };
  const std::string tail = " does not fit the other arguments";
  CHECK(refused({MORI_EP_BF16, all_rows, all_indices}) == "the element type" + tail);
  CHECK(refused({MORI_EP_F32, all_rows.first(hidden), all_indices}) == "rows" + tail);
  CHECK(refused({MORI_EP_F32, all_rows, all_indices.first(3)}) == "indices" + tail);
  CHECK(refused({MORI_EP_F32, all_rows, all_indices, all_rows.first(3)}) == "weights" + tail);
  CHECK_THROWS_AS(op.combine<float>({MORI_EP_F32, rows, indices}).value(), mori::exception);

  mori_ep_config bad = small_config();
  bad.hidden_dim = 3;
  CHECK(ep::memory_query(bad, 1).status() == MORI_E_INVALID);
  CHECK(ep::memory_query(small_config(), 2).value().recv_token_capacity_count == 8);
  try {
    ep::op::create(context, bad).value();
    CHECK(false);
  } catch (const mori::exception& e) {
    CHECK(e.status() == MORI_E_INVALID);
    CHECK(std::string(e.what()).find("hidden_dim 3") != std::string::npos);
  }
}
