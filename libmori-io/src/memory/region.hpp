// region.hpp - memory of this process that an engine may move bytes to and from,
// with what peers need to know of it. Immutable once registered: whoever holds
// one (shared_ptr: the registry, sessions, transfers under way) sees the same
// facts for ever, also after it was deregistered; `revoked` then says so.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "wire/descriptor.hpp"

namespace mori::io_core::memory {

struct region {
  uint32_t id = 0;
  std::byte* begin = nullptr;  // an address of the device where location is GPU
  uint64_t size_bytes = 0;
  int32_t location = 1;  // MORI_IO_LOCATION_CPU or _GPU
  int32_t device = -1;
  int32_t access = 3;  // MORI_IO_ACCESS_*
  std::string device_bus_id;
  int32_t numa_node = -1;
  wire::capability read_capability{};
  wire::capability write_capability{};
  std::vector<wire::desc_blob> blobs;  // written by backends while it is registered
  std::atomic<bool> revoked{false};
};

// Moves bytes between local_offset and remote_offset, both within their regions.
struct piece {
  uint64_t local_offset = 0;
  uint64_t remote_offset = 0;
  uint64_t bytes = 0;
};

// Whether [offset, offset + bytes) lies within a region of `size` bytes; never overflows.
constexpr bool inside(uint64_t offset, uint64_t bytes, uint64_t size) {
  return bytes <= size && offset <= size - bytes;
}

}  // namespace mori::io_core::memory
