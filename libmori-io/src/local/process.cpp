// process.cpp - see process.hpp.
#include "local/process.hpp"

#include "wire/crypto.hpp"

#include <mori/base/process.hpp>
#include <mori/base/unique_fd.hpp>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <mutex>

namespace mori::io_core::local {
namespace {

constexpr size_t page_bytes = 4096;

// Reads a small file of /proc. Fails with the errno as status OS.
base::result<std::string> text_of(const std::string& path) {
  const base::unique_fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return base::fail_os(errno, "cannot open {}", path);
  char text[1024];
  const ssize_t size = ::read(fd.get(), text, sizeof text);
  if (size < 0) return base::fail_os(errno, "cannot read {}", path);
  return std::string(text, static_cast<size_t>(size));
}

// "c0ffee00-1234-...": its 32 digits.
std::array<uint8_t, 16> read_boot_id() {
  std::array<uint8_t, 16> made{};
  const auto text = text_of("/proc/sys/kernel/random/boot_id");
  if (!text) return made;
  size_t digits = 0;
  for (const char each : *text) {
    uint8_t value = 0;
    if (digits >= 32 || std::from_chars(&each, &each + 1, value, 16).ptr == &each) continue;
    made[digits / 2] = static_cast<uint8_t>(made[digits / 2] << 4 | value);
    ++digits;
  }
  return made;
}

// A child of fork() reads zeros there, so the nonce stays one process's own.
base::result<uint64_t> place_nonce(const std::array<uint8_t, 16>& nonce) {
  void* const page =
      ::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return base::fail_os(errno, "no page for a nonce");
  if (::madvise(page, page_bytes, MADV_WIPEONFORK) != 0) {
    const int problem = errno;
    ::munmap(page, page_bytes);
    return base::fail_os(problem, "cannot keep a nonce from children");
  }
  std::memcpy(page, nonce.data(), nonce.size());
  (void)::mprotect(page, page_bytes, PROT_READ);
  return reinterpret_cast<uintptr_t>(page);
}

base::result<process_card> make_card() {
  process_card made;
  made.pid = ::getpid();
  MORI_TRY(made.start_time, start_time_of(made.pid));
  made.boot_id = read_boot_id();
  struct stat about{};
  if (::stat("/proc/self/ns/pid", &about) == 0) made.pid_namespace = about.st_ino;
  wire::random_bytes(made.nonce);
  MORI_TRY(made.nonce_address, place_nonce(made.nonce));
  return made;
}

}  // namespace

base::result<process_card> own_process() {
  static auto* const lock = [] {
    auto* const made = new std::mutex;
    base::hold_across_fork(*made);
    return made;
  }();
  static process_card card;
  static uint32_t generation = UINT32_MAX;
  {
    const std::lock_guard guard(*lock);
    if (generation == base::fork_generation()) return card;
  }
  // Not under the lock: a fork() waits for it, and what opens files waits for a fork().
  MORI_TRY(const process_card made, make_card());
  const std::lock_guard guard(*lock);
  if (generation == base::fork_generation()) {
    ::munmap(reinterpret_cast<void*>(made.nonce_address), page_bytes);
    return card;
  }
  card = made;
  generation = base::fork_generation();
  return card;
}

uint64_t parse_start_time(const char* text) {
  // "PID (name) S ...": the name may hold anything, brackets too, and is the second field.
  const char* at = std::strrchr(text, ')');
  for (int field = 2; at != nullptr && field < 22; ++field) {
    at = std::strchr(at, ' ');
    if (at != nullptr) ++at;
  }
  uint64_t value = 0;
  if (at != nullptr) std::from_chars(at, at + std::strlen(at), value);
  return value;
}

base::result<uint64_t> start_time_of(pid_t pid) {
  const std::string path = fmt::format("/proc/{}/stat", pid);
  auto text = text_of(path);
  if (!text) {
    if (text.error().os_errno == ENOENT || text.error().os_errno == ESRCH)
      return base::fail(MORI_E_NOT_FOUND, "there is no process {}", pid);
    return std::move(text.error());
  }
  const uint64_t value = parse_start_time(text->c_str());
  if (value == 0) return base::fail(MORI_E_OS, "{} does not say when it began", path);
  return value;
}

}  // namespace mori::io_core::local
