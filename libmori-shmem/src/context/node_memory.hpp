// node_memory.hpp - the heaps of all PEs of one node, mapped here. They are one
// file: the node's first PE creates it and passes its descriptor, so n PEs need
// n mappings and not n * n, and a dead PE's memory stays mapped. A mapping
// counts only after a nonce was read back through it; where sharing fails, each
// PE falls back to a heap of its own and the reason is kept.
#pragma once

#include "context/settings.hpp"

#include <mori/shmem_device.h>
#include <mori/base/clock.hpp>
#include <mori/base/result.hpp>
#include <mori/link/group.hpp>
#include <mori/link/segment.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mori::shmem_core {

struct peer_access {
  uint64_t base = 0;  // 0: not mapped
  int32_t transport = MORI_SHMEM_TRANSPORT_NONE;
  std::string reason;
};

class node_memory {
 public:
  // Collective: succeeds or fails on all PEs alike.
  static base::result<node_memory> create(link::group& group, const settings& with,
                                          base::deadline until);

  std::byte* own_heap() const { return segment_.data() + own_offset_; }
  mori_shmem_sync_v1& sync() const { return *reinterpret_cast<mori_shmem_sync_v1*>(own_heap()); }
  const std::vector<peer_access>& peers() const { return peers_; }
  bool all_mapped() const { return all_mapped_; }  // the same answer on all PEs

  // Offsets within the own heap.
  base::status reserve(uint64_t offset, uint64_t bytes) {
    return segment_.reserve(own_offset_ + offset, bytes);
  }
  base::status release(uint64_t offset, uint64_t bytes) {
    return segment_.release(own_offset_ + offset, bytes);
  }

 private:
  link::segment segment_;
  uint64_t own_offset_ = 0;
  std::vector<peer_access> peers_;
  bool all_mapped_ = false;
};

// Bytes at the start of a heap that are the library's own.
inline constexpr uint64_t heap_header_bytes = (sizeof(mori_shmem_sync_v1) + 4095) / 4096 * 4096;

}  // namespace mori::shmem_core
