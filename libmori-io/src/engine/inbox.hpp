// inbox.hpp - notifications that came in and were not taken yet: each is taken once,
// by (peer, uid) or oldest first; beyond the limit the oldest is dropped. A lock of
// its own: those who take never wait for the network.
#pragma once

#include <mori/io_types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace mori::io_core {

class inbox {
 public:
  explicit inbox(uint32_t limit) : limit_(limit) {}

  struct notification {
    uint64_t uid = 0;
    uint64_t total_bytes = 0;
    uint32_t region = 0;
    int32_t operation = 0;
    bool moved_elsewhere = false;  // by another way than the link
    std::span<const std::byte> metadata;
  };

  // A number for a peer's key, for push().
  uint32_t peer_number(std::string_view key);
  // False: the oldest was dropped for it.
  bool push(uint32_t peer, const notification& what);
  // Fill all but struct_size; false: there is none.
  bool pop(std::string_view key, uint64_t uid, mori_io_inbound& out);
  bool next(mori_io_inbound& out);

  bool empty() const;
  // By whether the bytes had moved elsewhere.
  uint64_t received_count(bool moved_elsewhere) const;
  uint64_t dropped_count(bool moved_elsewhere) const;

 private:
  static constexpr uint32_t none = UINT32_MAX;
  struct entry {
    uint64_t uid = 0;
    uint64_t total_bytes = 0;
    uint32_t peer = 0;
    uint32_t region = 0;
    int32_t operation = 0;
    bool moved_elsewhere = false;
    uint32_t older = none, newer = none;  // in order of arrival
    uint32_t next = none;                 // in its bucket, older ones first; or free
    std::vector<std::byte> metadata;
  };

  size_t bucket_of(uint32_t peer, uint64_t uid) const;
  void grow_buckets();
  void link(uint32_t index);
  void unlink(uint32_t index);
  void take(uint32_t index, mori_io_inbound& out);

  mutable std::mutex lock_;
  const uint32_t limit_;
  // Found by a view, without a copy of the key.
  struct text_hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, uint32_t, text_hash, std::equal_to<>> numbers_;
  std::vector<std::string> keys_;
  std::vector<entry> entries_;
  std::vector<uint32_t> buckets_;  // a power of two long
  uint32_t oldest_ = none, newest_ = none, free_ = none;
  uint32_t count_ = 0;
  std::array<uint64_t, 2> received_{}, dropped_{};  // by moved_elsewhere
};

}  // namespace mori::io_core
