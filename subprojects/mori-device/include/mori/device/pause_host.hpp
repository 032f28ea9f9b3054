// pause_host.hpp - how a waiting host thread passes the time. Included by
// wait.hpp. System calls are behind C functions of the crate's host library
// (src/host_wait.cpp), so that device headers need no system header.
#pragma once

#include <mori/device/core.hpp>

extern "C" {
// CLOCK_MONOTONIC in nanoseconds.
unsigned long mori_device_host_now_ns(void);
void mori_device_host_yield(void);
// Sleeps while *word == expected, at most limit_ns; may return early.
void mori_device_host_futex_wait(const unsigned* word, unsigned expected, unsigned long limit_ns);
// Wakes all that sleep on word, in any process.
void mori_device_host_futex_wake(unsigned* word);
// Makes an eventfd readable.
void mori_device_host_signal_event(int fd);
}

namespace mori::device::pause {

inline constexpr u32 yields_before_sleep = 16;
inline constexpr u64 longest_sleep_ns = 1'000'000;
inline constexpr u64 polls_per_clock = 64;

MORI_HOT u64 now_ns() { return mori_device_host_now_ns(); }

MORI_HOT void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

MORI_HOT void ring(u32* word, u32* waiter_count) {
  if (word == nullptr) return;
  if (load<scope::system, order::seq_cst>(waiter_count) == 0) return;
  fetch_add<scope::system, order::seq_cst>(word, 1u);
  mori_device_host_futex_wake(word);
}

// A thread that announces its sleep in *asleep, looks again, and then waits for the eventfd.
MORI_HOT void wake_thread(u32* asleep, i32 event) {
  if (load<scope::system, order::seq_cst>(asleep) == 0) return;
  if (exchange<scope::system, order::seq_cst>(asleep, 0u) != 0)
    mori_device_host_signal_event(event);
}

class state {
 public:
  MORI_HOT state(u64 spin_count, u32* word, u32* waiter_count)
      : spin_count_(spin_count), word_(word), waiter_count_(waiter_count) {}

  // Whether this poll should look at the clock and the abort word.
  MORI_HOT bool is_clock_due() const {
    return polls_ >= spin_count_ || polls_ % polls_per_clock == 0;
  }

  // An acquire costs nothing here.
  MORI_HOT bool is_brief() const { return true; }

  // Passes some time. is_met() is asked once more between announcing a sleeper and sleeping.
  template <class IsMet>
  MORI_DEVICE void next(IsMet is_met) {
    const u64 poll = polls_++;
    if (poll < spin_count_) return relax();
    if (poll - spin_count_ < yields_before_sleep) return mori_device_host_yield();
    if (word_ == nullptr) {
      const u32 nobody_rings = 0;
      return mori_device_host_futex_wait(&nobody_rings, 0, longest_sleep_ns);
    }
    const u32 expected = load<scope::system, order::acquire>(word_);
    fetch_add<scope::system, order::seq_cst>(waiter_count_, 1u);
    if (!is_met()) mori_device_host_futex_wait(word_, expected, longest_sleep_ns);
    fetch_add<scope::system, order::seq_cst>(waiter_count_, ~0u);
  }

 private:
  u64 spin_count_;
  u64 polls_ = 0;
  u32* word_;
  u32* waiter_count_;
};

}  // namespace mori::device::pause
