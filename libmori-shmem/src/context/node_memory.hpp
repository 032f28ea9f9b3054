// node_memory.hpp - the heaps of all PEs of one node, mapped here. They are one
// file: the node's first PE creates it and passes its descriptor, so n PEs need
// n mappings and not n * n, and a dead PE's memory stays mapped. A mapping
// counts only after a nonce was read back through it; where sharing fails, each
// PE falls back to a heap of its own and the reason is kept.
#pragma once

#include "context/heap_memory.hpp"

#include <mori/link/group.hpp>
#include <mori/link/segment.hpp>

#include <cstddef>
#include <memory>

namespace mori::shmem_core {

class node_memory final : public heap_memory {
 public:
  // Collective: succeeds or fails on all PEs alike.
  static base::result<std::unique_ptr<node_memory>> create(link::group& group, const settings& with,
                                                           base::deadline until);

  std::byte* own_heap() const { return segment_.data() + own_offset_; }
  mori_shmem_sync_v1& sync() const { return *reinterpret_cast<mori_shmem_sync_v1*>(own_heap()); }

  uint64_t heap_base() const override { return reinterpret_cast<uint64_t>(own_heap()); }
  base::status reserve(uint64_t offset, uint64_t bytes) override {
    return segment_.reserve(own_offset_ + offset, bytes);
  }
  base::status release(uint64_t offset, uint64_t bytes) override {
    return segment_.release(own_offset_ + offset, bytes);
  }
  base::status allow(uint64_t offset, uint64_t bytes, bool access) override;

 private:
  // Memory for the header; in isolation nothing else may be touched yet.
  base::status begin(const settings& with);
  link::segment segment_;
  uint64_t own_offset_ = 0;
  uint64_t stride_ = 0;  // between the heaps in the segment
};

}  // namespace mori::shmem_core
