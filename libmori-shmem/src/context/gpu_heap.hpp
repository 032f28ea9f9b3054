// gpu_heap.hpp - the heaps of a node's PEs in GPU memory, mapped here. Each PE makes
// its own on its device and exports a descriptor, which the importers hold: a
// dead PE's memory stays mapped. Where a PE's driver cannot export descriptors, legacy IPC
// handles take their place for all, with a weaker promise: that mapping ends with its owner.
// A mapping counts only after a nonce was read back through it.
#pragma once

#include "context/heap_memory.hpp"

#include <mori/device/gpu_memory.hpp>
#include <mori/link/group.hpp>

#include <memory>
#include <string>
#include <vector>

namespace mori::shmem_core {

class gpu_heap final : public heap_memory {
 public:
  // Collective: succeeds or fails on all PEs alike.
  static base::result<std::unique_ptr<gpu_heap>> create(link::group& group, const settings& with,
                                                        base::deadline until);
  ~gpu_heap() override;

  uint64_t heap_base() const override { return base_; }
  // All of it is there from the start.
  base::status reserve(uint64_t, uint64_t) override { return {}; }
  base::status release(uint64_t, uint64_t) override { return {}; }
  base::status allow(uint64_t, uint64_t, bool) override { return {}; }

  const std::shared_ptr<device::gpu>& gpu() const { return gpu_; }
  int sharer_count() const { return sharer_count_; }  // PEs on this device

 private:
  struct card;  // what a PE tells the others of its device

  base::status open_device(const settings& with);
  base::status allocate(link::group& group, const settings& with);
  base::status show_cards(link::group& group, const settings& with, base::deadline until);
  base::status import_by_descriptor(link::group& group, base::deadline until);
  base::status import_by_handle(link::group& group, base::deadline until);
  base::status prove(link::group& group, base::deadline until);

  std::shared_ptr<device::gpu> gpu_;
  // By descriptor: the node's heaps lie in one range, at one stride; a place for each local PE.
  std::shared_ptr<device::address_range> range_;
  uint64_t stride_ = 0;
  device::mapped_memory own_mapping_;  // by descriptor, or
  device::device_buffer own_buffer_;   // by handle
  std::vector<device::mapped_memory> imported_;
  std::vector<uint64_t> opened_;  // by handle
  uint64_t base_ = 0;
  uint64_t bytes_ = 0;
  uint64_t alignment_ = 0;
  bool by_descriptor_ = false;
  int sharer_count_ = 1;
};

}  // namespace mori::shmem_core
