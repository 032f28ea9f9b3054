// unique_fd.hpp - sole owner of a file descriptor; also closes it in fork()ed
// children (process.hpp).
#pragma once

#include <mori/base/process.hpp>

#include <unistd.h>

#include <utility>

namespace mori::base {

class unique_fd {
 public:
  unique_fd() = default;
  explicit unique_fd(int fd) : fd_(fd) {
    if (fd_ >= 0) close_in_child(fd_);
  }
  unique_fd(unique_fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  unique_fd& operator=(unique_fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  unique_fd(const unique_fd&) = delete;
  unique_fd& operator=(const unique_fd&) = delete;
  ~unique_fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset() {
    if (fd_ < 0) return;
    // Forget first: once closed, the number may be another thread's.
    forget_in_child(fd_);
    ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace mori::base
