// inbox.cpp - see inbox.hpp.
#include "engine/inbox.hpp"

#include <algorithm>
#include <cstring>

namespace mori::io_core {

uint32_t inbox::peer_number(std::string_view key) {
  const std::lock_guard guard(lock_);
  const auto [found, is_new] =
      numbers_.try_emplace(std::string(key), static_cast<uint32_t>(keys_.size()));
  if (is_new) keys_.emplace_back(key);
  return found->second;
}

size_t inbox::bucket_of(uint32_t peer, uint64_t uid) const {
  uint64_t mixed = (uid ^ uint64_t{peer} << 40) * 0x9E3779B97F4A7C15u;
  mixed ^= mixed >> 32;
  return mixed & (buckets_.size() - 1);
}

void inbox::grow_buckets() {
  buckets_.assign(std::max<size_t>(1024, 2 * buckets_.size()), none);
  // Newest first, so that older ones end up in front.
  for (uint32_t each = newest_; each != none; each = entries_[each].older) {
    uint32_t& bucket = buckets_[bucket_of(entries_[each].peer, entries_[each].uid)];
    entries_[each].next = bucket;
    bucket = each;
  }
}

void inbox::link(uint32_t index) {
  entry& of = entries_[index];
  of.older = newest_;
  of.newer = none;
  (newest_ != none ? entries_[newest_].newer : oldest_) = index;
  newest_ = index;
  uint32_t* place = &buckets_[bucket_of(of.peer, of.uid)];
  while (*place != none) place = &entries_[*place].next;
  *place = index;
  of.next = none;
  ++count_;
}

void inbox::unlink(uint32_t index) {
  entry& of = entries_[index];
  uint32_t* place = &buckets_[bucket_of(of.peer, of.uid)];
  while (*place != index) place = &entries_[*place].next;
  *place = of.next;
  (of.older != none ? entries_[of.older].newer : oldest_) = of.newer;
  (of.newer != none ? entries_[of.newer].older : newest_) = of.older;
  of.next = free_;
  free_ = index;
  --count_;
}

bool inbox::push(uint32_t peer, const notification& what) {
  const std::lock_guard guard(lock_);
  ++received_[what.moved_elsewhere];
  const bool is_full = count_ >= limit_;
  if (is_full) {
    ++dropped_[entries_[oldest_].moved_elsewhere];
    unlink(oldest_);
  }
  if (free_ == none) {
    free_ = static_cast<uint32_t>(entries_.size());
    entries_.emplace_back();
  }
  if (entries_.size() > buckets_.size()) grow_buckets();
  const uint32_t index = free_;
  entry& of = entries_[index];
  free_ = of.next;
  of.uid = what.uid;
  of.total_bytes = what.total_bytes;
  of.peer = peer;
  of.region = what.region;
  of.operation = what.operation;
  of.moved_elsewhere = what.moved_elsewhere;
  of.metadata.assign(what.metadata.begin(), what.metadata.end());
  link(index);
  return !is_full;
}

void inbox::take(uint32_t index, mori_io_inbound& out) {
  const entry& of = entries_[index];
  const std::string& key = keys_[of.peer];
  out.uid = of.uid;
  out.size_bytes = of.total_bytes;
  out.operation = of.operation;
  out.memory_id = of.region;
  out.metadata_bytes = static_cast<uint32_t>(of.metadata.size());
  std::memcpy(out.peer_key, key.c_str(), std::min(key.size() + 1, sizeof out.peer_key - 1));
  if (!of.metadata.empty()) std::memcpy(out.metadata, of.metadata.data(), of.metadata.size());
  unlink(index);
}

bool inbox::pop(std::string_view key, uint64_t uid, mori_io_inbound& out) {
  const std::lock_guard guard(lock_);
  if (count_ == 0) return false;
  const auto found = numbers_.find(key);
  if (found == numbers_.end()) return false;
  for (uint32_t each = buckets_[bucket_of(found->second, uid)]; each != none;
       each = entries_[each].next) {
    if (entries_[each].peer != found->second || entries_[each].uid != uid) continue;
    take(each, out);
    return true;
  }
  return false;
}

bool inbox::next(mori_io_inbound& out) {
  const std::lock_guard guard(lock_);
  if (oldest_ == none) return false;
  take(oldest_, out);
  return true;
}

bool inbox::empty() const {
  const std::lock_guard guard(lock_);
  return count_ == 0;
}
uint64_t inbox::received_count(bool moved_elsewhere) const {
  const std::lock_guard guard(lock_);
  return received_[moved_elsewhere];
}
uint64_t inbox::dropped_count(bool moved_elsewhere) const {
  const std::lock_guard guard(lock_);
  return dropped_[moved_elsewhere];
}

}  // namespace mori::io_core
