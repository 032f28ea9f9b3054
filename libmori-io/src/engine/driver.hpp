// driver.hpp - who polls an engine's sockets. One thread at a time has the role: a
// thread that waits for a transfer takes it for itself, so that a round trip needs
// no other thread; else the engine's own has it. That one stays away for a while
// after somebody else drove, since he will probably come again.
#pragma once

#include <mori/base/clock.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace mori::io_core {

// False: the time is up. Spurious wake-ups happen.
bool sleep_on(std::atomic<uint32_t>& word, uint32_t expected, uint64_t timeout_ns);
void wake(std::atomic<uint32_t>& word);

// A thread that waits while another one drives.
struct waiter {
  std::atomic<uint32_t> signal{0};
  void rouse() {
    signal.store(1, std::memory_order_release);
    wake(signal);
  }
};

class driver_role {
 public:
  static constexpr uint64_t patience_ns = 200 * base::ns_per_us;
  static constexpr uint64_t longest_submission_ns = 2 * base::ns_per_ms;

  bool take() { return !taken_.exchange(true, std::memory_order_seq_cst); }
  // Whoever waits for the role gets it.
  void leave() {
    taken_.store(false, std::memory_order_seq_cst);
    if (wanting_.load(std::memory_order_seq_cst) > 0) rouse_one();
  }
  bool is_taken() const { return taken_.load(std::memory_order_seq_cst); }

  // While a thread waits.
  void want() { wanting_.fetch_add(1, std::memory_order_seq_cst); }
  void want_no_more() { wanting_.fetch_sub(1, std::memory_order_seq_cst); }
  bool is_wanted() const { return wanting_.load(std::memory_order_seq_cst) > 0; }
  void note_foreground(uint64_t now_ns) {
    away_until_ns_.store(now_ns + patience_ns, std::memory_order_relaxed);
    may_extend_.store(true, std::memory_order_relaxed);
  }
  // Who has just waited submits something large, which he sends himself, and will wait again. Once
  // for each wait, so that who only submits is not kept waiting. True: end_submission() follows.
  bool begin_submission(uint64_t now_ns) {
    if (now_ns >= away_until_ns_.load(std::memory_order_relaxed) ||
        !may_extend_.exchange(false, std::memory_order_relaxed))
      return false;
    away_until_ns_.store(now_ns + longest_submission_ns, std::memory_order_relaxed);
    return true;
  }
  void end_submission(uint64_t now_ns) {
    away_until_ns_.store(now_ns + patience_ns, std::memory_order_relaxed);
  }

  void add_sleeper(waiter& who) {
    const std::lock_guard guard(lock_);
    sleepers_.push_back(&who);
  }
  void remove_sleeper(waiter& who) {
    const std::lock_guard guard(lock_);
    std::erase(sleepers_, &who);
  }
  void rouse_one() {
    const std::lock_guard guard(lock_);
    if (!sleepers_.empty()) sleepers_.front()->rouse();
  }
  void rouse_all() {
    const std::lock_guard guard(lock_);
    for (waiter* each : sleepers_) each->rouse();
  }
  // Only one that still sleeps may be roused: it may be gone.
  void rouse(const waiter* who) {
    const std::lock_guard guard(lock_);
    for (waiter* each : sleepers_)
      if (each == who) each->rouse();
  }

  // --- The engine's own thread.
  // Waits until it should drive, at most a millisecond; false: not now.
  bool wait_for_turn() {
    const uint64_t now = base::now_ns();
    const bool urgent = urgent_.exchange(false, std::memory_order_seq_cst);
    if (!is_wanted() && (urgent || now >= away_until_ns_.load(std::memory_order_relaxed)))
      return true;
    const uint32_t seen = parked_.load(std::memory_order_seq_cst);
    if (!urgent_.load(std::memory_order_seq_cst) || is_wanted())
      sleep_on(parked_, seen, is_wanted() ? base::ns_per_ms : patience_ns);
    return false;
  }
  void nap() { sleep_on(parked_, parked_.load(std::memory_order_seq_cst), patience_ns); }
  // There is work that nobody does.
  void hurry() {
    urgent_.store(true, std::memory_order_seq_cst);
    parked_.fetch_add(1, std::memory_order_seq_cst);
    wake(parked_);
  }

 private:
  std::atomic<bool> taken_{false};
  std::atomic<bool> urgent_{false};
  std::atomic<uint32_t> wanting_{0};
  std::atomic<uint32_t> parked_{0};
  std::atomic<uint64_t> away_until_ns_{0};
  std::atomic<bool> may_extend_{false};
  std::mutex lock_;
  std::vector<waiter*> sleepers_;
};

}  // namespace mori::io_core
