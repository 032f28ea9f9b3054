// unique_fd.hpp - sole owner of a file descriptor; also closes it in fork()ed
// children (process.hpp). Never one of the numbers 0 to 2: in a program that
// closed its stderr, what others print there must not land in our sockets.
#pragma once

#include <mori/base/process.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace mori::base {

class unique_fd {
 public:
  unique_fd() = default;
  explicit unique_fd(int fd) : fd_(away_from_standard_streams(fd)) {
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
  // Keeps errno: callers look at it when fd is -1.
  static int away_from_standard_streams(int fd) {
    if (fd < 0 || fd > 2) return fd;
    const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
    const int problem = errno;
    ::close(fd);
    errno = problem;
    return moved;
  }
  int fd_ = -1;
};

}  // namespace mori::base
