// mapping_test.cpp - segments of mori_io_alloc: what the pool promises its own process, and
// what other processes get of it, real ones, and only those that were invited.
#include "local/mapping.hpp"

#include "subject.hpp"

#include <dirent.h>
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <random>

using namespace mori;
using namespace mori::io_core::local;
using io_test::subject;

namespace {

constexpr uint64_t page = 4096;

base::deadline soon() { return base::deadline::after(10 * base::ns_per_s); }

int open_descriptors() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

int mappings_of_segments() {
  int count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    count += line.find("mori-segment") != std::string::npos ? 1 : 0;
  return count;
}

struct remote_segment {
  uint64_t address = 0;  // in the other process
  uint64_t number = 0;   // of the offer
  std::string text;      // the offer
  segment_offer offer;
};

remote_segment allocate(subject& in, uint64_t bytes, bool writable) {
  remote_segment made;
  std::istringstream answer(in.ask("allocate", bytes, writable ? 1 : 0));
  answer >> made.address >> made.number >> made.text;
  const auto offer = decode_segment_offer(io_test::unhex(made.text));
  REQUIRE_MESSAGE(offer, answer.str());
  made.offer = *offer;
  return made;
}

std::string refusal(const segment_offer& offer, mori_status status) {
  const auto made = mapping::fetch(offer, soon());
  REQUIRE(!made);
  CHECK(made.error().status == status);
  return made.error().text;
}

}  // namespace

TEST_CASE("segments: allocated, found, freed") {
  segment_pool pool;
  const int before = open_descriptors(), mapped = mappings_of_segments();
  for (const uint64_t bytes : {uint64_t{1}, page, page + 1, uint64_t{3} << 20}) {
    CAPTURE(bytes);
    const auto made = pool.allocate(bytes);
    REQUIRE_MESSAGE(made, made.error().text);
    auto* const start = static_cast<std::byte*>(*made);
    CHECK(reinterpret_cast<uintptr_t>(start) % page == 0);
    CHECK(std::all_of(start, start + bytes, [](std::byte b) { return b == std::byte{0}; }));
    const auto all = pool.find(start, bytes);
    REQUIRE(all);
    CHECK(all->offset == 0);
    CHECK(pool.find(start + bytes - 1, 1)->offset == bytes - 1);
    CHECK(pool.find(start + bytes, 0));
    CHECK(!pool.find(start + bytes, 1));
    CHECK(!pool.find(start + 1, bytes));
    CHECK(!pool.find(start - 1, 1));
    CHECK(!pool.find(start, UINT64_MAX));
    const auto inside = pool.free(start + 1);
    REQUIRE(!inside);
    CHECK(inside.error().status == MORI_E_NOT_FOUND);
    CHECK(inside.error().text == fmt::format("{:#x} is no address that mori_io_alloc returned",
                                             reinterpret_cast<uintptr_t>(start) + 1));
    CHECK(pool.free(start));
    CHECK(!pool.free(start));
    CHECK(!pool.find(start, 1));
  }
  CHECK(open_descriptors() == before);
  CHECK(mappings_of_segments() == mapped);
}

TEST_CASE("segments: sizes that cannot be") {
  segment_pool pool;
  const auto none = pool.allocate(0);
  REQUIRE(!none);
  CHECK(none.error().status == MORI_E_INVALID);
  CHECK(none.error().text == "an allocation of 0 bytes is outside 1 .. 70368744177664");
  CHECK(pool.allocate((uint64_t{1} << 46) + 1).error().status == MORI_E_INVALID);
  CHECK(pool.allocate(UINT64_MAX).error().status == MORI_E_INVALID);
  // More than any machine has here: refused before a page is missing.
  const auto full = pool.allocate(uint64_t{1} << 45);
  REQUIRE(!full);
  CHECK(full.error().status == MORI_E_NO_MEMORY);
}

TEST_CASE("segments: a read-only descriptor cannot be mapped for writing") {
  segment_pool pool;
  const auto made = pool.allocate(page);
  REQUIRE(made);
  const uint64_t serial = pool.find(*made, page)->serial;
  const auto readable = pool.open(serial, false);
  REQUIRE(readable);
  CHECK(::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, readable->get(), 0) ==
        MAP_FAILED);
  CHECK(::ftruncate(pool.open(serial, true)->get(), 0) != 0);  // sealed
  CHECK(pool.open(serial + 1, true).error().text == "the memory was freed");
  CHECK(pool.free(*made));
  CHECK(pool.open(serial, true).error().status == MORI_E_NOT_FOUND);
}

