// pause_host.hpp - how a waiting host thread passes the time. Included by
// wait.hpp. System calls are behind C functions of the crate's host library
// (src/host_wait.cpp), so that device headers need no system header.
#pragma once

#include <mori/shmem_device.h>
#include <mori/device/core.hpp>

extern "C" {
// CLOCK_MONOTONIC in nanoseconds.
unsigned long mori_device_host_now_ns(void) noexcept;
void mori_device_host_yield(void) noexcept;
// Sleeps while *word == expected, at most limit_ns; may return early.
void mori_device_host_futex_wait(const unsigned* word, unsigned expected,
                                 unsigned long limit_ns) noexcept;
// Wakes all that sleep on word, in any process.
void mori_device_host_futex_wake(unsigned* word) noexcept;
// Makes an eventfd readable.
void mori_device_host_signal_event(int fd) noexcept;
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

// The seat of who does the network's work while it waits; see mori_shmem_driver_v1.
struct driver {
  u64 address;
  bool sleeps;
};

class driver_seat {
 public:
  MORI_HOT explicit driver_seat(const driver& of) : of_(of) {}
  MORI_HOT ~driver_seat() { leave(); }
  driver_seat(const driver_seat&) = delete;
  driver_seat& operator=(const driver_seat&) = delete;

  // False: somebody else has it, or nobody is to have it.
  MORI_HOT bool take() {
    if (!has_ && of_.address != 0 && tries_++ % tries_per_call == 0)
      has_ = call(MORI_SHMEM_DRIVE_BEGIN);
    return has_;
  }
  MORI_HOT bool sleeps() const { return of_.sleeps; }
  MORI_HOT void drive(i32 what) const { (void)call(what); }
  MORI_HOT void leave() {
    if (has_) (void)call(MORI_SHMEM_DRIVE_END);
    has_ = false;
  }

 private:
  MORI_HOT bool call(i32 what) const {
    const auto* driver = pointer<const mori_shmem_driver_v1>(of_.address);
    using function = i32 (*)(u64 self, i32 what) noexcept;
    return reinterpret_cast<function>(driver->call)(driver->self, what) != 0;
  }

  static constexpr u64 tries_per_call = 64;

  const driver of_;
  u64 tries_ = 0;
  bool has_ = false;
};

class state {
 public:
  MORI_HOT state(u64 spin_count, u32* word, u32* waiter_count, const driver& driver)
      : spin_count_(spin_count), word_(word), waiter_count_(waiter_count), seat_(driver) {}

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
    const bool may_sleep = poll >= spin_count_;
    if (seat_.take()) {
      if (!may_sleep) return seat_.drive(MORI_SHMEM_DRIVE_STEP);
      if (seat_.sleeps()) return seat_.drive(MORI_SHMEM_DRIVE_SLEEP);
      seat_.leave();  // others ring too: the network's own thread goes on
    }
    if (!may_sleep) return relax();
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
  driver_seat seat_;
};

}  // namespace mori::device::pause
