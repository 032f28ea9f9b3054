// segment_pool.cpp - see segment_pool.hpp.
#include "local/segment_pool.hpp"

#include "memory/region.hpp"
#include "wire/crypto.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

namespace mori::io_core::local {
namespace {

constexpr uint64_t page_bytes = 4096;
constexpr uint64_t most_bytes = uint64_t{1} << 46;  // what a process has addresses for
constexpr uint64_t huge_page_bytes = uint64_t{2} << 20;

uint64_t address_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

segment_pool& segment_pool::of_process() {
  // Never destroyed: memory of the caller's, which outlives static destruction.
  static auto* const pool = [] {
    auto* const made = new segment_pool;
    base::hold_across_fork(made->lock_);
    return made;
  }();
  return *pool;
}

base::result<void*> segment_pool::allocate(uint64_t bytes) {
  if (bytes == 0 || bytes > most_bytes)
    return base::fail(MORI_E_INVALID, "an allocation of {} bytes is outside 1 .. {}", bytes,
                      most_bytes);
  const uint64_t file_bytes = (bytes + page_bytes - 1) / page_bytes * page_bytes + page_bytes;
  MORI_TRY(base::unique_fd fd, link::segment::create_file(file_bytes, ""));
  const uint64_t alignment = bytes >= huge_page_bytes ? huge_page_bytes : page_bytes;
  MORI_TRY(link::segment memory, link::segment::map(std::move(fd), file_bytes, alignment));
  MORI_CHECK(memory.seal());
  MORI_CHECK(memory.reserve(0, file_bytes));
  entry made{0, bytes, {}, base::fork_generation(), std::move(memory)};
  wire::random_bytes(made.nonce);
  std::byte* const start = made.memory.data();
  std::memcpy(start + file_bytes - nonce_bytes, made.nonce.data(), nonce_bytes);
  const std::lock_guard guard(lock_);
  made.serial = ++last_serial_;
  by_address_.insert_or_assign(address_of(start), std::move(made));
  return static_cast<void*>(start);
}

base::status segment_pool::free(void* start) {
  entry gone;  // unmapped without the lock
  const std::lock_guard guard(lock_);
  const auto found = by_address_.find(address_of(start));
  if (found == by_address_.end() || found->second.generation != base::fork_generation())
    return base::fail(MORI_E_NOT_FOUND, "{:#x} is no address that mori_io_alloc returned",
                      address_of(start));
  gone = std::move(found->second);
  by_address_.erase(found);
  return {};
}

std::optional<segment_pool::place> segment_pool::find(const void* address, uint64_t bytes) const {
  const std::lock_guard guard(lock_);
  auto next = by_address_.upper_bound(address_of(address));
  if (next == by_address_.begin()) return {};
  --next;
  if (next->second.generation != base::fork_generation()) return {};
  const uint64_t offset = address_of(address) - next->first;
  const entry& in = next->second;
  if (!memory::inside(offset, bytes, in.bytes)) return {};
  return place{in.serial, offset, in.memory.size_bytes(), in.nonce};
}

base::result<base::unique_fd> segment_pool::open(uint64_t serial, bool writable) const {
  int made = -1, problem = ENOENT;
  {
    const std::lock_guard guard(lock_);
    for (const auto& [address, each] : by_address_) {
      if (each.serial != serial || each.generation != base::fork_generation()) continue;
      const int own = each.memory.descriptor();
      // Another open file of the same memory: a duplicate would have the owner's rights.
      made = writable ? ::fcntl(own, F_DUPFD_CLOEXEC, 3)
                      : ::open(fmt::format("/proc/self/fd/{}", own).c_str(), O_RDONLY | O_CLOEXEC);
      problem = errno;
    }
  }
  if (made >= 0) return base::unique_fd(made);
  if (problem == ENOENT) return base::fail(MORI_E_NOT_FOUND, "the memory was freed");
  return base::fail_os(problem, "cannot open the memory again");
}

}  // namespace mori::io_core::local
