// world.cpp - see world.hpp.
#include "world.hpp"

#include <mori/device/gpu.hpp>

#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace gpu_test {
namespace {

constexpr int most_pes = 64;
constexpr uint64_t second_ns = 1'000'000'000;

// What parent and children share.
struct board {
  char text[most_pes][2048];
};

board* make_board() {
  void* made =
      mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return made == MAP_FAILED ? nullptr : static_cast<board*>(made);
}

void report(board& on, int pe, const std::string& text) {
  std::strncpy(on.text[pe], text.c_str(), sizeof on.text[pe] - 1);
}

// PE 0 makes the id and puts a copy into the pipe for each other PE.
std::string share_id(const world& with, const int (&pipe)[2], int pe, mori_shmem_unique_id& id) {
  if (pe != 0)
    return read(pipe[0], &id, sizeof id) == sizeof id ? "" : "PE 0 has passed no unique id";
  std::string failed = failure(mori_shmem_unique_id_create, &id);
  for (int other = 1; failed.empty() && other < with.pe_count; ++other)
    if (write(pipe[1], &id, sizeof id) != sizeof id) failed = "the unique id could not be passed";
  return failed;
}

std::string run_pe(const int (&pipe)[2], const world& with, const body& what, int pe) {
  mori_shmem_unique_id id{};
  std::string failed = share_id(with, pipe, pe, id);
  if (!failed.empty()) return failed;
  mori_shmem_options mine{};
  mine.struct_size = sizeof mine;
  mine.pe = pe;
  mine.pe_count = with.pe_count;
  mine.backend = backend_here().backend;
  mine.heap_bytes = uint64_t{64} << 20;
  mine.bootstrap_timeout_ns = 60 * second_ns;
  mine.wait_timeout_ns = (is_sanitized() ? 300 : 60) * second_ns;
  with.adjust(mine);
  mori_shmem* context = nullptr;
  failed = failure(mori_shmem_create, &id, &mine, &context);
  if (failed.empty()) failed = what(context, pe);
  mori_shmem_destroy(context);
  return failed;
}

// MORI_TEST_NODES=N: processes are on N nodes by turns, and reach those of other nodes by network.
void choose_node(const world& with, int pe) {
  const char* count = std::getenv("MORI_TEST_NODES");
  if (count == nullptr || with.kind != as::processes) return;
  setenv("MORI_NODE_ID", ("node-" + std::to_string(pe % std::max(1, std::atoi(count)))).c_str(), 1);
}

// Under MPS each PE gets its part of the device; the driver reads this when it is opened.
void take_part(const world& with) {
  if (std::getenv("CUDA_MPS_PIPE_DIRECTORY") != nullptr && with.kind == as::processes)
    setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", std::to_string(100 / with.pe_count).c_str(), 1);
  // Streams that wait for each other must not share a queue; processes have queues of their own.
  if (with.kind == as::threads) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
}

pid_t start(board& on, const int (&pipe)[2], const world& with, const body& what, int pe) {
  const pid_t child = fork();
  if (child != 0) return child;
  take_part(with);
  choose_node(with, pe);
  if (with.kind == as::processes) {
    report(on, pe, run_pe(pipe, with, what, pe));
  } else {
    std::vector<std::thread> threads;
    for (int each = 0; each < with.pe_count; ++each)
      threads.emplace_back([&, each] { report(on, each, run_pe(pipe, with, what, each)); });
    for (std::thread& thread : threads) thread.join();
  }
  _exit(0);
}

// Waits for all; ends those that take too long.
void await(board& on, const std::vector<pid_t>& children, int patience_s) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(patience_s);
  for (size_t i = 0; i < children.size(); ++i) {
    pollfd ended{static_cast<int>(syscall(SYS_pidfd_open, children[i], 0)), POLLIN, 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    const bool in_time = poll(&ended, 1, std::max(0, static_cast<int>(left.count()))) == 1;
    if (!in_time) kill(children[i], SIGKILL);
    int how = 0;
    waitpid(children[i], &how, 0);
    close(ended.fd);
    if (!in_time)
      report(on, static_cast<int>(i), "took longer than " + std::to_string(patience_s) + " s");
    else if (on.text[i][0] == 0 && (!WIFEXITED(how) || WEXITSTATUS(how) != 0))
      report(on, static_cast<int>(i), "ended with wait status " + std::to_string(how));
  }
}

}  // namespace

bool is_sanitized() { return std::getenv("MORI_TEST_SANITIZED") != nullptr; }

std::string run(const world& with, const body& what) {
  if (is_sanitized() && (with.kind != as::processes || with.pe_count != 2)) return "";
  board* const on = make_board();
  if (on == nullptr) return "no memory to share with the PEs";
  const int processes = with.kind == as::processes ? with.pe_count : 1;
  std::vector<pid_t> children;
  int pipe[2];
  if (::pipe(pipe) != 0) return "no pipe";
  for (int i = 0; i < processes; ++i) children.push_back(start(*on, pipe, with, what, i));
  await(*on, children, with.patience_s * (is_sanitized() ? 4 : 1));
  std::string all;
  for (int pe = 0; pe < with.pe_count; ++pe)
    if (on->text[pe][0] != 0) all += "PE " + std::to_string(pe) + ": " + on->text[pe] + "\n";
  close(pipe[0]);
  close(pipe[1]);
  munmap(on, sizeof(board));
  return all;
}

const found_backend& backend_here() {
  static const found_backend found = [] {
    found_backend none{0, ""};
    for (const int32_t backend : {MORI_BACKEND_NVIDIA, MORI_BACKEND_AMD}) {
      board* const on = make_board();
      const pid_t child = fork();
      if (child == 0) {
        const auto described = mori::device::gpu::describe(backend);
        report(*on, described ? 0 : 1, described ? *described : described.error().text);
        _exit(0);
      }
      waitpid(child, nullptr, 0);
      const std::string yes = on->text[0], no = on->text[1];
      munmap(on, sizeof(board));
      if (!yes.empty()) return found_backend{backend, yes};
      none.reason += (none.reason.empty() ? "" : "; ") + no;
    }
    return none;
  }();
  return found;
}

}  // namespace gpu_test
