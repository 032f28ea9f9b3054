// gpu_copier_test.cpp - copies of one device, over a fake driver or a real one.
#include "local/gpu_copier.hpp"

#include "gpu_session.hpp"

#include <algorithm>
#include <random>

using namespace mori;
using namespace mori::io_core::local;
using io_core::copy_entry;
using io_test::gpu_session;
using io_test::is_real;

namespace {

uint64_t seed() {
  if (const char* given = std::getenv("MORI_TEST_SEED")) return std::strtoull(given, nullptr, 10);
  static const uint64_t fresh = std::random_device{}();
  return fresh;
}

// Starts all, in as many flights as it takes, and waits for them.
base::status copy_all(gpu_copier& by, std::span<const copy_entry> pieces) {
  while (!pieces.empty()) {
    gpu_copier::flight flight;
    MORI_TRY(const size_t started, by.start(pieces, flight));
    MORI_CHECK(by.wait(flight));
    if (started == 0) return base::fail(MORI_E_INTERNAL, "nothing was started");
    pieces = pieces.subspan(started);
  }
  return {};
}

std::vector<copy_entry> random_copies(std::mt19937_64& random, uint64_t to, uint64_t from,
                                      uint64_t bytes, uint64_t largest) {
  std::vector<copy_entry> all;
  uint64_t at_to = 0, at_from = 0;
  for (;;) {
    const uint64_t size = random() % 10 == 0 ? 0 : 1 + random() % largest;
    at_to += random() % 3 == 0 ? 0 : random() % 40;
    at_from += random() % 3 == 0 ? 0 : random() % 40;
    if (at_to + size > bytes || at_from + size > bytes) break;
    all.push_back({to + at_to, from + at_from, size});
    at_to += size;
    at_from += size;
  }
  return all;
}

}  // namespace

