// heap_memory.hpp - the heaps of a node's PEs as one PE has them mapped: what is
// the same for host memory (node_memory.hpp) and for a GPU's (gpu_heap.hpp).
#pragma once

#include "context/settings.hpp"
#include "heap/heap.hpp"

#include <mori/shmem_device.h>
#include <mori/base/clock.hpp>
#include <mori/base/result.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace mori::shmem_core {

struct peer_access {
  uint64_t base = 0;  // 0: not mapped
  int32_t transport = MORI_SHMEM_TRANSPORT_NONE;
  std::string reason;
};

class heap_memory {
 public:
  virtual ~heap_memory() = default;

  virtual uint64_t heap_base() const = 0;
  const std::vector<peer_access>& peers() const { return peers_; }
  // PEs whose heaps are mapped at one stride by their number; none where count is 0.
  struct strided_peers {
    int first = 0;
    int count = 0;
    uint64_t stride_bytes = 0;
  };
  const strided_peers& strided() const { return strided_; }
  bool all_mapped() const { return all_mapped_; }  // the same answer on all PEs

  // This PE reaches `pe`, which is not mapped, by the network; how is put before why not mapped.
  void note_network(int pe, const std::string& how);

  // Takes and gives back memory behind a part of the own heap; offsets within it.
  virtual base::status reserve(uint64_t offset, uint64_t bytes) = 0;
  virtual base::status release(uint64_t offset, uint64_t bytes) = 0;
  // Isolation: this part of each heap that is mapped here can be touched, or no longer.
  virtual base::status allow(uint64_t offset, uint64_t bytes, bool access) = 0;

 protected:
  bool maps_all() const;
  // From what peers_ says, for the PEs of this node, which are numbered upwards.
  void find_stride(std::span<const int> local, int own_pe, uint64_t stride_bytes);

  std::vector<peer_access> peers_;
  strided_peers strided_;
  bool all_mapped_ = false;
};

// How allocations lie in a heap of this mode, and in which steps it takes memory.
struct layout {
  heap_shape shape;
  uint64_t step_bytes = 4096;
};
layout layout_of(const settings& with);

// Bytes at the start of a heap that are the library's own.
inline constexpr uint64_t heap_header_bytes = (sizeof(mori_shmem_sync_v1) + 4095) / 4096 * 4096;

// Where heaps start in memory: on huge pages at least, and so that every alignment that an
// allocation of this heap can have holds for its address.
uint64_t heap_boundary_bytes(uint64_t heap_bytes);

// Proof that a mapping reaches a PE; never 0.
uint64_t random_nonce();

}  // namespace mori::shmem_core
