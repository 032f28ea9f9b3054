// backing.hpp - which parts of a heap have memory behind them: pure bookkeeping over
// offsets. Memory is taken and given back in steps (a page, or the chunk of a heap
// that grows); a step stays while any part of it is allocated. See heap.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace mori::shmem_core {

class backing {
 public:
  struct range {
    uint64_t start = 0;
    uint64_t end = 0;
    bool operator==(const range&) const = default;
  };

  // Of offsets first_byte .. end_byte; steps begin at multiples of step_bytes, a power of two, the
  // first and the last may be shorter.
  backing(uint64_t first_byte, uint64_t end_byte, uint64_t step_bytes);

  // What is to be taken so that all of `wanted` has memory.
  std::vector<range> missing(range wanted) const;
  // What of `freed` can be given back, when `unused` around it is not allocated.
  std::vector<range> surplus(range freed, range unused) const;

  void add(range taken);
  void remove(range given_back);

  uint64_t bytes() const { return bytes_; }
  uint64_t step_bytes() const { return step_bytes_; }

 private:
  uint64_t down(uint64_t offset) const;
  uint64_t up(uint64_t offset) const;

  uint64_t first_byte_;
  uint64_t end_byte_;
  uint64_t step_bytes_;
  uint64_t bytes_ = 0;
  std::map<uint64_t, uint64_t> held_;  // start -> end, neither touching nor overlapping
};

}  // namespace mori::shmem_core
