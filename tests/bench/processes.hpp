// processes.hpp - the PEs of a benchmark: forked processes that share a piece of
// memory, meet at a barrier between measurements, and never outlive their parent. Read
// shmem_host.cpp for how it is used; clock.hpp times what they do.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <vector>

namespace mori_bench {

// Says what went wrong and ends this process; the parent then ends the others.
[[noreturn]] inline void give_up(const char* what) {
  std::fprintf(stderr, "benchmark process %d: %s\n", static_cast<int>(::getpid()), what);
  ::_exit(1);
}

// Bytes that no cache holds from before and whose pages exist; `shared` with the processes that
// are forked later. Never freed: processes are short.
inline std::byte* touched_memory(std::size_t bytes, bool shared = false) {
  const int kind = shared ? MAP_SHARED : MAP_PRIVATE;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) give_up("no memory for buffers");
  std::memset(memory, 1, bytes);
  return static_cast<std::byte*>(memory);
}

// An object in zeroed memory that all processes forked later share.
template <class T>
T& shared_object() {
  void* memory =
      ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) give_up("no shared memory");
  return *static_cast<T*>(memory);
}

// A barrier of processes. They sleep in it, so it also works with more processes than cores.
class meeting {
 public:
  void prepare(int process_count) {
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&barrier_, &shared, static_cast<unsigned>(process_count));
  }
  void wait() { pthread_barrier_wait(&barrier_); }

 private:
  pthread_barrier_t barrier_;
};

// Keeps this thread on the index-th core that it may use; with fewer cores it stays where it is.
inline void stay_on_core(int index) {
  cpu_set_t usable;
  if (::sched_getaffinity(0, sizeof usable, &usable) != 0 || CPU_COUNT(&usable) <= index) return;
  int seen = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &usable) || seen++ != index) continue;
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(core, &only);
    ::sched_setaffinity(0, sizeof only, &only);
    return;
  }
}

// --- Running them -------------------------------------------------------------------------------

class process_group {
 public:
  // Forks `count` processes that run body(index). Waits until all have ended, at most limit_s;
  // returns whether all ended well. When one does not, the others are ended.
  static bool run(int count, int limit_s, const std::function<void(int)>& body) {
    process_group group;
    sigset_t child_ended, before;
    sigemptyset(&child_ended);
    sigaddset(&child_ended, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child_ended, &before);
    for (int index = 0; index < count; ++index) group.start(index, body, before);
    const bool all_well = group.wait_for_all(child_ended, limit_s);
    for (const pid_t pid : group.alive_) ::kill(pid, SIGKILL);
    for (const pid_t pid : group.alive_) ::waitpid(pid, nullptr, 0);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    return all_well;
  }

 private:
  void start(int index, const std::function<void(int)>& body, const sigset_t& signals) {
    std::fflush(stdout);
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) give_up("fork failed");
    if (pid > 0) {
      alive_.push_back(pid);
      return;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    sigprocmask(SIG_SETMASK, &signals, nullptr);
    try {
      body(index);
    } catch (const std::exception& failure) {
      give_up(failure.what());
    }
    std::fflush(stdout);
    ::_exit(0);
  }

  bool wait_for_all(const sigset_t& child_ended, int limit_s) {
    timespec limit{};
    ::clock_gettime(CLOCK_MONOTONIC, &limit);
    const time_t end_s = limit.tv_sec + limit_s;
    while (!alive_.empty()) {
      if (!reap()) return false;
      if (alive_.empty()) break;
      timespec now{};
      ::clock_gettime(CLOCK_MONOTONIC, &now);
      const timespec left{end_s - now.tv_sec, 0};
      if (left.tv_sec <= 0 || (sigtimedwait(&child_ended, nullptr, &left) < 0 && errno == EAGAIN)) {
        std::fprintf(stderr, "benchmark processes did not end within %d s\n", limit_s);
        return false;
      }
    }
    return true;
  }

  // Whether no process has ended badly.
  bool reap() {
    for (std::size_t i = 0; i < alive_.size();) {
      int how = 0;
      if (::waitpid(alive_[i], &how, WNOHANG) != alive_[i]) {
        ++i;
        continue;
      }
      alive_.erase(alive_.begin() + static_cast<std::ptrdiff_t>(i));
      if (!WIFEXITED(how) || WEXITSTATUS(how) != 0) return false;
    }
    return true;
  }

  std::vector<pid_t> alive_;
};

}  // namespace mori_bench
