// kernel_memory.cpp - see kernel_memory.hpp.
#include "operator/kernel_memory.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace mori::ep_core {

base::result<kernel_memory> kernel_memory::allocate(std::shared_ptr<device::gpu> gpu,
                                                    uint64_t size_bytes) {
  kernel_memory made;
  if (gpu != nullptr) {
    auto buffer = device::device_buffer::allocate(gpu, size_bytes);
    if (!buffer)
      return base::fail(buffer.error().status, "the operator needs {} bytes of GPU memory: {}",
                        size_bytes, buffer.error().text);
    made.gpu_ = std::move(gpu);
    made.on_gpu_ = std::move(*buffer);
    made.address_ = made.on_gpu_.address();
    return made;
  }
  void* const begin =
      ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED)
    return base::fail_os(errno, "the operator needs {} bytes of ordinary memory", size_bytes);
  // Rows are large and written once a call: fewer page faults. Only a hint.
  (void)::madvise(begin, size_bytes, MADV_HUGEPAGE);
  made.address_ = device::address_of(begin);
  made.host_bytes_ = size_bytes;
  return made;
}

kernel_memory::~kernel_memory() {
  if (host_bytes_ != 0) ::munmap(reinterpret_cast<void*>(address_), host_bytes_);
}

void kernel_memory::swap(kernel_memory& other) noexcept {
  gpu_.swap(other.gpu_);
  on_gpu_.swap(other.on_gpu_);
  std::swap(address_, other.address_);
  std::swap(host_bytes_, other.host_bytes_);
}

base::status kernel_memory::read(void* to, uint64_t from, uint64_t bytes) const {
  if (gpu_ != nullptr) return gpu_->copy_now(device::address_of(to), from, bytes);
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return {};
}

}  // namespace mori::ep_core
