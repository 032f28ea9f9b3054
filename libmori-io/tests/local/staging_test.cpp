// staging_test.cpp - streams of bytes between GPU memory and those who need host memory.
#include "local/staging.hpp"

#include "gpu_session.hpp"

#include <algorithm>
#include <random>

using namespace mori;
using namespace mori::io_core::local;
using io_test::gpu_session;
using io_test::is_real;

namespace {

uint64_t seed() {
  if (const char* given = std::getenv("MORI_TEST_SEED")) return std::strtoull(given, nullptr, 10);
  static const uint64_t fresh = std::random_device{}();
  return fresh;
}

std::shared_ptr<staging_pool> pool_of(const std::shared_ptr<gpu_copier>& by, uint64_t bytes) {
  auto made = staging_pool::create(by, bytes);
  REQUIRE_MESSAGE(made, made.error().text);
  return std::move(*made);
}

// Pieces of a device buffer that do not overlap, in any order, some of no bytes.
std::vector<gpu_piece> random_pieces(std::mt19937_64& random, uint64_t start, uint64_t bytes,
                                     uint64_t largest) {
  std::vector<gpu_piece> all;
  for (uint64_t at = 0;;) {
    at += random() % 50;
    const uint64_t size = random() % 8 == 0 ? 0 : random() % largest;
    if (at + size > bytes) break;
    all.push_back({start + at, size});
    at += size;
  }
  std::ranges::shuffle(all, random);
  return all;
}

std::vector<std::byte> gathered(const std::vector<std::byte>& memory, uint64_t start,
                                const std::vector<gpu_piece>& pieces) {
  std::vector<std::byte> all;
  for (const gpu_piece& each : pieces) {
    const auto from = memory.begin() + static_cast<ptrdiff_t>(each.address - start);
    all.insert(all.end(), from, from + static_cast<ptrdiff_t>(each.bytes));
  }
  return all;
}

base::status drain(staged_source& out, std::mt19937_64& random, std::vector<std::byte>& to) {
  while (!out.is_over()) {
    MORI_TRY(const auto bytes, out.ready());
    if (bytes.empty()) continue;
    const size_t take = 1 + random() % bytes.size();
    to.insert(to.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(take));
    out.consume(take);
  }
  MORI_TRY(const auto nothing, out.ready());
  return nothing.empty() ? base::status() : base::fail(MORI_E_INTERNAL, "more than all");
}

base::status pour(staged_sink& in, std::mt19937_64& random, std::span<const std::byte> from) {
  while (!in.is_filled()) {
    MORI_TRY(const auto room, in.room());
    if (room.empty()) continue;
    const size_t take = 1 + random() % room.size();
    std::copy_n(from.begin(), take, room.begin());
    from = from.subspan(take);
    MORI_CHECK(in.commit(take));
  }
  for (;;) {
    MORI_TRY(const bool is_over, in.is_over());
    if (is_over) return {};
  }
}

}  // namespace

