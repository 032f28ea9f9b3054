// driver.cpp - see driver.hpp.
#include "engine/driver.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

namespace mori::io_core {

bool sleep_on(std::atomic<uint32_t>& word, uint32_t expected, uint64_t timeout_ns) {
  timespec left{};
  left.tv_sec = static_cast<time_t>(timeout_ns / base::ns_per_s);
  left.tv_nsec = static_cast<long>(timeout_ns % base::ns_per_s);
  const long slept = ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, &left, nullptr, 0);
  return slept == 0 || errno != ETIMEDOUT;
}

void wake(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace mori::io_core