TEST_CASE("gpu copier: random pieces, small and large, on the device") {
  const gpu_session in;
  const auto by = in.copier();
  if (is_real()) CHECK(by->no_kernel() == "");
  constexpr uint64_t bytes = 24 << 20;
  const auto from = in.buffer(bytes), to = in.buffer(bytes);
  std::mt19937_64 random(seed());
  INFO("repeat with MORI_TEST_SEED=", seed());
  REQUIRE(io_test::fill_device(*in.gpu, from.address(), bytes, 1));
  const auto source = io_test::bytes_of_device(*in.gpu, from.address(), bytes);
  for (const uint64_t largest : {64u, 3000u, 100'000u, 2'000'000u}) {
    CAPTURE(largest);
    REQUIRE(io_test::fill_device(*in.gpu, to.address(), bytes, 2));
    auto expected = io_test::bytes_of_device(*in.gpu, to.address(), bytes);
    auto pieces = random_copies(random, to.address(), from.address(), bytes, largest);
    REQUIRE(pieces.size() > 10);
    for (const copy_entry& each : pieces)
      std::copy_n(source.data() + (each.from - from.address()), each.bytes,
                  expected.data() + (each.to - to.address()));
    if (largest < 1'000'000u) std::ranges::shuffle(pieces, random);
    const auto outcome = copy_all(*by, pieces);
    REQUIRE_MESSAGE(outcome, outcome.error().text);
    CHECK((io_test::bytes_of_device(*in.gpu, to.address(), bytes) == expected));
  }
  CHECK(by->launch_count() > 0);
}

TEST_CASE("gpu copier: what follows each other is one copy; few small ones need no kernel") {
  const gpu_session in;
  const auto by = in.copier();
  const auto from = in.buffer(1 << 20), to = in.buffer(1 << 20);
  std::vector<copy_entry> pieces;
  for (uint64_t i = 0; i < 3; ++i)
    pieces.push_back({to.address() + i * 100, from.address() + i * 100, 100});
  if (!is_real()) in.world().seen = {};
  REQUIRE(copy_all(*by, pieces));
  CHECK(by->launch_count() == 0);
  if (!is_real()) CHECK(in.world().seen.counts["cuMemcpyAsync"] == 1);
  // Four are enough for a kernel; a large one beside them is a copy.
  pieces.push_back({to.address() + 400, from.address() + 400, 100});
  pieces.push_back({to.address() + 1000, from.address() + 1000, gpu_copier::small_bytes + 1});
  if (!is_real()) in.world().seen = {};
  REQUIRE(copy_all(*by, pieces));
  CHECK(by->launch_count() == 1);
  if (!is_real()) {
    CHECK(in.world().seen.counts["cuMemcpyAsync"] == 1);
    CHECK(in.world().seen.last_launch.block_count == 1);
  }
  // Nothing to do is nothing done.
  const copy_entry none[] = {{0, 0, 0}, {0, 0, 0}};
  if (!is_real()) in.world().seen = {};
  REQUIRE(copy_all(*by, none));
  if (!is_real()) CHECK(in.world().seen.counts["cuMemcpyAsync"] == 0);
}

TEST_CASE("gpu copier: so many flights at once as there are events") {
  if (is_real()) return;
  const gpu_session in;
  const auto by = in.copier(2, 3);
  const auto from = in.buffer(4096), to = in.buffer(4096);
  const copy_entry one{to.address(), from.address(), 4096};
  in.world().set.events_are_reached = false;
  gpu_copier::flight flights[4];
  for (int i = 0; i < 3; ++i) CHECK(*by->start({&one, 1}, flights[i]) == 1);
  CHECK(*by->start({&one, 1}, flights[3]) == 0);
  CHECK(flights[3].is_empty());
  CHECK(!*by->is_over(flights[1]));
  in.world().set.events_are_reached = true;
  CHECK(*by->is_over(flights[1]));
  CHECK(flights[1].is_empty());
  CHECK(*by->is_over(flights[1]));
  CHECK(*by->start({&one, 1}, flights[3]) == 1);
  for (auto& each : flights) CHECK(by->wait(each));
}

TEST_CASE("gpu copier: a table holds so many entries, the rest is for the next flight") {
  const gpu_session in;
  const auto by = in.copier();
  const auto from = in.buffer(1 << 20), to = in.buffer(1 << 20);
  const std::vector<copy_entry> many(gpu_copier::table_entries + 1,
                                     {to.address(), from.address(), 8});
  gpu_copier::flight flight;
  CHECK(*by->start(many, flight) == gpu_copier::table_entries);
  CHECK(by->wait(flight));
  const std::vector<copy_entry> large(gpu_copier::table_entries,
                                      {to.address(), from.address(), gpu_copier::small_bytes});
  CHECK(*by->start(large, flight) ==
        gpu_copier::table_entries / (gpu_copier::small_bytes / gpu_copier::entry_bytes));
  CHECK(by->wait(flight));
}

TEST_CASE("gpu copier: no code for the device: pieces one by one, and the reason") {
  const gpu_session in;
  auto by = gpu_copier::create(in.gpu, {.stream_count = 1, .event_count = 1}, {});
  REQUIRE(by);
  CHECK((*by)->no_kernel().find("no code for sm_90") == 0);
  const auto from = in.buffer(1 << 16), to = in.buffer(1 << 16);
  REQUIRE(io_test::fill_device(*in.gpu, from.address(), 1 << 16, 5));
  std::vector<copy_entry> pieces;
  for (uint64_t i = 0; i < 16; ++i)
    pieces.push_back({to.address() + i * 4096, from.address() + (15 - i) * 4096, 4096});
  REQUIRE(copy_all(**by, pieces));
  CHECK((*by)->launch_count() == 0);
  const auto source = io_test::bytes_of_device(*in.gpu, from.address(), 1 << 16);
  const auto got = io_test::bytes_of_device(*in.gpu, to.address(), 1 << 16);
  for (uint64_t i = 0; i < 16; ++i)
    CHECK(std::equal(got.begin() + static_cast<long>(i * 4096),
                     got.begin() + static_cast<long>((i + 1) * 4096),
                     source.begin() + static_cast<long>((15 - i) * 4096)));
  const auto none = gpu_copier::create(in.gpu, {.stream_count = 0, .event_count = 1}, {});
  REQUIRE(!none);
  CHECK(none.error().text == "0 streams and 1 events, at least 1 of each is needed");
}

TEST_CASE("gpu copier: whichever call fails is named, nothing runs on, nothing leaks") {
  if (is_real()) return;
  const gpu_session in;
  const int steps = in.fail_each_call([&]() -> base::status {
    MORI_TRY(const auto by, gpu_copier::create(in.gpu, {.stream_count = 2, .event_count = 3},
                                               io_test::images_here()));
    MORI_TRY(const auto from, device::device_buffer::allocate(in.gpu, 1 << 20));
    MORI_TRY(const auto to, device::device_buffer::allocate(in.gpu, 1 << 20));
    std::vector<copy_entry> pieces;
    for (uint64_t i = 0; i < 8; ++i)
      pieces.push_back({to.address() + i * 200, from.address() + i * 300, 100});
    pieces.push_back({to.address() + 2000, from.address(), gpu_copier::small_bytes + 9});
    gpu_copier::flight flight;
    const auto started = by->start(pieces, flight);
    if (!started) CHECK(flight.is_empty());
    if (!started) return started.error();
    const auto over = by->is_over(flight);
    if (!over) CHECK(flight.is_empty());
    if (!over) return over.error();
    gpu_copier::flight second;
    MORI_TRY([[maybe_unused]] const size_t again, by->start(pieces, second));
    return by->wait(second);
  });
  CHECK(steps > 25);
}
