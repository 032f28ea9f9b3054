// journal.hpp - what a target remembers of an initiator's transfers, so that none
// is done twice: the outcome of each sequence from the floor up, which survives
// lost connections. The initiator moves the floor; below it nobody asks again.
#pragma once

#include <mori/base.h>

#include <cstdint>
#include <map>
#include <vector>

namespace mori::io_core::protocol {

// Most sequences that may be unfinished at once; both sides know it.
inline constexpr uint64_t window_count = 65536;

class journal {
 public:
  enum class entry { unknown, delivered, failed };

  uint64_t floor() const { return floor_; }
  bool within(uint64_t sequence) const {
    return sequence >= floor_ && sequence - floor_ < window_count;
  }

  void raise_floor(uint64_t floor) {
    if (floor <= floor_) return;
    if (floor - floor_ >= window_count)
      bits_.assign(bits_.size(), 0);
    else
      for (uint64_t each = floor_; each < floor; ++each) clear(each);
    floor_ = floor;
    failures_.erase(failures_.begin(), failures_.lower_bound(floor));
  }

  // sequence: within().
  entry look_up(uint64_t sequence) const {
    if (is_set(sequence)) return entry::delivered;
    return !failures_.empty() && failures_.contains(sequence) ? entry::failed : entry::unknown;
  }
  mori_status failure_of(uint64_t sequence) const { return failures_.at(sequence); }

  void mark_delivered(uint64_t sequence) {
    if (bits_.empty()) bits_.assign(window_count / 64, 0);
    bits_[sequence % window_count / 64] |= uint64_t{1} << sequence % 64;
  }
  void mark_failed(uint64_t sequence, mori_status status) { failures_[sequence] = status; }

 private:
  bool is_set(uint64_t sequence) const {
    return !bits_.empty() && (bits_[sequence % window_count / 64] >> sequence % 64 & 1) != 0;
  }
  void clear(uint64_t sequence) {
    if (!bits_.empty()) bits_[sequence % window_count / 64] &= ~(uint64_t{1} << sequence % 64);
  }

  uint64_t floor_ = 1;
  std::vector<uint64_t> bits_;
  std::map<uint64_t, mori_status> failures_;  // few: at most a window of them
};

}  // namespace mori::io_core::protocol
