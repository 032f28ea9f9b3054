// staging.cpp - see staging.hpp.
#include "local/staging.hpp"

#include <algorithm>

namespace mori::io_core::local {
namespace {

constexpr uint64_t alignment = 4096;
constexpr size_t fewest_slots = 4;

}  // namespace

base::result<std::shared_ptr<staging_pool>> staging_pool::create(std::shared_ptr<gpu_copier> by,
                                                                 uint64_t bytes) {
  if (bytes < least_bytes)
    return base::fail(MORI_E_INVALID, "staging of {} bytes is below {}", bytes, least_bytes);
  std::shared_ptr<staging_pool> made(new staging_pool(std::move(by)));
  made->slot_bytes_ = std::min(largest_slot_bytes, bytes / fewest_slots / alignment * alignment);
  made->slot_count_ = static_cast<size_t>(bytes / made->slot_bytes_);
  MORI_TRY(made->memory_, device::pinned_buffer::allocate(made->by_->gpu(),
                                                          made->slot_bytes_ * made->slot_count_));
  for (size_t i = made->slot_count_; i > 0; --i)
    made->free_.push_back(made->memory_.data() + (i - 1) * made->slot_bytes_);
  return made;
}

size_t staging_pool::free_count() const {
  const std::lock_guard guard(lock_);
  return free_.size();
}

std::byte* staging_pool::take() {
  const std::lock_guard guard(lock_);
  if (free_.empty()) return nullptr;
  std::byte* const slot = free_.back();
  free_.pop_back();
  return slot;
}

void staging_pool::give(std::byte* slot) {
  const std::lock_guard guard(lock_);
  free_.push_back(slot);
}

staged_stream::staged_stream(std::shared_ptr<staging_pool> pool, std::span<const gpu_piece> pieces)
    : pool_(std::move(pool)), pieces_(pieces) {
  for (const gpu_piece& each : pieces) total_bytes_ += each.bytes;
}

std::vector<copy_entry> staged_stream::cut(std::byte* slot, uint64_t bytes, bool to_slot) {
  std::vector<copy_entry> made;
  uint64_t at = device::address_of(slot);
  while (bytes > 0 && piece_ < pieces_.size()) {
    const gpu_piece& each = pieces_[piece_];
    const uint64_t take = std::min(bytes, each.bytes - piece_bytes_);
    const uint64_t there = each.address + piece_bytes_;
    if (take > 0)
      made.push_back(to_slot ? copy_entry{at, there, take} : copy_entry{there, at, take});
    at += take;
    bytes -= take;
    cut_bytes_ += take;
    piece_bytes_ += take;
    if (piece_bytes_ < each.bytes) continue;
    ++piece_;
    piece_bytes_ = 0;
  }
  return made;
}

base::result<bool> staged_stream::step(stage& what) const {
  gpu_copier& by = pool_->copier();
  while (!what.is_copied) {
    MORI_TRY(const bool is_over, by.is_over(what.flight));
    if (!is_over) return false;
    if (what.started == what.copies.size()) {
      what.is_copied = true;
      break;
    }
    const auto left = std::span<const copy_entry>(what.copies).subspan(what.started);
    MORI_TRY(const size_t started, by.start(left, what.flight));
    if (started == 0) return false;
    what.started += started;
  }
  return true;
}

void staged_stream::abandon() {
  for (stage& each : stages_) {
    (void)pool_->copier().wait(each.flight);
    pool_->give(each.slot);
  }
  stages_.clear();
}

base::result<std::span<const std::byte>> staged_source::ready() {
  while (cut_bytes_ < total_bytes_ && stages_.size() < staging_pool::slots_of_stream) {
    std::byte* const slot = pool_->take();
    if (slot == nullptr) break;
    stage fresh;
    fresh.slot = slot;
    fresh.bytes = std::min(pool_->slot_bytes(), total_bytes_ - cut_bytes_);
    fresh.copies = cut(slot, fresh.bytes, true);
    stages_.push_back(std::move(fresh));
  }
  bool front_is_ready = false;
  for (stage& each : stages_) {
    MORI_TRY(const bool is_copied, step(each));
    if (&each == &stages_.front()) front_is_ready = is_copied;
  }
  if (!front_is_ready) return std::span<const std::byte>();
  const stage& front = stages_.front();
  return std::span<const std::byte>(front.slot + front.used, front.bytes - front.used);
}

void staged_source::consume(uint64_t bytes) {
  if (bytes == 0) return;
  stage& front = stages_.front();
  front.used += bytes;
  consumed_bytes_ += bytes;
  if (front.used < front.bytes) return;
  pool_->give(front.slot);
  stages_.pop_front();
}

// Gives back what the device has.
base::status staged_sink::retire() {
  for (stage& each : stages_) {
    if (each.used < each.bytes) continue;
    MORI_TRY([[maybe_unused]] const bool is_copied, step(each));
  }
  while (!stages_.empty() && stages_.front().is_copied) {
    pool_->give(stages_.front().slot);
    stages_.pop_front();
  }
  return {};
}

base::result<std::span<std::byte>> staged_sink::room() {
  MORI_CHECK(retire());
  if (is_filled()) return std::span<std::byte>();
  const bool has_open = !stages_.empty() && stages_.back().used < stages_.back().bytes;
  if (!has_open) {
    if (stages_.size() == staging_pool::slots_of_stream) return std::span<std::byte>();
    std::byte* const slot = pool_->take();
    if (slot == nullptr) return std::span<std::byte>();
    stage fresh;
    fresh.slot = slot;
    fresh.bytes = std::min(pool_->slot_bytes(), total_bytes_ - filled_bytes_);
    fresh.copies = cut(slot, fresh.bytes, false);
    stages_.push_back(std::move(fresh));
  }
  const stage& open = stages_.back();
  return std::span<std::byte>(open.slot + open.used, open.bytes - open.used);
}

base::status staged_sink::commit(uint64_t bytes) {
  if (bytes == 0) return {};
  stages_.back().used += bytes;
  filled_bytes_ += bytes;
  return retire();
}

base::result<bool> staged_sink::is_over() {
  MORI_CHECK(retire());
  return is_filled() && stages_.empty();
}

}  // namespace mori::io_core::local
