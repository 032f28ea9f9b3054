// completion.cpp - how transfers end: the outcome, which the caller may see at once,
// and later the release, when no link refers to them any more.
#include <sys/eventfd.h>

#include <cerrno>

#include "engine/engine.hpp"
#include "engine/waiting.hpp"

namespace mori::io_core {

void engine::on_outcome(protocol::transfer& what, mori_status status, std::string_view text) {
  auto& of = static_cast<transfer_record&>(what);
  // Stopped for another backend to go on with it, and known not to be delivered.
  if (of.moves_on && status == MORI_E_CANCELLED && !text.starts_with("delivery unknown")) return;
  if (status != MORI_OK && of.moved_elsewhere && !of.is_read)
    complete(
        of, status,
        fmt::format("its bytes are in place, but the notification is not confirmed: {}", text));
  else
    complete(of, status, text);
}

void engine::on_released(protocol::transfer& what) {
  auto& of = static_cast<transfer_record&>(what);
  if (!std::exchange(of.moves_on, false) || of.told) {
    release(of);
    return;
  }
  protocol::forget_link(of);
  move_on(of, MORI_IO_BACKEND_TCP);
}

void engine::complete(transfer_record& what, mori_status status, std::string_view text) {
  if (std::exchange(what.told, true)) return;
  session_record& of = *what.session;
  const uint64_t end = base::now_ns();
  const uint64_t took = end - what.begin_ns.load(std::memory_order_relaxed);
  const auto backend = static_cast<size_t>(what.backend.load(std::memory_order_relaxed));
  for (statistics* each : {&of.counted, &counted_[backend]}) {
    each->on_end(status, what.is_read, what.total_bytes, took);
    each->retry_count += what.retry_count;
  }
  if (status != MORI_OK) {
    const std::lock_guard guard(what.text_lock);
    what.text = fmt::format("transfer {} with engine '{}': {}", what.uid, of.remote->engine_key,
                            text.empty() && status == MORI_E_CANCELLED ? "cancelled" : text);
  }
  what.retries.store(what.retry_count, std::memory_order_relaxed);
  what.end_ns.store(end, std::memory_order_relaxed);
  what.status.store(status, std::memory_order_relaxed);
  if (what.enqueues) {
    completions_.push({what.tag, what.uid, what.total_bytes, status,
                       what.is_read ? MORI_IO_READ : MORI_IO_WRITE});
    signal_event();
  }
  if (status != MORI_OK) failure_count.fetch_add(1, std::memory_order_relaxed);
  what.is_done.store(true, std::memory_order_seq_cst);
  if (const waiter* const who = what.watcher.exchange(nullptr, std::memory_order_seq_cst))
    role_.rouse(who);
  // A driver that sleeps may wait for this very transfer.
  if (!driver_holds_ && asleep_.load(std::memory_order_seq_cst)) kick();
}

void engine::release(transfer_record& what) {
  what.where = stage::idle;
  what.stamp.store(0, std::memory_order_relaxed);
  in_flight_.fetch_sub(1, std::memory_order_seq_cst);
  if (blocked_.load(std::memory_order_seq_cst) > 0) {
    role_.rouse_all();
    if (!driver_holds_) kick();
  }
  what.session.reset();
  transfer_table::ref last = std::move(what.self);  // it may be recycled from here on
}

// Ends a transfer before its time, with core_ held.
void engine::end_transfer(transfer_record& what, mori_status status, std::string_view text) {
  if (what.told) return;
  peer& to = *what.session->to;
  switch (what.where) {
    case stage::idle: return;
    case stage::holding:
      std::erase(to.holding, &what);
      complete(what, status, text);
      release(what);
      return;
    case stage::moving:
      what.mover->cancel(what.job);
      stop_job(what);
      complete(what, status, text);
      release(what);
      return;
    case stage::linked:
      what.failure_text = text;
      to.link.cancel(what, status, now_ns_);
      need(to);
      return;
  }
}

void engine::cancel(transfer_record& what) {
  const section held(*this);
  now_ns_ = base::now_ns();
  take_submitted();
  end_transfer(what, MORI_E_CANCELLED, "cancelled");
  work_off();
  planned_ns_.store(0, std::memory_order_relaxed);
  kick();
}

// --- The event descriptor: readable while something waits to be taken.

base::result<int> engine::event_fd() {
  const std::lock_guard guard(event_lock_);
  if (!event_fd_) {
    event_fd_ = base::unique_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event_fd_) return base::fail_os(errno, "no event descriptor");
    event_wanted_.store(true, std::memory_order_seq_cst);
    if (!completions_.empty() || !inbox_.empty()) {
      const uint64_t one = 1;
      [[maybe_unused]] const ssize_t put = ::write(event_fd_.get(), &one, sizeof one);
      event_raised_ = true;
    }
  }
  return event_fd_.get();
}

void engine::signal_event() {
  if (!event_wanted_.load(std::memory_order_seq_cst)) return;
  const std::lock_guard guard(event_lock_);
  if (std::exchange(event_raised_, true)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = ::write(event_fd_.get(), &one, sizeof one);
}

// After something was taken.
void engine::settle_event() {
  if (!event_wanted_.load(std::memory_order_seq_cst)) return;
  const std::lock_guard guard(event_lock_);
  if (!event_raised_ || !completions_.empty() || !inbox_.empty()) return;
  event_raised_ = false;
  uint64_t drained = 0;
  [[maybe_unused]] const ssize_t got = ::read(event_fd_.get(), &drained, sizeof drained);
}

uint64_t engine::take_completions(mori_io_completion* out, uint64_t room) {
  const uint64_t count = completions_.take(out, room);
  settle_event();
  return count;
}

bool engine::pop_inbound(std::string_view key, uint64_t uid, mori_io_inbound& out) {
  const bool there = inbox_.pop(key, uid, out);
  if (there) settle_event();
  return there;
}

bool engine::next_inbound(mori_io_inbound& out) {
  const bool there = inbox_.next(out);
  if (there) settle_event();
  return there;
}

}  // namespace mori::io_core
