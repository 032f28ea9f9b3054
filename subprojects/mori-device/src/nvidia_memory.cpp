// nvidia_memory.cpp - memory of an NVIDIA GPU: plain, pinned, virtual, shared.
#include "nvidia_gpu.hpp"

#include <cstring>

namespace mori::device {

base::result<uint64_t> nvidia_gpu::allocate(uint64_t bytes) {
  const scope here(*this);
  nvidia::address made = 0;
  MORI_NVIDIA(cuMemAlloc_v2, &made, bytes);
  return uint64_t{made};
}

void nvidia_gpu::free(uint64_t address) {
  if (address == 0) return;
  const scope here(*this);
  cuda_.cuMemFree_v2(address);
}

base::result<void*> nvidia_gpu::allocate_host(uint64_t bytes) {
  const scope here(*this);
  void* made = nullptr;
  MORI_NVIDIA(cuMemHostAlloc, &made, bytes, nvidia::host_portable | nvidia::host_mapped);
  std::memset(made, 0, bytes);
  return made;
}

void nvidia_gpu::free_host(void* pointer) {
  if (pointer == nullptr) return;
  const scope here(*this);
  cuda_.cuMemFreeHost(pointer);
}

base::result<uint64_t> nvidia_gpu::register_host(void* pointer, uint64_t bytes) {
  const scope here(*this);
  MORI_NVIDIA(cuMemHostRegister_v2, pointer, bytes, nvidia::host_portable | nvidia::host_mapped);
  nvidia::address seen = 0;
  if (const auto outcome = cuda_.cuMemHostGetDevicePointer_v2(&seen, pointer, 0);
      outcome != nvidia::success) {
    cuda_.cuMemHostUnregister(pointer);
    return explain("cuMemHostGetDevicePointer_v2", outcome);
  }
  return uint64_t{seen};
}

void nvidia_gpu::unregister_host(void* pointer) {
  const scope here(*this);
  cuda_.cuMemHostUnregister(pointer);
}

// What the heap is made of: pinned to this device, exportable as a descriptor, and fit for a
// network card's direct access where the device has that.
nvidia::allocation nvidia_gpu::allocation_of() const {
  nvidia::allocation made{};
  made.type = 1;
  made.handle_types = facts_.exports_descriptors ? nvidia::descriptor_handle : 0;
  made.where = {1, facts_.ordinal};
  made.flags.rdma = rdma_of_vmm_ ? 1 : 0;
  return made;
}

base::result<uint64_t> nvidia_gpu::granule_bytes() {
  const scope here(*this);
  const nvidia::allocation what = allocation_of();
  size_t granule = 0;
  MORI_NVIDIA(cuMemGetAllocationGranularity, &granule, &what, nvidia::granularity_minimum);
  return uint64_t{granule};
}

base::result<uint64_t> nvidia_gpu::create_memory(uint64_t bytes) {
  const scope here(*this);
  const nvidia::allocation what = allocation_of();
  nvidia::memory made = 0;
  MORI_NVIDIA(cuMemCreate, &made, bytes, &what, 0);
  return uint64_t{made};
}

void nvidia_gpu::release_memory(uint64_t memory) {
  const scope here(*this);
  cuda_.cuMemRelease(memory);
}

base::result<base::unique_fd> nvidia_gpu::export_memory(uint64_t memory) {
  const scope here(*this);
  int descriptor = -1;
  MORI_NVIDIA(cuMemExportToShareableHandle, &descriptor, memory, nvidia::descriptor_handle, 0);
  return base::unique_fd(descriptor);
}

base::result<uint64_t> nvidia_gpu::import_memory(int descriptor) {
  const scope here(*this);
  nvidia::memory made = 0;
  void* const as_pointer = reinterpret_cast<void*>(static_cast<intptr_t>(descriptor));
  MORI_NVIDIA(cuMemImportFromShareableHandle, &made, as_pointer, nvidia::descriptor_handle);
  return uint64_t{made};
}

base::result<uint64_t> nvidia_gpu::reserve_addresses(uint64_t bytes, uint64_t alignment) {
  const scope here(*this);
  nvidia::address made = 0;
  MORI_NVIDIA(cuMemAddressReserve, &made, bytes, alignment, 0, 0);
  return uint64_t{made};
}

void nvidia_gpu::release_addresses(uint64_t address, uint64_t bytes) {
  const scope here(*this);
  cuda_.cuMemAddressFree(address, bytes);
}

base::status nvidia_gpu::map(uint64_t address, uint64_t bytes, uint64_t memory) {
  const scope here(*this);
  MORI_NVIDIA(cuMemMap, address, bytes, 0, memory, 0);
  const nvidia::access readable{{1, facts_.ordinal}, 3};
  if (const auto outcome = cuda_.cuMemSetAccess(address, bytes, &readable, 1);
      outcome != nvidia::success) {
    cuda_.cuMemUnmap(address, bytes);
    return explain("cuMemSetAccess", outcome);
  }
  return {};
}

void nvidia_gpu::unmap(uint64_t address, uint64_t bytes) {
  const scope here(*this);
  cuda_.cuMemUnmap(address, bytes);
}

base::result<ipc_handle> nvidia_gpu::export_ipc(uint64_t address) {
  const scope here(*this);
  nvidia::ipc_memory made{};
  MORI_NVIDIA(cuIpcGetMemHandle, &made, address);
  ipc_handle handle;
  std::memcpy(handle.data(), made.reserved, handle.size());
  return handle;
}

base::result<uint64_t> nvidia_gpu::import_ipc(const ipc_handle& handle) {
  const scope here(*this);
  nvidia::ipc_memory given{};
  std::memcpy(given.reserved, handle.data(), handle.size());
  nvidia::address made = 0;
  MORI_NVIDIA(cuIpcOpenMemHandle_v2, &made, given, nvidia::ipc_lazy_peer_access);
  return uint64_t{made};
}

void nvidia_gpu::close_ipc(uint64_t address) {
  const scope here(*this);
  cuda_.cuIpcCloseMemHandle(address);
}

base::result<base::unique_fd> nvidia_gpu::export_dmabuf(uint64_t address, uint64_t bytes) {
  if (!facts_.exports_dmabuf)
    return base::fail(MORI_E_UNAVAILABLE, "{} cannot export memory as a dma-buf", facts_.name);
  const scope here(*this);
  int descriptor = -1;
  MORI_NVIDIA(cuMemGetHandleForAddressRange, &descriptor, address, bytes, nvidia::dmabuf_handle, 0);
  return base::unique_fd(descriptor);
}

base::status nvidia_gpu::enable_peer(int32_t ordinal) {
  if (ordinal == facts_.ordinal) return {};
  void* theirs = nullptr;
  MORI_NVIDIA(cuDevicePrimaryCtxRetain, &theirs, ordinal);
  const scope here(*this);
  const nvidia::status outcome = cuda_.cuCtxEnablePeerAccess(theirs, 0);
  if (outcome == nvidia::success || outcome == nvidia::peer_already_enabled) return {};
  return explain("cuCtxEnablePeerAccess", outcome);
}

namespace {

// The call that failed, where one did.
struct looked_up {
  gpu::pointer_facts facts;
  const char* call = nullptr;
  nvidia::status outcome = nvidia::success;
};

looked_up ask_driver(const nvidia::calls& cuda, uint64_t address) {
  looked_up made;
  int type = 0, ordinal = -1;
  made.outcome = cuda.cuPointerGetAttribute(&type, nvidia::pointer_memory_type, address);
  if (made.outcome == nvidia::success) {
    made.facts.is_host = type == nvidia::memory_type_host;
    made.facts.is_device = !made.facts.is_host;
    made.outcome = cuda.cuPointerGetAttribute(&ordinal, nvidia::pointer_ordinal, address);
    made.facts.ordinal = ordinal;
  } else if (made.outcome == nvidia::invalid_value) {
    made.outcome = nvidia::success;  // ordinary host memory is no address that the driver knows
  }
  if (made.outcome != nvidia::success) made.call = "cuPointerGetAttribute";
  return made;
}

}  // namespace

base::result<gpu::pointer_facts> nvidia_gpu::look_up(uint64_t address) {
  const scope here(*this);
  const looked_up found = ask_driver(cuda_, address);
  if (found.call != nullptr) return explain(found.call, found.outcome);
  return found.facts;
}

base::result<gpu::pointer_facts> nvidia_gpu::locate(const char* library, uint64_t address) {
  MORI_TRY(const nvidia::calls* cuda, nvidia::driver(library));
  const looked_up found = ask_driver(*cuda, address);
  if (found.call != nullptr)
    return base::fail(MORI_E_OS, "{}: error {}", found.call, found.outcome);
  return found.facts;
}

base::result<gpu::range> nvidia_gpu::allocation_at(uint64_t address) {
  const scope here(*this);
  nvidia::address start = 0;
  size_t bytes = 0;
  MORI_NVIDIA(cuMemGetAddressRange_v2, &start, &bytes, address);
  return range{start, bytes};
}

base::result<uint64_t> nvidia_gpu::memory_at(uint64_t address) {
  if (cuda_.cuMemRetainAllocationHandle == nullptr)
    return base::fail(MORI_E_UNAVAILABLE, "the driver lacks cuMemRetainAllocationHandle");
  const scope here(*this);
  nvidia::memory made = 0;
  MORI_NVIDIA(cuMemRetainAllocationHandle, &made, reinterpret_cast<void*>(address));
  return uint64_t{made};
}

}  // namespace mori::device
