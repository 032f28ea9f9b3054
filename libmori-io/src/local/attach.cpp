// attach.cpp - see attach.hpp.
#include "local/attach.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>

namespace mori::io_core::local {
namespace {

int open_pidfd(pid_t pid, unsigned flags) {
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, flags));
}

constexpr size_t most_vectors = IOV_MAX;

// One side of a batch: addresses that follow each other become one.
class vectors {
 public:
  // False: no room.
  bool add(uint64_t address, uint64_t bytes) {
    if (count_ > 0 && end_ == address) {
      all_[count_ - 1].iov_len += bytes;
    } else {
      if (count_ == most_vectors) return false;
      all_[count_++] = {reinterpret_cast<void*>(address), bytes};
    }
    end_ = address + bytes;
    return true;
  }
  bool is_full() const { return count_ == most_vectors; }
  const iovec* data() const { return all_.data(); }
  size_t size() const { return count_; }

 private:
  std::array<iovec, most_vectors> all_;
  size_t count_ = 0;
  uint64_t end_ = 0;
};

// Why the kernel said EPERM: who owns the process, or what forbids attaching at all.
std::string denial(pid_t pid) {
  struct stat about{};
  const std::string folder = fmt::format("/proc/{}", pid);
  if (std::FILE* const file = std::fopen("/proc/sys/kernel/yama/ptrace_scope", "re")) {
    int scope = 0;
    const bool known = std::fscanf(file, "%d", &scope) == 1;
    std::fclose(file);
    if (known && scope > 0) return fmt::format("kernel.yama.ptrace_scope is {}", scope);
  }
  if (::stat(folder.c_str(), &about) == 0 && about.st_uid != ::geteuid())
    return fmt::format("it is user {}'s, this process is user {}'s", about.st_uid, ::geteuid());
  return "a security policy forbids it, or the process may not be dumped";
}

}  // namespace

const attach_calls kernel_attach_calls{::process_vm_readv, ::process_vm_writev, open_pidfd};

base::failure attachment::explain(int os_errno) const {
  switch (os_errno) {
    case EPERM:
    case EACCES:
      return {
          MORI_E_UNAVAILABLE, os_errno,
          fmt::format("attaching to process {} is denied: {}", target_.pid, denial(target_.pid))};
    case ESRCH:
      return {MORI_E_PEER_DEAD, os_errno, fmt::format("process {} has ended", target_.pid)};
    case ENOSYS:
      return {MORI_E_UNAVAILABLE, os_errno, "this kernel cannot attach to memory of processes"};
    default: return base::fail_os(os_errno, "cannot attach to process {}", target_.pid);
  }
}

base::result<std::unique_ptr<attachment>> attachment::open(const process_card& target,
                                                           const attach_calls& calls) {
  MORI_TRY(const process_card own, own_process());
  if (own.boot_id != target.boot_id)
    return base::fail(MORI_E_UNAVAILABLE, "process {} runs on another host", target.pid);
  if (own.pid_namespace != 0 && target.pid_namespace != 0 &&
      own.pid_namespace != target.pid_namespace)
    return base::fail(MORI_E_UNAVAILABLE,
                      "process {} is in another pid namespace ({}, this process in {})", target.pid,
                      target.pid_namespace, own.pid_namespace);
  if (target.pid <= 0) return base::fail(MORI_E_PROTOCOL, "{} is no process", target.pid);
  std::unique_ptr<attachment> made(new attachment(target, calls));
  // The descriptor first: whoever has the number then has it until the descriptor says so.
  const int fd = calls.pidfd_open(target.pid, 0);
  if (fd < 0 && errno == ESRCH) return made->explain(ESRCH);
  if (fd >= 0) made->pidfd_ = base::unique_fd(fd);
  MORI_TRY(const uint64_t start_time, start_time_of(target.pid));
  if (start_time != target.start_time)
    return base::fail(MORI_E_PEER_DEAD, "process {} began at tick {}, not {}: it is another one",
                      target.pid, start_time, target.start_time);
  MORI_CHECK(made->prove());
  return made;
}

base::status attachment::prove_lives() const {
  if (pidfd_) {
    pollfd ended{pidfd_.get(), POLLIN, 0};
    if (::poll(&ended, 1, 0) > 0 && ended.revents != 0) return explain(ESRCH);
    return {};
  }
  auto start_time = start_time_of(target_.pid);
  if (!start_time && start_time.error().status == MORI_E_NOT_FOUND) return explain(ESRCH);
  if (!start_time) return std::move(start_time.error());
  if (*start_time != target_.start_time)
    return base::fail(MORI_E_PEER_DEAD, "process {} began at tick {}, not {}: it is another one",
                      target_.pid, *start_time, target_.start_time);
  return {};
}

base::status attachment::prove() const {
  MORI_CHECK(prove_lives());
  std::array<uint8_t, 16> seen{};
  const iovec here{seen.data(), seen.size()};
  const iovec there{reinterpret_cast<void*>(target_.nonce_address), seen.size()};
  const ssize_t got = calls_.readv(target_.pid, &here, 1, &there, 1, 0);
  if (got < 0 && errno != EFAULT) return explain(errno);
  if (got != static_cast<ssize_t>(seen.size()) || seen != target_.nonce)
    return base::fail(MORI_E_PEER_DEAD,
                      "process {} does not have the nonce at {:#x}: it runs another program now, "
                      "or is another process",
                      target_.pid, target_.nonce_address);
  return {};
}

base::result<uint64_t> attachment::move_batch(const work& what, const position& at,
                                              uint64_t budget) const {
  vectors here, there;
  uint64_t total = 0;
  position next = at;
  while (next.piece < what.pieces.size() && total < budget && !here.is_full() && !there.is_full()) {
    const piece& each = what.pieces[next.piece];
    const uint64_t take = std::min(each.bytes - next.bytes, budget - total);
    if (take > 0) {
      here.add(reinterpret_cast<uintptr_t>(what.local) + each.local_offset + next.bytes, take);
      there.add(what.remote + each.remote_offset + next.bytes, take);
    }
    total += take;
    next = {next.piece + 1, 0};
  }
  if (total == 0) return uint64_t{0};
  const auto call = what.is_read ? calls_.readv : calls_.writev;
  const ssize_t moved = call(target_.pid, here.data(), here.size(), there.data(), there.size(), 0);
  if (moved > 0) return static_cast<uint64_t>(moved);
  const int problem = moved < 0 ? errno : EFAULT;
  if (problem != EFAULT) return explain(problem);
  const piece& each = what.pieces[at.piece];
  return base::failure{
      MORI_E_OS, EFAULT,
      fmt::format("cannot {} process {} at {:#x} {} {:#x} here: one of them is not mapped so",
                  what.is_read ? "read" : "write", target_.pid,
                  what.remote + each.remote_offset + at.bytes, what.is_read ? "into" : "from",
                  reinterpret_cast<uintptr_t>(what.local) + each.local_offset + at.bytes)};
}

base::status attachment::move(const work& what, position& at, uint64_t budget) const {
  skip(what, at, 0);
  while (!is_over(what, at) && budget > 0) {
    MORI_CHECK(prove());
    // A batch may stop in the middle, at the first page that is not there; what follows says why.
    MORI_TRY(const uint64_t moved, move_batch(what, at, std::min(budget, most_batch_bytes)));
    skip(what, at, moved);
    budget -= moved;
  }
  return {};
}

}  // namespace mori::io_core::local
