// heap_memory.cpp - see heap_memory.hpp.
#include "context/heap_memory.hpp"

#include "heap/heap.hpp"

#include <sys/random.h>

#include <algorithm>
#include <bit>

namespace mori::shmem_core {

uint64_t heap_boundary_bytes(uint64_t heap_bytes) {
  return std::clamp(std::bit_ceil(heap_bytes), uint64_t{2} << 20, heap::largest_alignment_bytes);
}

uint64_t random_nonce() {
  uint64_t nonce = 0;
  while (nonce == 0)
    if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce) nonce = base::now_ns() | 1;
  return nonce;
}

}  // namespace mori::shmem_core
