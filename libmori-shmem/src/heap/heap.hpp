// heap.hpp - places allocations in the symmetric heap: pure bookkeeping over
// offsets, no memory touched, no clock, no peers. All PEs run the same
// sequence and so place alike; `fingerprint` lets them prove it. Best fit with
// coalescing, O(log n); see allocate for large alignments. What memory is behind
// it, backing.hpp says; the collective part is context/memory.cpp.
#pragma once

#include <mori/base/result.hpp>

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace mori::shmem_core {

// Blocks start and end on granules; after each, guard_bytes belong to nobody.
struct heap_shape {
  uint64_t granule_bytes = 256;
  uint64_t guard_bytes = 0;
};

struct heap_statistics {
  uint64_t size_bytes = 0;  // what can be handed out, free or not
  uint64_t used_bytes = 0;
  uint64_t peak_bytes = 0;
  uint64_t largest_free_bytes = 0;
  uint64_t allocation_count = 0;
  uint64_t free_block_count = 0;
};

class heap {
 public:
  static constexpr uint64_t granule_bytes = 256;  // of the usual shape
  static constexpr uint64_t largest_alignment_bytes = uint64_t{1} << 30;

  // Hands out [first_byte, end_byte); both, and the guard, multiples of the granule.
  heap(uint64_t first_byte, uint64_t end_byte, const heap_shape& shape = {});

  static base::status check_alignment(uint64_t alignment_bytes);

  // size_bytes > 0, alignment a power of two. MORI_E_NO_MEMORY names what was
  // asked for, what is free and the largest free block. The smallest block that fits is taken;
  // with an alignment beyond the granule, of those looked at: the next few by size, then the
  // first that is large enough wherever it lies, and all others only if there is no such block.
  base::result<uint64_t> allocate(uint64_t size_bytes, uint64_t alignment_bytes);

  struct block {
    uint64_t offset = 0;
    uint64_t bytes = 0;  // rounded up to granules, with its guard
  };
  // MORI_E_NOT_FOUND unless offset is the start of a live allocation.
  base::result<block> free(uint64_t offset);

  // The free block that holds this offset; empty if it is allocated.
  block free_block_at(uint64_t offset) const;

  heap_statistics statistics() const;

  // Same on PEs whose live allocations are the same, in whatever order freed.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  bool take_from(std::set<std::pair<uint64_t, uint64_t>>::const_iterator candidate, uint64_t bytes,
                 uint64_t alignment_bytes, uint64_t& offset);
  void add_free(uint64_t offset, uint64_t bytes);
  void remove_free(uint64_t offset, uint64_t bytes);

  uint64_t first_byte_;
  uint64_t end_byte_;
  heap_shape shape_;
  uint64_t used_bytes_ = 0;
  uint64_t peak_bytes_ = 0;
  uint64_t fingerprint_ = 0;
  std::map<uint64_t, uint64_t> live_;                     // offset -> bytes
  std::map<uint64_t, uint64_t> free_;                     // offset -> bytes
  std::set<std::pair<uint64_t, uint64_t>> free_by_size_;  // (bytes, offset)
};

}  // namespace mori::shmem_core
