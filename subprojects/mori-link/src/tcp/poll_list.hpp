// poll_list.hpp - what one loop waits for: several owners of sockets add
// theirs, one ppoll() waits, and each owner looks at its own results.
#pragma once

#include <mori/base/clock.hpp>

#include <poll.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace mori::link::tcp {

class poll_list {
 public:
  void clear() { entries_.clear(); }
  // Hang-up and errors count as readable.
  size_t add(int fd, bool for_writing) {
    entries_.push_back({fd, static_cast<short>(POLLIN | (for_writing ? POLLOUT : 0)), 0});
    return entries_.size() - 1;
  }
  bool readable(size_t at) const { return has(at, POLLIN | POLLHUP | POLLERR); }
  bool writable(size_t at) const { return has(at, POLLOUT | POLLHUP | POLLERR); }

  // Until something happens, `until_ns` comes, or a signal interrupts.
  void wait(uint64_t until_ns) {
    const uint64_t left = base::deadline::at(until_ns).left_ns();
    const timespec limit{static_cast<time_t>(left / base::ns_per_s),
                         static_cast<long>(left % base::ns_per_s)};
    if (::ppoll(entries_.data(), entries_.size(), &limit, nullptr) < 0)
      for (pollfd& entry : entries_) entry.revents = 0;
  }

 private:
  bool has(size_t at, int events) const {
    return at < entries_.size() && (entries_[at].revents & events) != 0;
  }
  std::vector<pollfd> entries_;
};

}  // namespace mori::link::tcp
