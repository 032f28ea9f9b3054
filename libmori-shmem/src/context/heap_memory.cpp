// heap_memory.cpp - see heap_memory.hpp.
#include "context/heap_memory.hpp"

#include <sys/random.h>

#include <algorithm>
#include <bit>

namespace mori::shmem_core {

uint64_t heap_boundary_bytes(uint64_t heap_bytes) {
  return std::clamp(std::bit_ceil(heap_bytes), uint64_t{2} << 20, heap::largest_alignment_bytes);
}

bool heap_memory::maps_all() const {
  return std::ranges::all_of(peers_, [](const peer_access& peer) { return peer.base != 0; });
}

// Around the own PE, as far as numbers and addresses go on without a gap.
void heap_memory::find_stride(std::span<const int> local, int own_pe, uint64_t stride_bytes) {
  const auto fits = [&](int pe) {
    const uint64_t base = peers_[static_cast<size_t>(pe)].base;
    const auto steps = static_cast<uint64_t>(static_cast<int64_t>(pe) - own_pe);
    return std::ranges::binary_search(local, pe) && base != 0 &&
           base == peers_[static_cast<size_t>(own_pe)].base + steps * stride_bytes;
  };
  int first = own_pe, last = own_pe;
  while (first > 0 && fits(first - 1)) --first;
  while (last + 1 < static_cast<int>(peers_.size()) && fits(last + 1)) ++last;
  strided_ = {first, last - first + 1, stride_bytes};
}

void heap_memory::note_network(int pe, const std::string& how) {
  peer_access& peer = peers_[static_cast<size_t>(pe)];
  peer.transport = MORI_SHMEM_TRANSPORT_TCP;
  peer.reason = peer.reason.empty() ? how : how + "; " + peer.reason;
}

layout layout_of(const settings& with) {
  constexpr uint64_t page_bytes = 4096;
  switch (with.heap_mode) {
    case MORI_SHMEM_HEAP_VMM: return {{}, with.vmm_chunk_bytes};
    // A page that nobody may touch behind each allocation.
    case MORI_SHMEM_HEAP_ISOLATION: return {{page_bytes, page_bytes}, page_bytes};
    default: return {{}, page_bytes};
  }
}

uint64_t random_nonce() {
  uint64_t nonce = 0;
  while (nonce == 0)
    if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce) nonce = base::now_ns() | 1;
  return nonce;
}

}  // namespace mori::shmem_core
