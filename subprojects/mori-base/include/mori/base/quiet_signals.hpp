// quiet_signals.hpp - signals belong to the user's threads: threads of ours are
// born while one of these lives, and so never run a handler that was sent to
// the process. Faults of the thread itself (SIGSEGV and its kin) stay
// deliverable, so that crash handlers and sanitizers still see them.
#pragma once

#include <csignal>

namespace mori::base {

class quiet_signals {
 public:
  quiet_signals() {
    sigset_t quiet;
    sigfillset(&quiet);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT})
      sigdelset(&quiet, fault);
    pthread_sigmask(SIG_SETMASK, &quiet, &before_);
  }
  ~quiet_signals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  quiet_signals(const quiet_signals&) = delete;
  quiet_signals& operator=(const quiet_signals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace mori::base
