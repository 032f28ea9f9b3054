// Tests of what memory a heap holds: steps, parts at both ends, and a random program
// against one flag per step.
#include "heap/backing.hpp"
#include "heap/heap.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <random>
#include <string>

using mori::shmem_core::backing;
using mori::shmem_core::heap;
using ranges = std::vector<backing::range>;

TEST_CASE("backing: whole steps are missing, those at the ends are shorter") {
  backing b(8192, 100'000, 16'384);
  CHECK(b.missing({8192, 8193}) == ranges{{8192, 16'384}});
  CHECK(b.missing({16'383, 16'385}) == ranges{{8192, 32'768}});
  CHECK(b.missing({99'999, 100'000}) == ranges{{98'304, 100'000}});
  b.add({16'384, 32'768});
  CHECK(b.missing({8192, 40'000}) == ranges{{8192, 16'384}, {32'768, 49'152}});
  CHECK(b.missing({20'000, 30'000}).empty());
  b.add({8192, 16'384});
  b.add({32'768, 49'152});
  CHECK(b.missing({8192, 49'152}).empty());
  CHECK(b.bytes() == 49'152 - 8192);
}

TEST_CASE("backing: a step with something allocated in it stays") {
  backing b(8192, 100'000, 16'384);
  b.add({8192, 49'152});
  // The freed block reaches into steps of its neighbours.
  CHECK(b.surplus({20'000, 40'000}, {20'000, 40'000}).empty());
  CHECK(b.surplus({20'000, 40'000}, {16'384, 40'000}) == ranges{{16'384, 32'768}});
  CHECK(b.surplus({20'000, 40'000}, {8192, 100'000}) == ranges{{16'384, 49'152}});
  // Nothing but what the freed block has a part of, and only what is held.
  CHECK(b.surplus({8192, 9000}, {8192, 100'000}) == ranges{{8192, 16'384}});
  CHECK(b.surplus({60'000, 70'000}, {8192, 100'000}).empty());
  b.remove({16'384, 32'768});
  CHECK(b.bytes() == 49'152 - 8192 - 16'384);
  CHECK(b.surplus({8192, 49'152}, {8192, 100'000}) == ranges{{8192, 16'384}, {32'768, 49'152}});
}

TEST_CASE("backing: random programs hold just the steps that have a live byte") {
  const char* given = std::getenv("MORI_TEST_SEED");
  const unsigned seed =
      given != nullptr ? static_cast<unsigned>(std::stoul(given)) : std::random_device{}();
  INFO("repeat with MORI_TEST_SEED=" << seed << " build/.../heap_test -tc='backing: random*'");
  std::mt19937 random(seed);
  for (const uint64_t step : {4096, 16'384, 65'536}) {
    constexpr uint64_t first = 8192, end = 1 << 20;
    heap h(first, end);
    backing b(first, end, step);
    std::vector<heap::block> live;
    for (int turn = 0; turn < 3000; ++turn) {
      if (live.empty() || random() % 2 == 0) {
        const uint64_t bytes = 1 + random() % 30'000;
        const auto offset = h.allocate(bytes, 1);
        if (!offset) continue;
        for (const auto& each : b.missing({*offset, *offset + bytes})) b.add(each);
        live.push_back({*offset, (bytes + 255) / 256 * 256});
      } else {
        const size_t pick = random() % live.size();
        const heap::block gone = *h.free(live[pick].offset);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(pick));
        const heap::block unused = h.free_block_at(gone.offset);
        REQUIRE(unused.offset <= gone.offset);
        REQUIRE(unused.offset + unused.bytes >= gone.offset + gone.bytes);
        for (const auto& each : b.surplus({gone.offset, gone.offset + gone.bytes},
                                          {unused.offset, unused.offset + unused.bytes}))
          b.remove(each);
      }
      std::vector<char> held(end / step + 1, 0);
      for (const heap::block& block : live)
        for (uint64_t at = block.offset / step; at <= (block.offset + block.bytes - 1) / step; ++at)
          held[at] = 1;
      uint64_t bytes = 0;
      for (uint64_t at = 0; at < held.size(); ++at)
        if (held[at] != 0) bytes += std::min(end, (at + 1) * step) - std::max(first, at * step);
      REQUIRE(b.bytes() == bytes);
      for (const heap::block& block : live)
        REQUIRE(b.missing({block.offset, block.offset + block.bytes}).empty());
    }
    for (const heap::block& block : live) REQUIRE(h.free(block.offset));
  }
}
