// host_wait.cpp - the system calls behind the device headers of the host back
// end: clock, yield, futex. C linkage, because code compiled for several
// instruction sets shares them. Declared in mori/device/pause_host.hpp.
#include <mori/device/pause_host.hpp>

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

extern "C" {

unsigned long mori_device_host_now_ns(void) noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<unsigned long>(now.tv_sec) * 1'000'000'000ul +
         static_cast<unsigned long>(now.tv_nsec);
}

void mori_device_host_yield(void) noexcept { sched_yield(); }

// Not FUTEX_PRIVATE: the word may be in memory that several processes map.
void mori_device_host_futex_wait(const unsigned* word, unsigned expected,
                                 unsigned long limit_ns) noexcept {
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(limit_ns / 1'000'000'000ul);
  limit.tv_nsec = static_cast<long>(limit_ns % 1'000'000'000ul);
  syscall(SYS_futex, word, FUTEX_WAIT, expected, &limit, nullptr, 0);
}

void mori_device_host_futex_wake(unsigned* word) noexcept {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void mori_device_host_signal_event(int fd) noexcept {
  const unsigned long one = 1;
  (void)!write(fd, &one, sizeof one);  // full: it is readable already
}

}  // extern "C"
