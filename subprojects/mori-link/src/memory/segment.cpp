// segment.cpp - see segment.hpp.
#include <mori/link/segment.hpp>

#include "memory/headroom.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace mori::link {
namespace {

// Sizes are off_t to the kernel.
constexpr uint64_t max_bytes = uint64_t{1} << 62;
constexpr uint64_t smallest_step_bytes = 1 << 20;

uint64_t page_bytes() {
  static const auto bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

// Free bytes of the file's filesystem; 0: it has no limit of its own (memfd).
uint64_t free_bytes(int fd) {
  struct statvfs about{};
  if (::fstatvfs(fd, &about) != 0 || about.f_blocks == 0) return 0;
  return uint64_t{about.f_bavail} * about.f_frsize;
}

// Pages of other filesystems can be written back, or are set aside (hugetlbfs).
bool is_in_memory(int fd) {
  struct statfs about{};
  return ::fstatfs(fd, &about) == 0 && about.f_type == TMPFS_MAGIC;
}

int allocate(int fd, int mode, uint64_t offset, uint64_t bytes) {
  while (::fallocate(fd, mode, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

base::failure no_memory(int os_errno, int fd, uint64_t bytes) {
  const uint64_t available = free_bytes(fd);
  base::failure why =
      available != 0 || os_errno == ENOSPC
          ? base::fail_os(os_errno, "cannot reserve {} bytes of shared memory, {} are free", bytes,
                          available)
          : base::fail_os(os_errno, "cannot reserve {} bytes of shared memory", bytes);
  why.status = MORI_E_NO_MEMORY;
  return why;
}

}  // namespace

base::result<base::unique_fd> segment::create_file(uint64_t size_bytes,
                                                   const std::string& directory) {
  if (size_bytes == 0 || size_bytes > max_bytes)
    return base::fail(MORI_E_INVALID, "a segment of {} bytes is outside 1 .. {}", size_bytes,
                      max_bytes);
  // Beyond this limit the kernel would end the process by SIGXFSZ instead of refusing.
  rlimit largest_file{};
  if (::getrlimit(RLIMIT_FSIZE, &largest_file) == 0 && size_bytes > largest_file.rlim_cur)
    return base::fail(MORI_E_NO_MEMORY,
                      "a segment of {} bytes is beyond the file size limit (ulimit -f) of {}",
                      size_bytes, largest_file.rlim_cur);
  base::unique_fd fd(
      directory.empty()
          ? ::memfd_create("mori-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING)
          : ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, S_IRUSR | S_IWUSR));
  const std::string where =
      directory.empty() ? "a memfd" : fmt::format("a file in '{}'", directory);
  if (!fd) return base::fail_os(errno, "cannot create {}", where);
  int outcome = 0;
  do outcome = ::ftruncate(fd.get(), static_cast<off_t>(size_bytes));
  while (outcome != 0 && errno == EINTR);
  if (outcome != 0) {
    const int problem = errno;
    auto why = base::fail_os(problem, "cannot make {} {} bytes long", where, size_bytes);
    if (problem == EFBIG) why.status = MORI_E_NO_MEMORY;
    return why;
  }
  return fd;
}

base::result<segment> segment::map(base::unique_fd fd, uint64_t size_bytes,
                                   uint64_t alignment_bytes) {
  if (size_bytes == 0 || size_bytes > max_bytes)
    return base::fail(MORI_E_INVALID, "a segment of {} bytes is outside 1 .. {}", size_bytes,
                      max_bytes);
  struct stat about{};
  if (::fstat(fd.get(), &about) != 0) return base::fail_os(errno, "segment file");
  // Beyond the end of the file an access would be a SIGBUS.
  if (static_cast<uint64_t>(about.st_size) < size_bytes)
    return base::fail(MORI_E_INVALID, "a segment of {} bytes over a file of {}", size_bytes,
                      about.st_size);
  // Address space with room to align in, then the file over its aligned part.
  const uint64_t room = size_bytes + alignment_bytes;
  void* space =
      ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return base::fail_os(errno, "cannot find {} bytes of addresses", room);
  const auto start = reinterpret_cast<uint64_t>(space);
  const uint64_t aligned = (start + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  void* at = ::mmap(reinterpret_cast<void*>(aligned), size_bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd.get(), 0);
  if (at == MAP_FAILED) {
    const int problem = errno;
    (void)::munmap(space, room);
    return base::fail_os(problem, "cannot map {} bytes", size_bytes);
  }
  const uint64_t page = page_bytes();
  const uint64_t end = (aligned + size_bytes + page - 1) / page * page;
  if (aligned > start) (void)::munmap(space, aligned - start);
  if (start + room > end) (void)::munmap(reinterpret_cast<void*>(end), start + room - end);
  (void)::madvise(at, size_bytes, MADV_HUGEPAGE);  // a wish
  segment made;
  made.data_ = static_cast<std::byte*>(at);
  made.size_bytes_ = size_bytes;
  made.fd_ = std::move(fd);
  return made;
}

segment::segment(segment&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      fd_(std::move(other.fd_)) {}

segment& segment::operator=(segment&& other) noexcept {
  if (this == &other) return *this;
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(fd_, other.fd_);
  return *this;
}

segment::~segment() {
  if (data_ != nullptr) ::munmap(data_, size_bytes_);
}

base::status segment::seal() {
  if (::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 &&
      !is_sealed(fd_.get()))
    return base::fail_os(errno, "cannot fix the size of a segment");
  return {};
}

bool segment::is_sealed(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

base::status segment::reserve(uint64_t offset, uint64_t bytes) {
  if (offset > size_bytes_ || bytes > size_bytes_ - offset)
    return base::fail(MORI_E_INVALID, "bytes {} + {} are outside a segment of {}", offset, bytes,
                      size_bytes_);
  const bool is_limited = is_in_memory(fd_.get());
  for (uint64_t done = 0; done < bytes;) {
    uint64_t step = bytes - done;
    if (is_limited) {
      const headroom room = memory_headroom();
      if (room.usable_bytes() < step) {
        if (done > 0) (void)!release(offset, done);
        return base::failure{MORI_E_NO_MEMORY, ENOMEM,
                             fmt::format("cannot reserve {} bytes of shared memory, {} are left "
                                         "before the limit of {}",
                                         bytes, room.bytes, room.limit)};
      }
      // Other processes reserve at the same time; so that all see it coming, a little at a time.
      step = std::min(step, std::max(smallest_step_bytes, room.usable_bytes() / 64));
    }
    const int problem = allocate(fd_.get(), 0, offset + done, step);
    if (problem == 0) {
      done += step;
      continue;
    }
    if (done > 0) (void)!release(offset, done);
    if (problem == ENOSPC || problem == ENOMEM || problem == EFBIG || problem == EDQUOT)
      return no_memory(problem, fd_.get(), bytes);
    return base::fail_os(problem, "cannot reserve {} bytes of shared memory", bytes);
  }
  return {};
}

base::status segment::allow(uint64_t offset, uint64_t bytes, bool access) {
  if (offset > size_bytes_ || bytes > size_bytes_ - offset || offset % page_bytes() != 0)
    return base::fail(MORI_E_INVALID, "bytes {} + {} are not pages of a segment of {}", offset,
                      bytes, size_bytes_);
  if (::mprotect(data_ + offset, bytes, access ? PROT_READ | PROT_WRITE : PROT_NONE) == 0)
    return {};
  auto why = base::fail_os(errno, "cannot change the access to {} bytes of shared memory", bytes);
  if (why.os_errno == ENOMEM) why.status = MORI_E_NO_MEMORY;  // vm.max_map_count
  return why;
}

base::status segment::release(uint64_t offset, uint64_t bytes) {
  if (offset > size_bytes_ || bytes > size_bytes_ - offset)
    return base::fail(MORI_E_INVALID, "bytes {} + {} are outside a segment of {}", offset, bytes,
                      size_bytes_);
  const uint64_t page = page_bytes();
  const uint64_t first = (offset + page - 1) / page * page;
  // The last page of the segment may be a part of one.
  const uint64_t end =
      offset + bytes == size_bytes_ ? offset + bytes : (offset + bytes) / page * page;
  if (first >= end) return {};
  const int problem =
      allocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first, end - first);
  if (problem != 0) return base::fail_os(problem, "cannot release {} bytes", end - first);
  return {};
}

}  // namespace mori::link