TEST_CASE("mapping: the same memory in two processes, both ways") {
  subject other;
  const uint64_t bytes = (uint64_t{5} << 20) + 123;
  const remote_segment theirs = allocate(other, bytes, true);
  other.ask("fill", theirs.address, bytes, 1);
  const auto mapped = mapping::fetch(theirs.offer, soon());
  REQUIRE_MESSAGE(mapped, mapped.error().text);
  CHECK((*mapped)->is_writable());
  CHECK(io_test::sum((*mapped)->data(), bytes) == other.number("sum", theirs.address, bytes));
  io_test::fill((*mapped)->data(), bytes, 2);
  CHECK(io_test::sum((*mapped)->data(), bytes) == other.number("sum", theirs.address, bytes));
  // A third process gets the same.
  subject third;
  const uint64_t there = third.number("fetch", theirs.text);
  REQUIRE(there != 0);
  CHECK(third.number("sum", there, bytes) == other.number("sum", theirs.address, bytes));
  // What is mapped stays, whatever becomes of its owner.
  const uint64_t before = io_test::sum((*mapped)->data(), bytes);
  other.kill();
  CHECK(io_test::sum((*mapped)->data(), bytes) == before);
  CHECK(refusal(theirs.offer, MORI_E_UNAVAILABLE) ==
        "its unix socket cannot be reached from here: another network namespace?");
}

TEST_CASE("mapping: as another user") {
  if (::geteuid() != 0) return;
  subject owner({"--user", "65534"}), other({"--user", "65533"});
  const remote_segment theirs = allocate(owner, 3 * page, true);
  owner.ask("fill", theirs.address, 3 * page, 9);
  const uint64_t there = other.number("fetch", theirs.text);
  REQUIRE(there != 0);
  CHECK(other.number("sum", there, 3 * page) == owner.number("sum", theirs.address, 3 * page));
}

TEST_CASE("mapping: read-only offers") {
  subject other;
  const remote_segment theirs = allocate(other, page, false);
  const auto mapped = mapping::fetch(theirs.offer, soon());
  REQUIRE(mapped);
  CHECK(!(*mapped)->is_writable());
  CHECK((*mapped)->data()[0] == std::byte{0});
  segment_offer greedy = theirs.offer;
  greedy.writable = true;
  const std::string text = refusal(greedy, MORI_E_OS);
  CHECK(text == fmt::format("cannot map {} bytes: Permission denied", 2 * page));
}

TEST_CASE("mapping: who was not invited, or no longer, gets nothing") {
  subject other;
  const remote_segment theirs = allocate(other, page, true);
  segment_offer wrong = theirs.offer;
  wrong.from.key[0] ^= 1;
  CHECK(refusal(wrong, MORI_E_NOT_FOUND) == "the memory is not offered (any more)");
  wrong = theirs.offer;
  ++wrong.from.number;
  CHECK(refusal(wrong, MORI_E_NOT_FOUND) == "the memory is not offered (any more)");
  wrong = theirs.offer;
  wrong.from.desk.secret[0] ^= 1;
  (void)refusal(wrong, MORI_E_AUTH);
  wrong = theirs.offer;
  wrong.nonce[0] ^= 1;
  CHECK(refusal(wrong, MORI_E_PROTOCOL) == "the nonce read through the mapping is not the owner's");
  wrong = theirs.offer;
  wrong.file_bytes += page;
  CHECK(refusal(wrong, MORI_E_PROTOCOL) ==
        fmt::format("a segment of {} bytes in a file of {}, sealed", 3 * page, 2 * page));
  CHECK(mapping::fetch(theirs.offer, soon()));
  REQUIRE(other.ask("withdraw", theirs.number) == "ok");
  CHECK(refusal(theirs.offer, MORI_E_NOT_FOUND) == "the memory is not offered (any more)");
  const remote_segment freed = allocate(other, page, true);
  REQUIRE(other.ask("free", freed.address) == "ok");
  CHECK(refusal(freed.offer, MORI_E_NOT_FOUND) == "the memory was freed");
}

