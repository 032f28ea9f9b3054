// subject.hpp - starts another program, MORI_SUBJECT_PROGRAM, and talks to it by lines. Ends it by
// force when the test is over, whatever happened.
#pragma once

#include <mori/base/clock.hpp>
#include <mori/base/unique_fd.hpp>

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>
#include <string>
#include <vector>

#include "subject_text.hpp"

namespace mori::io_test {

class subject {
 public:
  explicit subject(std::vector<std::string> options = {}) {
    int to[2] = {-1, -1}, from[2] = {-1, -1};
    if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) return;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    options.insert(options.begin(), MORI_SUBJECT_PROGRAM);
    std::vector<char*> arguments;
    for (std::string& each : options) arguments.push_back(each.data());
    arguments.push_back(nullptr);
    if (::posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ) != 0)
      pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    ::close(to[0]);
    ::close(from[1]);
    to_ = base::unique_fd(to[1]);
    from_ = base::unique_fd(from[0]);
  }
  subject(const subject&) = delete;
  subject& operator=(const subject&) = delete;
  ~subject() {
    to_.reset();
    kill();
  }

  pid_t pid() const { return pid_; }
  // Gone, and its number free again, when it returns.
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  void tell(const std::string& line) {
    const std::string bytes = line + "\n";
    (void)!::write(to_.get(), bytes.data(), bytes.size());
  }
  // Its answer, or why there is none.
  std::string hear() {
    const auto until = base::deadline::after(30 * base::ns_per_s);
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
  template <class... Words>
  std::string ask(const Words&... words) {
    std::ostringstream line;
    ((line << words << ' '), ...);
    tell(line.str());
    return hear();
  }
  template <class... Words>
  uint64_t number(const Words&... words) {
    const std::string text = ask(words...);
    uint64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  }
  io_core::local::process_card card() { return card_of(ask("card")); }

 private:
  pid_t pid_ = -1;
  base::unique_fd to_;
  base::unique_fd from_;
  std::string heard_;
};

}  // namespace mori::io_test
