// segment_pool.hpp - the memory of mori_io_alloc: each allocation is a memfd of its own,
// mapped here, which same-node peers may map too (share_desk.hpp hands it out). Pages
// are taken at once, so that a full memory is a status and never a signal, and the size
// is sealed, so that nobody can shorten it under those who mapped it.
#pragma once

#include <mori/base/result.hpp>
#include <mori/base/unique_fd.hpp>
#include <mori/link/segment.hpp>

#include <array>
#include <map>
#include <mutex>
#include <optional>

namespace mori::io_core::local {

class segment_pool {
 public:
  // All engines of a process share it: a region may lie in memory of another engine.
  static segment_pool& of_process();

  segment_pool() = default;
  segment_pool(const segment_pool&) = delete;
  segment_pool& operator=(const segment_pool&) = delete;

  // Zeroed, page-aligned. MORI_E_INVALID (0, too large), MORI_E_NO_MEMORY.
  base::result<void*> allocate(uint64_t bytes);
  // MORI_E_NOT_FOUND: no start of an allocation. Mappings of others keep its pages.
  base::status free(void* start);

  struct place {
    uint64_t serial = 0;  // of the segment, never used again
    uint64_t offset = 0;  // in it
    uint64_t file_bytes = 0;
    // At file_bytes - nonce_bytes, where who maps the file finds it.
    std::array<uint8_t, 16> nonce{};
  };
  static constexpr uint64_t nonce_bytes = 16;
  // Where [address, address + bytes) lies, if it lies in one segment.
  std::optional<place> find(const void* address, uint64_t bytes) const;
  // A descriptor of its own of that segment. Read-only ones cannot be mapped writable.
  base::result<base::unique_fd> open(uint64_t serial, bool writable) const;

 private:
  struct entry {
    uint64_t serial = 0;
    uint64_t bytes = 0;  // as the caller asked; the file has a page more
    std::array<uint8_t, 16> nonce{};
    uint32_t generation = 0;  // fork()ed children do not have what was made before
    link::segment memory;
  };
  // Held across fork(), so nothing that opens or closes files happens under it.
  mutable std::mutex lock_;
  std::map<uint64_t, entry> by_address_;
  uint64_t last_serial_ = 0;
};

}  // namespace mori::io_core::local
