// Tests of heap placement: exact fits, alignment, coalescing, exhaustion to the
// last byte, and a random program against a byte map.
#include "heap/heap.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

using mori::shmem_core::heap;

TEST_CASE("heap fills to the last byte and empties to one block") {
  heap h(8192, 8192 + 1024);
  CHECK(*h.allocate(1, 1) == 8192);
  CHECK(*h.allocate(256, 256) == 8192 + 256);
  CHECK(*h.allocate(512, 1) == 8192 + 512);
  const auto full = h.allocate(1, 1);
  REQUIRE(!full);
  CHECK(full.error().status == MORI_E_NO_MEMORY);
  CHECK(full.error().text ==
        "heap exhausted: 1 bytes asked for (alignment 1), 0 of 1024 free, largest free block 0; "
        "raise MORI_SHMEM_HEAP_SIZE");
  CHECK(h.statistics().used_bytes == 1024);
  // Free the middle last: both neighbours coalesce with it.
  CHECK(h.free(8192)->bytes == 256);
  CHECK(h.free(8192 + 512)->bytes == 512);
  CHECK(h.statistics().largest_free_bytes == 512);
  CHECK(h.free(8192 + 256)->bytes == 256);
  CHECK(h.statistics().largest_free_bytes == 1024);
  CHECK(h.statistics().used_bytes == 0);
  CHECK(h.statistics().peak_bytes == 1024);
  CHECK(h.fingerprint() == 0);
  CHECK(*h.allocate(1024, 1) == 8192);
}

TEST_CASE("heap refuses what is not a live start, and absurd sizes and alignments") {
  heap h(0, 1 << 20);
  const uint64_t a = *h.allocate(1000, 1);
  CHECK(h.free(a + 256).error().text.find("inside an allocation that starts at offset 0") !=
        std::string::npos);
  CHECK(h.free(4096).error().status == MORI_E_NOT_FOUND);
  REQUIRE(h.free(a));
  CHECK(h.free(a).error().text.find("freed twice") != std::string::npos);
  for (const uint64_t size : {uint64_t{(1 << 20) + 1}, UINT64_MAX, UINT64_MAX - 255})
    CHECK(h.allocate(size, 256).error().status == MORI_E_NO_MEMORY);
  for (const uint64_t alignment : {uint64_t{0}, uint64_t{3}, uint64_t{1} << 31, UINT64_MAX})
    CHECK(h.allocate(1, alignment).error().status == MORI_E_INVALID);
}

TEST_CASE("heap honours alignments beyond a block's own start") {
  heap h(256, 256 + (4 << 20));
  CHECK(*h.allocate(256, 1 << 20) == 1 << 20);
  CHECK(*h.allocate(256, 4096) % 4096 == 0);
  CHECK(*h.allocate(1 << 20, 1 << 20) == 2 << 20);
  CHECK(h.allocate(1 << 20, 1 << 21).error().status == MORI_E_NO_MEMORY);
}

TEST_CASE("heap with guards: nothing lies behind a block, and the largest block says what fits") {
  heap h(4096, 4096 + 8 * 4096, {4096, 4096});
  CHECK(*h.allocate(1, 1) == 4096);
  CHECK(*h.allocate(4096, 1) == 3 * 4096);
  CHECK(h.statistics().used_bytes == 4 * 4096);
  CHECK(h.statistics().largest_free_bytes == 3 * 4096);
  CHECK(h.allocate(3 * 4096 + 1, 1).error().status == MORI_E_NO_MEMORY);
  CHECK(*h.allocate(3 * 4096, 1) == 5 * 4096);
  CHECK(h.statistics().largest_free_bytes == 0);
  CHECK(h.statistics().free_block_count == 0);
  CHECK(h.free(3 * 4096)->bytes == 2 * 4096);
  CHECK(h.free_block_at(4 * 4096).offset == 3 * 4096);
  CHECK(h.free_block_at(4096).bytes == 0);
  CHECK(h.statistics().free_block_count == 1);
}

// Looking at every one of them took a second for each allocation.
TEST_CASE("heap: an alignment that few blocks have is found among a hundred thousand free ones") {
  heap h(256, 256 + (uint64_t{1} << 30));
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 200'000; ++i) blocks.push_back(*h.allocate(768, 1));
  for (size_t i = 0; i < blocks.size(); i += 2) REQUIRE(h.free(blocks[i]));
  CHECK(h.statistics().free_block_count == 100'001);
  for (int i = 0; i < 20'000; ++i) REQUIRE(*h.allocate(512, 1 << 13) % (1 << 13) == 0);
}

TEST_CASE("heap: random programs never overlap, and equal live sets have equal fingerprints") {
  const char* given = std::getenv("MORI_TEST_SEED");
  const unsigned seed =
      given != nullptr ? static_cast<unsigned>(std::stoul(given)) : std::random_device{}();
  INFO("repeat with MORI_TEST_SEED=" << seed << " build/.../shmem_test -tc='heap: random*'");
  std::mt19937 random(seed);
  constexpr uint64_t size = 1 << 16;
  heap h(0, size);
  heap twin(0, size);
  std::vector<char> taken(size / heap::granule_bytes, 0);
  std::vector<heap::block> live;
  for (int step = 0; step < 20'000; ++step) {
    if (live.empty() || random() % 5 < 3) {
      const uint64_t bytes = 1 + random() % 4000;
      const uint64_t alignment = uint64_t{1} << (random() % 13);
      const auto offset = h.allocate(bytes, alignment);
      const auto again = twin.allocate(bytes, alignment);
      REQUIRE(static_cast<bool>(offset) == static_cast<bool>(again));
      if (!offset) continue;
      REQUIRE(*offset == *again);
      REQUIRE(*offset % alignment == 0);
      REQUIRE(*offset + bytes <= size);
      const uint64_t granules = (bytes + 255) / 256;
      for (uint64_t g = *offset / 256; g < *offset / 256 + granules; ++g) {
        REQUIRE(taken[g] == 0);
        taken[g] = 1;
      }
      live.push_back({*offset, granules * 256});
    } else {
      const size_t pick = random() % live.size();
      const heap::block gone = live[pick];
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(pick));
      REQUIRE(h.free(gone.offset)->bytes == gone.bytes);
      REQUIRE(twin.free(gone.offset));
      for (uint64_t g = gone.offset / 256; g < (gone.offset + gone.bytes) / 256; ++g) taken[g] = 0;
    }
    REQUIRE(h.fingerprint() == twin.fingerprint());
  }
  for (const auto& block : live) REQUIRE(h.free(block.offset));
  CHECK(h.statistics().largest_free_bytes == size);
  CHECK(h.fingerprint() == 0);
}
