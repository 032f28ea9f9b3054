// mapping.hpp - segments of other processes mapped here: fetched once from the owner's
// desk, proven by the nonce in them, shared by all who use them, and unmapped with the
// last one. Read segment_pool.hpp and share_desk.hpp first.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "local/segment_pool.hpp"
#include "local/share_desk.hpp"
#include "local/work.hpp"

namespace mori::io_core::local {

// What the owner says of a region in a segment; goes into its memory descriptor.
struct segment_offer {
  invitation from;
  uint64_t serial = 0;
  uint64_t file_bytes = 0;
  uint64_t offset = 0;  // of the region
  bool writable = false;
  std::array<uint8_t, 16> nonce{};
};
link::byte_vector encode(const segment_offer& what);
base::result<segment_offer> decode_segment_offer(link::byte_span bytes);

// Offers [address, address + bytes) at the desk, if it lies in a segment of this process.
std::optional<segment_offer> offer_segment(share_desk& desk, const void* address, uint64_t bytes,
                                           bool writable);

// A whole segment, mapped.
class mapping {
 public:
  // MORI_E_PROTOCOL: not what was offered. MORI_E_UNAVAILABLE and others: as the desk answers.
  static base::result<std::shared_ptr<mapping>> fetch(const segment_offer& offer,
                                                      base::deadline until);
  mapping(const mapping&) = delete;
  mapping& operator=(const mapping&) = delete;
  ~mapping();

  std::byte* data() const { return data_; }
  bool is_writable() const { return writable_; }

 private:
  mapping(std::byte* data, uint64_t bytes, bool writable)
      : data_(data), bytes_(bytes), writable_(writable) {}
  std::byte* const data_;
  const uint64_t bytes_;
  const bool writable_;
};

// Those in use, so that each is mapped once.
class mapping_cache {
 public:
  base::result<std::shared_ptr<mapping>> get(const segment_offer& offer, base::deadline until);

 private:
  struct key {
    std::array<uint8_t, 16> desk;
    uint64_t serial;
    bool writable;
    auto operator<=>(const key&) const = default;
  };
  std::mutex lock_;
  std::map<key, std::weak_ptr<mapping>> all_;
};

// Moves at most `budget` bytes between memory that is mapped here on both sides.
void move_mapped(const work& what, position& at, uint64_t budget);

}  // namespace mori::io_core::local
