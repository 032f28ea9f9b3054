// completion_queue.cpp - see queue_pair.hpp.
#include <mori/link/verbs/queue_pair.hpp>

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "verbs/library.hpp"
#include "verbs/work_number.hpp"

namespace mori::link::verbs {
namespace {

constexpr int batch_count = 32;

}  // namespace

completion_queue::completion_queue(std::shared_ptr<device> of) : of_(std::move(of)) {}

base::result<std::shared_ptr<completion_queue>> completion_queue::create(std::shared_ptr<device> of,
                                                                         const options& with) {
  const uint32_t limit = of->limits().max_completion_count;
  if (with.capacity < 1 || with.capacity > limit)
    return base::fail(MORI_E_INVALID, "{} completions, outside 1 .. {} of {}", with.capacity, limit,
                      of->port().device);
  const abi::calls& library = of->library();
  std::shared_ptr<completion_queue> made(new completion_queue(std::move(of)));
  made->capacity_ = with.capacity;
  if (with.has_events) {
    made->channel_ = library.ibv_create_comp_channel(made->of_->context());
    if (made->channel_ == nullptr) return base::fail_os(errno, "no channel of completion events");
    const int flags = ::fcntl(made->channel_->fd, F_GETFL);
    if (flags < 0 || ::fcntl(made->channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0)
      return base::fail_os(errno, "completion events cannot be polled");
  }
  made->made_ = library.ibv_create_cq(made->of_->context(), static_cast<int>(with.capacity),
                                      nullptr, made->channel_, 0);
  if (made->made_ == nullptr)
    return base::fail_os(errno, "no completion queue of {} entries", with.capacity);
  return made;
}

completion_queue::~completion_queue() {
  const abi::calls& library = of_->library();
  if (made_ != nullptr) library.ibv_destroy_cq(made_);
  if (channel_ != nullptr) library.ibv_destroy_comp_channel(channel_);
}

base::result<uint16_t> completion_queue::enter(queue_pair& who, uint32_t room) {
  if (room > capacity_ - reserved_)
    return base::fail(MORI_E_NO_MEMORY,
                      "the completion queue has {} entries, {} are reserved and {} more wanted",
                      capacity_, reserved_, room);
  auto free = std::ranges::find(members_, nullptr);
  if (free == members_.end()) {
    if (members_.size() >= work_number::max_slots)
      return base::fail(MORI_E_NO_MEMORY, "{} queue pairs share a completion queue, no more can",
                        members_.size());
    free = members_.insert(members_.end(), nullptr);
  }
  *free = &who;
  reserved_ += room;
  return static_cast<uint16_t>(free - members_.begin());
}

// What is left of it in the queue is thrown away, so that the slot can go to another.
void completion_queue::leave(uint16_t slot, uint32_t room) {
  take_all();
  const auto is_its = [&](const abi::wc& each) {
    return work_number::unpack(each.wr_id).slot == slot;
  };
  const auto begin = batch_.begin() + static_cast<std::ptrdiff_t>(next_);
  const auto end = batch_.begin() + static_cast<std::ptrdiff_t>(filled_);
  filled_ = static_cast<size_t>(std::remove_if(begin, end, is_its) - batch_.begin());
  members_[slot] = nullptr;
  reserved_ -= room;
}

bool completion_queue::refill() {
  batch_.resize(std::max<size_t>(batch_.size(), batch_count));
  next_ = filled_ = 0;
  const int got = of_->context()->ops.poll_cq(made_, batch_count, batch_.data());
  filled_ = got > 0 ? static_cast<size_t>(got) : 0;
  return filled_ > 0;
}

// Empties the device's queue behind what is waiting here, at most its capacity.
void completion_queue::take_all() {
  for (;;) {
    batch_.resize(std::max(batch_.size(), filled_ + batch_count));
    const int got = of_->context()->ops.poll_cq(made_, batch_count, batch_.data() + filled_);
    if (got <= 0) return;
    filled_ += static_cast<size_t>(got);
  }
}

size_t completion_queue::poll(std::span<completion> to) {
  size_t count = 0;
  while (count < to.size()) {
    if (next_ == filled_ && !refill()) break;
    const abi::wc& each = batch_[next_++];
    const uint16_t slot = work_number::unpack(each.wr_id).slot;
    queue_pair* const of = slot < members_.size() ? members_[slot] : nullptr;
    if (of != nullptr && of->on_completion(each, to[count])) ++count;
  }
  return count;
}

base::status completion_queue::arm() {
  if (channel_ == nullptr)
    return base::fail(MORI_E_STATE, "this completion queue was made without events");
  if (const int problem = of_->context()->ops.req_notify_cq(made_, 0); problem != 0)
    return base::fail_os(problem, "completion events cannot be asked for");
  return {};
}

int completion_queue::fd() const { return channel_ == nullptr ? -1 : channel_->fd; }

void completion_queue::take_events() {
  if (channel_ == nullptr) return;
  abi::cq* which = nullptr;
  void* context = nullptr;
  unsigned count = 0;
  while (of_->library().ibv_get_cq_event(channel_, &which, &context) == 0) ++count;
  if (count > 0) of_->library().ibv_ack_cq_events(made_, count);
}

base::result<bool> completion_queue::wait(base::deadline until) {
  for (;;) {
    MORI_CHECK(arm());
    if (next_ < filled_ || refill()) return true;
    if (until.passed()) return false;
    pollfd one{channel_->fd, POLLIN, 0};
    if (::poll(&one, 1, until.left_ms()) < 0 && errno != EINTR)
      return base::fail_os(errno, "waiting for completions");
    take_events();
  }
}

}  // namespace mori::link::verbs
