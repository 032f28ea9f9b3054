// private_memory.cpp - see private_memory.hpp.
#include "operator/private_memory.hpp"

#include <sys/mman.h>

#include <cerrno>

namespace mori::ep_core {

base::result<private_memory> private_memory::allocate(uint64_t size_bytes) {
  void* const begin =
      ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED)
    return base::fail_os(errno, "the operator needs {} bytes of ordinary memory", size_bytes);
  // Rows are large and written once a call: fewer page faults. Only a hint.
  (void)::madvise(begin, size_bytes, MADV_HUGEPAGE);
  return private_memory(static_cast<std::byte*>(begin), size_bytes);
}

private_memory::~private_memory() {
  if (begin_ != nullptr) ::munmap(begin_, bytes_);
}

}  // namespace mori::ep_core