TEST_CASE("mapping: a file that could become shorter is not mapped") {
  auto desk = share_desk::open();
  REQUIRE(desk);
  segment_offer offer;
  offer.file_bytes = page;
  offer.from = (*desk)->offer([](uint32_t) -> base::result<link::handed> {
    base::unique_fd made(::memfd_create("test", MFD_CLOEXEC));
    REQUIRE(::ftruncate(made.get(), page) == 0);
    return link::handed{{}, std::move(made)};
  });
  CHECK(refusal(offer, MORI_E_PROTOCOL) == "a segment of 4096 bytes in a file of 4096, not sealed");
  offer.from =
      (*desk)->offer([](uint32_t) -> base::result<link::handed> { return link::handed{}; });
  CHECK(refusal(offer, MORI_E_OS) == "no descriptor came along: out of descriptors?");
  CHECK((*desk)->offer_count() == 2);
}

TEST_CASE("mapping: offers that make no sense") {
  subject other;
  const remote_segment theirs = allocate(other, page, true);
  const link::byte_vector good = encode(theirs.offer);
  for (size_t size = 0; size < good.size(); ++size)
    CHECK(!decode_segment_offer(link::byte_span(good).first(size)));
  link::byte_vector longer = good;
  longer.push_back({});
  CHECK(decode_segment_offer(longer).error().status == MORI_E_PROTOCOL);
  link::byte_vector newer = good;
  newer[0] = std::byte{2};
  CHECK(decode_segment_offer(newer).error().text == "a segment offered in format 2, known is 1");
  segment_offer outside = theirs.offer;
  outside.offset = outside.file_bytes;
  CHECK(decode_segment_offer(encode(outside)).error().status == MORI_E_PROTOCOL);
  const auto same = decode_segment_offer(good);
  REQUIRE(same);
  CHECK(encode(*same) == good);
}

TEST_CASE("mapping: one for all who use a segment, gone with the last") {
  subject other;
  const remote_segment theirs = allocate(other, page, true);
  const int before = open_descriptors(), mapped = mappings_of_segments();
  mapping_cache cache;
  auto first = cache.get(theirs.offer, soon());
  REQUIRE(first);
  auto second = cache.get(theirs.offer, soon());
  REQUIRE(second);
  CHECK(*first == *second);
  CHECK(mappings_of_segments() == mapped + 1);
  CHECK(open_descriptors() == before);
  segment_offer readable = theirs.offer;
  readable.writable = false;
  CHECK(*cache.get(readable, soon()) != *first);
  // Not for a region that is no longer offered, though the segment is mapped.
  REQUIRE(other.ask("withdraw", theirs.number) == "ok");
  const auto withdrawn = cache.get(theirs.offer, soon());
  REQUIRE(!withdrawn);
  CHECK(withdrawn.error().text == "the memory is not offered (any more)");
  first->reset();
  second->reset();
  CHECK(mappings_of_segments() == mapped);
  CHECK(!cache.get(theirs.offer, soon()));
}

TEST_CASE("mapping: moves by pieces and budgets, overlapping memory too") {
  std::mt19937_64 random(11);
  std::vector<std::byte> memory(1 << 20), expected;
  for (int round = 0; round < 20; ++round) {
    io_test::fill(memory.data(), memory.size(), 1);
    expected = memory;
    const bool is_read = round % 2 == 0;
    // Both sides are the same memory: the halves are moved onto each other.
    std::vector<piece> pieces;
    uint64_t at_byte = 0;
    while (at_byte < memory.size() / 2 - 5000) {
      const uint64_t bytes = random() % 4 == 0 ? 0 : random() % 5000;
      pieces.push_back({at_byte, memory.size() / 2 + at_byte, bytes});
      at_byte += bytes;
    }
    const work what{is_read, pieces, memory.data(), reinterpret_cast<uintptr_t>(memory.data())};
    const uint64_t half = memory.size() / 2;
    if (is_read)
      std::copy_n(expected.data() + half, at_byte, expected.data());
    else
      std::copy_n(expected.data(), at_byte, expected.data() + half);
    position at;
    while (!is_over(what, at)) move_mapped(what, at, 1 + random() % 20'000);
    CHECK((memory == expected));
  }
  const piece shifted{0, 100, 1000};
  const work what{false, {&shifted, 1}, memory.data(), reinterpret_cast<uintptr_t>(memory.data())};
  std::vector<std::byte> source(memory.begin(), memory.begin() + 1000);
  position at;
  move_mapped(what, at, UINT64_MAX);
  CHECK(std::equal(source.begin(), source.end(), memory.begin() + 100));
  at = {};
  move_mapped(what, at, 0);
  CHECK(at.bytes == 0);
}
