// member_process.hpp - starts tests/member_program.cpp and talks to it. Ends
// it by force when the test is over, whatever happened.
#pragma once

#include <mori/base/clock.hpp>
#include <mori/base/unique_fd.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

extern char** environ;

namespace mori::link::testing {

class member_process {
 public:
  member_process() {
    int to[2] = {-1, -1}, from[2] = {-1, -1};
    if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) return;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    std::string path = MORI_MEMBER_PROGRAM;
    char* arguments[] = {path.data(), nullptr};
    if (::posix_spawn(&pid_, path.c_str(), &actions, nullptr, arguments, environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    ::close(to[0]);
    ::close(from[1]);
    to_ = base::unique_fd(to[1]);
    from_ = base::unique_fd(from[0]);
  }
  member_process(const member_process&) = delete;
  member_process& operator=(const member_process&) = delete;
  ~member_process() {
    to_.reset();
    if (pid_ > 0) {
      signal(SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }

  void tell(const std::string& line) {
    const std::string bytes = line + "\n";
    (void)!::write(to_.get(), bytes.data(), bytes.size());
  }
  // Its answer, or why there is none.
  std::string hear(uint64_t limit_ms = 20'000) {
    const auto until = base::deadline::after(limit_ms * base::ns_per_ms);
    for (;;) {
      const size_t end = heard_.find('\n');
      if (end != std::string::npos) {
        const std::string line = heard_.substr(0, end);
        heard_.erase(0, end + 1);
        return line;
      }
      pollfd ready{from_.get(), POLLIN, 0};
      if (::poll(&ready, 1, until.left_ms()) == 0) return "no answer";
      char bytes[4096];
      const ssize_t size = ::read(from_.get(), bytes, sizeof bytes);
      if (size <= 0) return "gone";
      heard_.append(bytes, static_cast<size_t>(size));
    }
  }
  std::string ask(const std::string& line) {
    tell(line);
    return hear();
  }
  // Exit status after "quit", or -1.
  int quit() {
    tell("quit");
    int how = 0;
    ::waitpid(pid_, &how, 0);
    pid_ = -1;
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
  }

 private:
  pid_t pid_ = -1;
  base::unique_fd to_;
  base::unique_fd from_;
  std::string heard_;
};

}  // namespace mori::link::testing
