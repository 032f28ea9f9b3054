// turn.cpp - the loop of an engine: poll, then work off what came while holding the
// lock. Timers are looked at in every turn; a turn sleeps a quarter second at most.
#include <sys/epoll.h>

#include <cerrno>

#include "engine/engine.hpp"
#include "engine/network.hpp"

namespace mori::io_core {
namespace {

constexpr uint64_t longest_sleep_ns = 250 * base::ns_per_ms;
constexpr int most_events = 64;
constexpr int handshakes_per_turn = 4;

}  // namespace

int engine::poll(uint64_t timeout_ns, void* events, int room) {
  auto* const to = static_cast<epoll_event*>(events);
  const uint64_t begin = base::now_ns();
  for (uint64_t now = begin; settings_.spin_ns > 0 && now - begin < settings_.spin_ns;
       now = base::now_ns()) {
    const int count = ::epoll_wait(epoll_.get(), to, room, 0);
    if (count != 0) return std::max(count, 0);
    if (kicks_.load(std::memory_order_relaxed) != kicks_seen_ ||
        submitted_.load(std::memory_order_relaxed) != nullptr)
      break;
  }
  const uint64_t planned = planned_ns_.load(std::memory_order_relaxed);
  uint64_t sleep_ns =
      std::min({timeout_ns, longest_sleep_ns, planned > begin ? planned - begin : 0});
  asleep_.store(true, std::memory_order_seq_cst);
  if (kicks_.load(std::memory_order_seq_cst) != kicks_seen_ ||
      submitted_.load(std::memory_order_seq_cst) != nullptr)
    sleep_ns = 0;
  const auto sleep_ms = static_cast<int>((sleep_ns + base::ns_per_ms - 1) / base::ns_per_ms);
  const int count = ::epoll_wait(epoll_.get(), to, room, sleep_ms);
  asleep_.store(false, std::memory_order_seq_cst);
  return std::max(count, 0);
}

void engine::turn(uint64_t timeout_ns) {
  std::array<epoll_event, most_events> events;
  const int count = poll(timeout_ns, events.data(), most_events);
  kicks_seen_ = kicks_.load(std::memory_order_seq_cst);
  const section held(*this);
  driver_holds_ = true;
  handshakes_left_ = handshakes_per_turn;
  now_ns_ = base::now_ns();
  for (int i = 0; i < count; ++i) {
    const epoll_event& each = events[static_cast<size_t>(i)];
    const uint64_t ticket = each.data.u64;  // a copy: the struct is packed
    if (ticket == kick_ticket) {
      uint64_t drained = 0;
      [[maybe_unused]] const ssize_t got = ::read(kick_fd_.get(), &drained, sizeof drained);
    } else if (ticket == listener_ticket) {
      accept_strangers();
    } else if (ticket != backend_ticket) {
      const auto found = connections_.find(ticket);
      if (found != connections_.end()) on_event(*found->second, each.events);
    }
  }
  run_jobs();
  work_off();
  run_timers();
  work_off();
  planned_ns_.store(next_due_ns(), std::memory_order_relaxed);
  driver_holds_ = false;
}

// All that is due now, and sent as far as the sockets take it.
void engine::work_off() {
  take_submitted();
  while (!dirty_.empty() || !dirty_guests_.empty()) {
    if (!dirty_.empty()) {
      peer* const next = dirty_.back();
      dirty_.pop_back();
      next->is_dirty = false;
      flush(*next);
    }
    if (!dirty_guests_.empty()) {
      guest* const next = dirty_guests_.back();
      dirty_guests_.pop_back();
      next->is_dirty = false;
      flush(*next);
    }
  }
}

void engine::leave_core() {
  for (;;) {
    dropped_.clear();
    core_.unlock();
    if (submitted_.load(std::memory_order_seq_cst) == nullptr || !core_.try_lock()) return;
    now_ns_ = base::now_ns();
    work_off();
  }
}

void engine::kick() {
  kicks_.fetch_add(1, std::memory_order_seq_cst);
  if (!asleep_.load(std::memory_order_seq_cst)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = ::write(kick_fd_.get(), &one, sizeof one);
}

void engine::run_deadlines() {
  while (!deadlines_.empty() && deadlines_.front().when_ns <= now_ns_) {
    std::pop_heap(deadlines_.begin(), deadlines_.end());
    const deadline_entry due = deadlines_.back();
    deadlines_.pop_back();
    if (due.of->stamp.load(std::memory_order_relaxed) != due.stamp || due.of->told) continue;
    end_transfer(
        *due.of, MORI_E_TIMEOUT,
        fmt::format("its timeout of {} ms has passed", due.of->timeout_ns / base::ns_per_ms));
  }
}

void engine::run_timers() {
  run_deadlines();
  if (accept_again_ns_ <= now_ns_) {
    accept_again_ns_ = UINT64_MAX;
    watch_listeners(EPOLLIN);
  }
  tended_.clear();
  for (const auto& [key, each] : peers_)
    if (each->is_busy() || each->control != nullptr) tended_.push_back(each.get());
  for (peer* each : tended_) tend(*each);
  const std::vector<connection*> waiting(strangers_);
  for (connection* each : waiting)
    if (each->answer && each->answer->wants_open()) on_answering(*each);
  std::vector<connection*> late;
  for (const auto& [ticket, each] : connections_)
    if (each->give_up_ns <= now_ns_) late.push_back(each.get());
  for (connection* each : late)
    if (connections_.contains(each->ticket))
      on_broken(*each, base::fail(MORI_E_TIMEOUT, "no answer in time"));
  forget_old_guests();
}

uint64_t engine::next_due_ns() {
  if (!jobs_.empty() && !jobs_wait_) return 0;
  uint64_t due = jobs_.empty() ? UINT64_MAX : now_ns_ + 20 * base::ns_per_us;
  due = std::min(due, accept_again_ns_);
  if (!deadlines_.empty()) due = std::min(due, deadlines_.front().when_ns);
  for (const auto& [key, each] : peers_) {
    due = std::min(due, each->link.next_time_ns());
    if (each->control == nullptr && each->is_busy()) due = std::min(due, each->retry_ns);
  }
  for (connection* each : strangers_)
    if (each->answer && each->answer->wants_open()) return 0;
  return due;
}

}  // namespace mori::io_core
