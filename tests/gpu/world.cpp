// world.cpp - see world.hpp.
#include "world.hpp"

#include <mori/device/gpu.hpp>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

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
  mori_shmem_unique_id id;
  uint32_t id_ready;
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

std::string share_id(board& on, int pe) {
  if (pe == 0) {
    const std::string failed = failure(mori_shmem_unique_id_create, &on.id);
    if (!failed.empty()) return failed;
    __atomic_store_n(&on.id_ready, 1u, __ATOMIC_RELEASE);
    return "";
  }
  for (int i = 0; i < 6000 && __atomic_load_n(&on.id_ready, __ATOMIC_ACQUIRE) == 0; ++i)
    usleep(10'000);
  return "";
}

std::string run_pe(board& on, const world& with, const body& what, int pe) {
  std::string failed = share_id(on, pe);
  if (!failed.empty()) return failed;
  mori_shmem_options mine{};
  mine.struct_size = sizeof mine;
  mine.pe = pe;
  mine.pe_count = with.pe_count;
  mine.backend = backend_here().backend;
  mine.heap_bytes = uint64_t{64} << 20;
  mine.bootstrap_timeout_ns = 60 * second_ns;
  mine.wait_timeout_ns = 60 * second_ns;
  with.adjust(mine);
  mori_shmem* context = nullptr;
  failed = failure(mori_shmem_create, &on.id, &mine, &context);
  if (failed.empty()) failed = what(context, pe);
  mori_shmem_destroy(context);
  return failed;
}

// Under MPS each PE gets its part of the device; the driver reads this when it is opened.
void take_part(const world& with) {
  if (std::getenv("CUDA_MPS_PIPE_DIRECTORY") != nullptr && with.kind == as::processes)
    setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", std::to_string(100 / with.pe_count).c_str(), 1);
  // Streams that wait for each other must not share a queue; processes have queues of their own.
  if (with.kind == as::threads) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
}

pid_t start(board& on, const world& with, const body& what, int pe) {
  const pid_t child = fork();
  if (child != 0) return child;
  take_part(with);
  if (with.kind == as::processes) {
    report(on, pe, run_pe(on, with, what, pe));
  } else {
    std::vector<std::thread> threads;
    for (int each = 0; each < with.pe_count; ++each)
      threads.emplace_back([&, each] { report(on, each, run_pe(on, with, what, each)); });
    for (std::thread& thread : threads) thread.join();
  }
  _exit(0);
}

// Waits for all; ends those that take too long.
void await(board& on, const std::vector<pid_t>& children, int patience_s) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(patience_s);
  for (size_t i = 0; i < children.size(); ++i) {
    int how = 0;
    while (waitpid(children[i], &how, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > until) {
        kill(children[i], SIGKILL);
        waitpid(children[i], &how, 0);
        report(on, static_cast<int>(i), "took longer than " + std::to_string(patience_s) + " s");
        break;
      }
      usleep(2'000);
    }
    if (on.text[i][0] == 0 && (!WIFEXITED(how) || WEXITSTATUS(how) != 0))
      report(on, static_cast<int>(i), "ended with wait status " + std::to_string(how));
  }
}

}  // namespace

std::string run(const world& with, const body& what) {
  board* const on = make_board();
  if (on == nullptr) return "no memory to share with the PEs";
  const int processes = with.kind == as::processes ? with.pe_count : 1;
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) children.push_back(start(*on, with, what, i));
  await(*on, children, with.patience_s);
  std::string all;
  for (int pe = 0; pe < with.pe_count; ++pe)
    if (on->text[pe][0] != 0) all += "PE " + std::to_string(pe) + ": " + on->text[pe] + "\n";
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
