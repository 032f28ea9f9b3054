// ring_reader.cpp - see ring_reader.hpp.
#include "network/ring_reader.hpp"

#include <mori/device/wait.hpp>

namespace mori::shmem_core {
namespace {

using device::order;
using device::pointer;
using device::scope;

}  // namespace

ring_reader::ring_reader(const mori_shmem_ring_v1& of, int pe_count)
    : ring_(of), completed_(static_cast<std::size_t>(pe_count), 0) {}

const mori_shmem_command_v1* ring_reader::peek() const {
  const auto* slot = pointer<const mori_shmem_command_v1>(ring_.commands) + (head_ & mask());
  return device::load<scope::system, order::acquire>(&slot->turn) == head_ + 1 ? slot : nullptr;
}

uint64_t ring_reader::take() {
  unfinished_.push_back(true);
  return head_++;
}

void ring_reader::answer(uint64_t index, uint64_t value) {
  auto* cell = pointer<mori_shmem_answer_v1>(ring_.answers) + (index & mask());
  cell->value = value;
  device::store<scope::system, order::release>(&cell->turn, index + 1);
  answered_ = true;
}

void ring_reader::finish(uint64_t index, int pe) {
  const auto at = static_cast<std::size_t>(pe);
  if (completed_[at]++ ==
      device::load<scope::system, order::relaxed>(pointer<const uint64_t>(ring_.completed) + at))
    changed_.push_back(pe);
  unfinished_[index - done_] = false;
  while (!unfinished_.empty() && !unfinished_.front()) {
    unfinished_.pop_front();
    ++done_;
  }
}

void ring_reader::publish() {
  const bool news = head_ != published_head_ || done_ != published_done_ || !changed_.empty();
  if (!news && !answered_) return;
  if (head_ != published_head_)
    device::store<scope::system, order::release>(pointer<uint64_t>(ring_.taken), head_);
  for (const int pe : changed_)
    device::store<scope::system, order::release>(pointer<uint64_t>(ring_.completed) + pe,
                                                 completed_[static_cast<std::size_t>(pe)]);
  if (done_ != published_done_)
    device::store<scope::system, order::release>(pointer<uint64_t>(ring_.done), done_);
  published_head_ = head_;
  published_done_ = done_;
  changed_.clear();
  answered_ = false;
  // Between the stores and the look for sleepers.
  device::fence<scope::system, order::seq_cst>();
  device::ring_doorbell({pointer<uint32_t>(ring_.doorbell), pointer<uint32_t>(ring_.doorbell) + 1});
}

}  // namespace mori::shmem_core
