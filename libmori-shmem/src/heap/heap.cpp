// heap.cpp - see heap.hpp.
#include "heap/heap.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

namespace mori::shmem_core {
namespace {

// Blocks looked at, of those that could hold an aligned allocation if they lie well.
constexpr int most_candidates = 32;

uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) & ~(multiple - 1);
}

// splitmix64's finaliser: live blocks are combined by xor, so it must spread.
uint64_t mix(uint64_t offset, uint64_t bytes) {
  uint64_t x = offset * 0x9E3779B97F4A7C15u + bytes;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

heap::heap(uint64_t first_byte, uint64_t end_byte, const heap_shape& shape)
    : first_byte_(first_byte), end_byte_(end_byte), shape_(shape) {
  assert(first_byte % shape.granule_bytes == 0 && end_byte % shape.granule_bytes == 0 &&
         shape.guard_bytes % shape.granule_bytes == 0 && first_byte <= end_byte);
  if (first_byte < end_byte) add_free(first_byte, end_byte - first_byte);
}

base::status heap::check_alignment(uint64_t alignment_bytes) {
  if (!std::has_single_bit(alignment_bytes) || alignment_bytes > largest_alignment_bytes)
    return base::fail(MORI_E_INVALID, "alignment {} is not a power of two in 1 .. {}",
                      alignment_bytes, largest_alignment_bytes);
  return {};
}

base::result<uint64_t> heap::allocate(uint64_t size_bytes, uint64_t alignment_bytes) {
  MORI_CHECK(check_alignment(alignment_bytes));
  const heap_statistics now = statistics();
  const auto exhausted = [&] {
    return base::fail(MORI_E_NO_MEMORY,
                      "heap exhausted: {} bytes asked for (alignment {}), {} of {} free, largest "
                      "free block {}; raise MORI_SHMEM_HEAP_SIZE",
                      size_bytes, alignment_bytes, now.size_bytes - now.used_bytes, now.size_bytes,
                      now.largest_free_bytes);
  };
  if (size_bytes > now.size_bytes) return exhausted();
  const uint64_t bytes = round_up(size_bytes, shape_.granule_bytes) + shape_.guard_bytes;
  const uint64_t alignment = std::max(alignment_bytes, shape_.granule_bytes);
  uint64_t offset = 0;
  auto at = free_by_size_.lower_bound({bytes, 0});
  for (int looked_at = 0; at != free_by_size_.end() && looked_at < most_candidates; ++looked_at)
    if (take_from(at++, bytes, alignment, offset)) return offset;
  // Large enough wherever it lies.
  const auto sure = free_by_size_.lower_bound({bytes + alignment - shape_.granule_bytes, 0});
  if (sure != free_by_size_.end() && take_from(sure, bytes, alignment, offset)) return offset;
  while (at != free_by_size_.end())
    if (take_from(at++, bytes, alignment, offset)) return offset;
  return exhausted();
}

bool heap::take_from(std::set<std::pair<uint64_t, uint64_t>>::const_iterator candidate,
                     uint64_t bytes, uint64_t alignment_bytes, uint64_t& offset) {
  const auto [free_bytes, free_offset] = *candidate;
  const uint64_t aligned = round_up(free_offset, alignment_bytes);
  const uint64_t skipped = aligned - free_offset;
  if (skipped > free_bytes || free_bytes - skipped < bytes) return false;
  remove_free(free_offset, free_bytes);
  if (skipped > 0) add_free(free_offset, skipped);
  if (free_bytes - skipped > bytes) add_free(aligned + bytes, free_bytes - skipped - bytes);
  live_.emplace(aligned, bytes);
  fingerprint_ ^= mix(aligned, bytes);
  used_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  offset = aligned;
  return true;
}

base::result<heap::block> heap::free(uint64_t offset) {
  const auto found = live_.find(offset);
  if (found == live_.end()) {
    auto after = live_.upper_bound(offset);
    if (after != live_.begin() && (--after)->first + after->second > offset)
      return base::fail(MORI_E_NOT_FOUND,
                        "heap offset {} lies inside an allocation that starts at offset {}: free "
                        "its start",
                        offset, after->first);
    return base::fail(MORI_E_NOT_FOUND,
                      "heap offset {} is not a live allocation: freed twice or never allocated",
                      offset);
  }
  const block freed{found->first, found->second};
  live_.erase(found);
  fingerprint_ ^= mix(freed.offset, freed.bytes);
  used_bytes_ -= freed.bytes;

  uint64_t start = freed.offset;
  uint64_t bytes = freed.bytes;
  const auto next = free_.lower_bound(start);
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == start) {
      start = previous->first;
      bytes += previous->second;
    }
  }
  if (next != free_.end() && freed.offset + freed.bytes == next->first) {
    bytes += next->second;
    remove_free(next->first, next->second);
  }
  if (start != freed.offset) remove_free(start, freed.offset - start);
  add_free(start, bytes);
  return freed;
}

heap::block heap::free_block_at(uint64_t offset) const {
  auto after = free_.upper_bound(offset);
  if (after == free_.begin()) return {};
  const auto [start, bytes] = *--after;
  return offset < start + bytes ? block{start, bytes} : block{};
}

heap_statistics heap::statistics() const {
  const uint64_t largest = free_by_size_.empty() ? 0 : free_by_size_.rbegin()->first;
  return {.size_bytes = end_byte_ - first_byte_,
          .used_bytes = used_bytes_,
          .peak_bytes = peak_bytes_,
          .largest_free_bytes = largest - std::min(largest, shape_.guard_bytes),
          .allocation_count = live_.size(),
          .free_block_count = free_.size()};
}

void heap::add_free(uint64_t offset, uint64_t bytes) {
  free_.emplace(offset, bytes);
  free_by_size_.emplace(bytes, offset);
}

void heap::remove_free(uint64_t offset, uint64_t bytes) {
  free_.erase(offset);
  free_by_size_.erase({bytes, offset});
}

}  // namespace mori::shmem_core
