// heap.hpp - places allocations in the symmetric heap: pure bookkeeping over
// offsets, no memory touched, no clock, no peers. All PEs run the same
// sequence and so place alike; `fingerprint` lets them prove it. Best fit with
// coalescing, O(log n). Read context/memory.cpp next for the collective part.
#pragma once

#include <mori/base/result.hpp>

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace mori::shmem_core {

struct heap_statistics {
  uint64_t size_bytes = 0;  // what can be handed out, free or not
  uint64_t used_bytes = 0;
  uint64_t peak_bytes = 0;
  uint64_t largest_free_bytes = 0;
  uint64_t allocation_count = 0;
};

class heap {
 public:
  static constexpr uint64_t granule_bytes = 256;  // every block starts and ends on one
  static constexpr uint64_t largest_alignment_bytes = uint64_t{1} << 30;

  // Hands out [first_byte, end_byte); both multiples of the granule.
  heap(uint64_t first_byte, uint64_t end_byte);

  static base::status check_alignment(uint64_t alignment_bytes);

  // size_bytes > 0, alignment a power of two. MORI_E_NO_MEMORY names what was
  // asked for, what is free and the largest free block.
  base::result<uint64_t> allocate(uint64_t size_bytes, uint64_t alignment_bytes);

  struct block {
    uint64_t offset = 0;
    uint64_t bytes = 0;  // rounded up to granules
  };
  // MORI_E_NOT_FOUND unless offset is the start of a live allocation.
  base::result<block> free(uint64_t offset);

  heap_statistics statistics() const;

  // Same on PEs whose live allocations are the same, in whatever order freed.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  void add_free(uint64_t offset, uint64_t bytes);
  void remove_free(uint64_t offset, uint64_t bytes);

  uint64_t first_byte_;
  uint64_t end_byte_;
  uint64_t used_bytes_ = 0;
  uint64_t peak_bytes_ = 0;
  uint64_t fingerprint_ = 0;
  std::map<uint64_t, uint64_t> live_;                     // offset -> bytes
  std::map<uint64_t, uint64_t> free_;                     // offset -> bytes
  std::set<std::pair<uint64_t, uint64_t>> free_by_size_;  // (bytes, offset)
};

}  // namespace mori::shmem_core
