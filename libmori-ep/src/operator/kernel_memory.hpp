// kernel_memory.hpp - one zeroed block of memory that the operator's kernels use and
// no peer does, owned: ordinary memory on the host, the device's on a GPU, where host
// code must not follow its addresses. Read operator.hpp next.
#pragma once

#include <mori/base/result.hpp>
#include <mori/device/gpu_memory.hpp>

#include <cstdint>
#include <memory>
#include <utility>

namespace mori::ep_core {

class kernel_memory {
 public:
  // gpu: null for the host. Page-aligned at least; on the host, pages are taken when first touched.
  // Fails with MORI_E_NO_MEMORY.
  static base::result<kernel_memory> allocate(std::shared_ptr<device::gpu> gpu,
                                              uint64_t size_bytes);

  kernel_memory() = default;
  kernel_memory(kernel_memory&& other) noexcept { swap(other); }
  kernel_memory& operator=(kernel_memory&& other) noexcept {
    kernel_memory(std::move(other)).swap(*this);
    return *this;
  }
  ~kernel_memory();
  void swap(kernel_memory& other) noexcept;

  uint64_t address() const { return address_; }
  // To the host, from an address inside. On a GPU, kernels on other streams are not waited for.
  base::status read(void* to, uint64_t from, uint64_t bytes) const;

 private:
  std::shared_ptr<device::gpu> gpu_;
  device::device_buffer on_gpu_;
  uint64_t address_ = 0;
  uint64_t host_bytes_ = 0;  // 0: not the host's
};

}  // namespace mori::ep_core
