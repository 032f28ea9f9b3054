// gate.cpp - see gate.hpp.
#include "gate.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

namespace multi {
namespace {

control_line* line = nullptr;
int gate_fd = -1;
std::atomic<uintptr_t> gate_begin{0};
std::atomic<uintptr_t> gate_end{0};

void make_accessible() {
  const uintptr_t begin = gate_begin.load();
  const uintptr_t end = gate_end.load();
  if (end > begin) mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE);
}

// Only async-signal-safe calls: it runs inside a library call.
void on_fault(int number, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  if (at < gate_begin.load() || at >= gate_end.load()) {
    signal(number, SIG_DFL);  // a true fault: happens again, and ends the process
    return;
  }
  line->gate_reached.store(1);
  char opened = 0;
  while (read(gate_fd, &opened, 1) < 0) {
  }
  make_accessible();
}

}  // namespace

bool open_control(const char* path, int gate_pipe) {
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (page == MAP_FAILED) return false;
  line = static_cast<control_line*>(page);
  gate_fd = gate_pipe;
  struct sigaction action{};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  return sigaction(SIGSEGV, &action, nullptr) == 0;
}

control_line& control() { return *line; }

bool close_gate(void* start, size_t bytes) {
  constexpr uintptr_t page = 4096;
  const auto begin = (reinterpret_cast<uintptr_t>(start) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(start) + bytes) / page * page;
  if (end <= begin) return false;
  line->gate_reached.store(0);
  gate_begin.store(begin);
  gate_end.store(end);
  return mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_NONE) == 0;
}

void remove_gate() {
  make_accessible();
  gate_begin.store(0);
  gate_end.store(0);
}

}  // namespace multi