TEST_CASE("staging: what comes out is what lies there, and what goes in lies there") {
  const gpu_session in;
  const auto by = in.copier();
  constexpr uint64_t bytes = 6 << 20;
  const auto memory = in.buffer(bytes);
  std::mt19937_64 random(seed());
  INFO("repeat with MORI_TEST_SEED=", seed());
  for (const uint64_t pool_bytes : {uint64_t{64} << 10, uint64_t{1} << 20, uint64_t{16} << 20})
    for (const uint64_t largest : {200u, 70'000u, 3'000'000u}) {
      CAPTURE(pool_bytes);
      CAPTURE(largest);
      const auto pool = pool_of(by, pool_bytes);
      REQUIRE(io_test::fill_device(*in.gpu, memory.address(), bytes, largest));
      const auto before = io_test::bytes_of_device(*in.gpu, memory.address(), bytes);
      const auto pieces = random_pieces(random, memory.address(), bytes, largest);
      std::vector<std::byte> got;
      {
        staged_source out(pool, pieces);
        const auto outcome = drain(out, random, got);
        REQUIRE_MESSAGE(outcome, outcome.error().text);
      }
      CHECK((got == gathered(before, memory.address(), pieces)));
      io_test::fill(got.data(), got.size(), 77);
      auto expected = before;
      uint64_t at = 0;
      for (const gpu_piece& each : pieces) {
        std::copy_n(got.begin() + static_cast<ptrdiff_t>(at), each.bytes,
                    expected.begin() + static_cast<ptrdiff_t>(each.address - memory.address()));
        at += each.bytes;
      }
      {
        staged_sink into(pool, pieces);
        CHECK(into.total_bytes() == got.size());
        const auto outcome = pour(into, random, got);
        REQUIRE_MESSAGE(outcome, outcome.error().text);
      }
      CHECK((io_test::bytes_of_device(*in.gpu, memory.address(), bytes) == expected));
      CHECK(pool->free_count() == pool->slot_count());
    }
}

TEST_CASE("staging: nothing to move") {
  const gpu_session in;
  const auto pool = pool_of(in.copier(), 1 << 20);
  const gpu_piece none{0, 0};
  for (const std::span<const gpu_piece> pieces :
       {std::span<const gpu_piece>(), std::span<const gpu_piece>(&none, 1)}) {
    staged_source out(pool, pieces);
    CHECK(out.is_over());
    CHECK(out.ready()->empty());
    staged_sink into(pool, pieces);
    CHECK(into.is_filled());
    CHECK(into.room()->empty());
    CHECK(*into.is_over());
  }
}

TEST_CASE("staging: sizes of pools") {
  const gpu_session in;
  const auto by = in.copier();
  const auto small = staging_pool::create(by, staging_pool::least_bytes - 1);
  REQUIRE(!small);
  CHECK(small.error().text == "staging of 65535 bytes is below 65536");
  CHECK(pool_of(by, staging_pool::least_bytes)->slot_count() == 4);
  CHECK(pool_of(by, staging_pool::least_bytes)->slot_bytes() == 16384);
  CHECK(pool_of(by, 16 << 20)->slot_count() == 16);
  CHECK(pool_of(by, 16 << 20)->slot_bytes() == 1 << 20);
}

TEST_CASE("staging: copies run ahead of the reader, and a full pool waits") {
  if (is_real()) return;
  const gpu_session in;
  const auto pool = pool_of(in.copier(), 128 << 10);  // four slots of 32 KiB
  const auto memory = in.buffer(1 << 20);
  const gpu_piece all{memory.address(), 1 << 20};
  in.world().set.events_are_reached = false;
  staged_source first(pool, {&all, 1}), second(pool, {&all, 1});
  CHECK(first.ready()->empty());
  CHECK(pool->free_count() == 0);  // all four are being filled
  CHECK(second.ready()->empty());
  in.world().set.events_are_reached = true;
  CHECK(first.ready()->size() == 32 << 10);
  CHECK(second.ready()->empty());
  first.consume(32 << 10);
  CHECK(pool->free_count() == 1);
  CHECK(second.ready()->size() == 32 << 10);
  staged_sink third(pool, {&all, 1});
  CHECK(third.room()->empty());
}

TEST_CASE("staging: streams that are given up have given their slots back") {
  const gpu_session in;
  const auto pool = pool_of(in.copier(), 256 << 10);
  const auto memory = in.buffer(1 << 20);
  const gpu_piece all{memory.address(), 1 << 20};
  {
    staged_source out(pool, {&all, 1});
    REQUIRE(out.ready());
    staged_sink into(pool, {&all, 1});
    CHECK(pool->free_count() == 0);
  }
  {
    staged_sink into(pool, {&all, 1});
    REQUIRE(into.room());
    REQUIRE(into.commit(100'000 / 2));
    CHECK(pool->free_count() == 3);
  }
  CHECK(pool->free_count() == 4);
}

TEST_CASE("staging: whichever call fails is named, and nothing leaks") {
  if (is_real()) return;
  const gpu_session in;
  const int steps = in.fail_each_call([&]() -> base::status {
    MORI_TRY(const auto by, gpu_copier::create(in.gpu, {.stream_count = 2, .event_count = 2},
                                               io_test::images_here()));
    MORI_TRY(const auto pool, staging_pool::create(by, 64 << 10));
    MORI_TRY(const auto memory, device::device_buffer::allocate(in.gpu, 1 << 20));
    std::vector<gpu_piece> pieces;
    for (uint64_t i = 0; i < 20; ++i) pieces.push_back({memory.address() + i * 9000, 2000});
    pieces.push_back({memory.address() + 300'000, 50'000});
    std::mt19937_64 random(3);
    std::vector<std::byte> got;
    const auto both = [&]() -> base::status {
      staged_source out(pool, pieces);
      MORI_CHECK(drain(out, random, got));
      staged_sink into(pool, pieces);
      return pour(into, random, got);
    };
    auto outcome = both();
    CHECK(pool->free_count() == pool->slot_count());
    return outcome;
  });
  CHECK(steps > 40);
}
