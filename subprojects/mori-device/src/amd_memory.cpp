// amd_memory.cpp - memory of an AMD GPU: plain, pinned, virtual, shared.
//
// All of it is polled and written by other GPUs, network cards and the host while kernels
// run, so it must be coherent then. hipMalloc's memory is coarse-grained: HIP promises
// that others see it at the ends of kernels only. On gfx942 and gfx950 Linux maps
//
//   memory                            by its own GPU        by other GPUs
//   coarse- and fine-grained          cached, write-back    cached, not coherent
//   uncached (extended fine-grained)  cached, coherent      not cached
//
// (gmc_v9_0_get_coherence_flags: RW, NC; CC, UC). There fine-grained memory relies on the
// write-backs and invalidations of system-scope fences around all accesses (see
// mori/device/atomic_amd.hpp); in uncached memory a peer's load cannot meet a stale line to begin
// with. On gfx90a fine-grained and uncached memory are mapped alike, coherent. Hence: uncached
// where the version knows it, else fine-grained, never coarse-grained. What this costs peers that
// read the same bytes twice has not been measured.
#include "amd_gpu.hpp"

#include <algorithm>
#include <cstring>

namespace mori::device {
namespace {

void* pointer_of(uint64_t address) { return reinterpret_cast<void*>(address); }
uint64_t address_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

base::result<uint64_t> amd_gpu::allocate(uint64_t bytes) {
  MORI_AMD_SCOPE;
  void* made = nullptr;
  amd::status outcome = hip_.hipExtMallocWithFlags(&made, bytes, amd::device_uncached);
  if (outcome == amd::invalid_value) {  // before 5.5
    settle(outcome);
    outcome = hip_.hipExtMallocWithFlags(&made, bytes, amd::device_fine_grained);
  }
  if (outcome != amd::success) return explain("hipExtMallocWithFlags", outcome);
  return address_of(made);
}

void amd_gpu::free(uint64_t address) {
  if (address == 0) return;
  const scope here(*this);
  settle(hip_.hipFree(pointer_of(address)));
}

base::result<void*> amd_gpu::allocate_host(uint64_t bytes) {
  MORI_AMD_SCOPE;
  void* made = nullptr;
  MORI_AMD(hipHostMalloc, &made, bytes, amd::host_portable | amd::host_mapped | amd::host_coherent);
  std::memset(made, 0, bytes);
  return made;
}

void amd_gpu::free_host(void* pointer) {
  if (pointer == nullptr) return;
  const scope here(*this);
  settle(hip_.hipHostFree(pointer));
}

// Registered memory is fine-grained unless asked otherwise.
base::result<uint64_t> amd_gpu::register_host(void* pointer, uint64_t bytes) {
  MORI_AMD_SCOPE;
  MORI_AMD(hipHostRegister, pointer, bytes, amd::registered_portable | amd::registered_mapped);
  void* seen = nullptr;
  if (const auto outcome = hip_.hipHostGetDevicePointer(&seen, pointer, 0);
      outcome != amd::success) {
    base::failure why = explain("hipHostGetDevicePointer", outcome);
    settle(hip_.hipHostUnregister(pointer));
    return why;
  }
  return address_of(seen);
}

void amd_gpu::unregister_host(void* pointer) {
  const scope here(*this);
  settle(hip_.hipHostUnregister(pointer));
}

// Before 7.0.2 hipMemCreate makes coarse-grained memory only and refuses the uncached kind with
// hipErrorInvalidValue, as does the question for its granule: that is asked here, since backports
// make version numbers a poor guide. A heap of coarse-grained memory could lose what peers
// write, so there is none then; allocate() and IPC handles serve instead.
void amd_gpu::read_virtual_memory() {
  if (!hip_.has_virtual_memory()) {
    no_virtual_memory_ = fmt::format("{} has no calls for it", hip_.describe());
    return;
  }
  int supported = 0;
  settle(hip_.hipDeviceGetAttribute(&supported, amd::attribute_vmm, facts_.ordinal));
  if (supported == 0) {
    no_virtual_memory_ = "the device has none";
    return;
  }
  const amd::allocation what = allocation_of();
  size_t granule = 0;
  const amd::status outcome =
      hip_.hipMemGetAllocationGranularity(&granule, &what, amd::granularity_recommended);
  settle(outcome);
  if (outcome == amd::success && granule != 0) {
    granule_bytes_ = granule;
    return;
  }
  no_virtual_memory_ = fmt::format(
      "{} makes coarse-grained memory only, in which peers would not see stores before a kernel's "
      "end; 7.0.2 is the first that makes uncached memory",
      hip_.describe());
}

base::status amd_gpu::require_virtual_memory() const {
  if (no_virtual_memory_.empty()) return {};
  return base::fail(MORI_E_UNAVAILABLE, "no virtual memory on {}: {}", facts_.name,
                    no_virtual_memory_);
}

amd::allocation amd_gpu::allocation_of() const {
  amd::allocation made{};
  made.type = amd::memory_uncached;
  made.handle_types = amd::descriptor_handle;
  made.where = {amd::memory_on_device, facts_.ordinal};
  return made;
}

// The recommended one: the smallest is a page of 4 KiB in some versions, and costs address
// translations.
base::result<uint64_t> amd_gpu::granule_bytes() {
  MORI_CHECK(require_virtual_memory());
  return uint64_t{granule_bytes_};
}

base::result<uint64_t> amd_gpu::create_memory(uint64_t bytes) {
  MORI_CHECK(require_virtual_memory());
  MORI_AMD_SCOPE;
  const amd::allocation what = allocation_of();
  void* made = nullptr;
  MORI_AMD(hipMemCreate, &made, bytes, &what, 0);
  return address_of(made);
}

void amd_gpu::release_memory(uint64_t memory) {
  if (memory == 0 || !no_virtual_memory_.empty()) return;
  const scope here(*this);
  settle(hip_.hipMemRelease(pointer_of(memory)));
}

base::result<base::unique_fd> amd_gpu::export_memory(uint64_t memory) {
  MORI_CHECK(require_virtual_memory());
  MORI_AMD_SCOPE;
  int descriptor = -1;
  MORI_AMD(hipMemExportToShareableHandle, &descriptor, pointer_of(memory), amd::descriptor_handle,
           0);
  return base::unique_fd(descriptor);
}

base::result<uint64_t> amd_gpu::import_memory(int descriptor) {
  MORI_CHECK(require_virtual_memory());
  MORI_AMD_SCOPE;
  void* const given = hip_.is_at_least(7, 1) ? pointer_of(static_cast<uint64_t>(descriptor))
                                             : static_cast<void*>(&descriptor);
  void* made = nullptr;
  MORI_AMD(hipMemImportFromShareableHandle, &made, given, amd::descriptor_handle);
  return address_of(made);
}

base::result<uint64_t> amd_gpu::reserve(uint64_t bytes, uint64_t alignment) {
  void* made = nullptr;
  MORI_AMD(hipMemAddressReserve, &made, bytes, alignment, nullptr, 0);
  return address_of(made);
}

// Several versions take the alignment and do not heed it, so a range that came out unaligned is
// reserved again with room to move.
base::result<uint64_t> amd_gpu::reserve_addresses(uint64_t bytes, uint64_t alignment) {
  MORI_CHECK(require_virtual_memory());
  MORI_AMD_SCOPE;
  const uint64_t wanted = std::max(alignment, granule_bytes_);
  MORI_TRY(const uint64_t first, reserve(bytes, wanted));
  if (first % wanted == 0) return first;
  settle(hip_.hipMemAddressFree(pointer_of(first), bytes));
  MORI_TRY(const uint64_t base, reserve(bytes + wanted, wanted));
  const uint64_t address = (base + wanted - 1) / wanted * wanted;
  const std::lock_guard guard(lock_);
  padded_[address] = {base, bytes + wanted};
  return address;
}

void amd_gpu::release_addresses(uint64_t address, uint64_t bytes) {
  if (address == 0 || !no_virtual_memory_.empty()) return;
  reservation whole{address, bytes};
  {
    const std::lock_guard guard(lock_);
    if (const auto found = padded_.find(address); found != padded_.end()) {
      whole = found->second;
      padded_.erase(found);
    }
  }
  const scope here(*this);
  settle(hip_.hipMemAddressFree(pointer_of(whole.base), whole.bytes));
}

base::status amd_gpu::map(uint64_t address, uint64_t bytes, uint64_t memory) {
  MORI_CHECK(require_virtual_memory());
  MORI_AMD_SCOPE;
  MORI_AMD(hipMemMap, pointer_of(address), bytes, 0, pointer_of(memory), 0);
  const amd::access readable{{amd::memory_on_device, facts_.ordinal}, amd::access_read_write};
  if (const auto outcome = hip_.hipMemSetAccess(pointer_of(address), bytes, &readable, 1);
      outcome != amd::success) {
    base::failure why = explain("hipMemSetAccess", outcome);
    settle(hip_.hipMemUnmap(pointer_of(address), bytes));
    return why;
  }
  return {};
}

void amd_gpu::unmap(uint64_t address, uint64_t bytes) {
  if (!no_virtual_memory_.empty()) return;
  const scope here(*this);
  settle(hip_.hipMemUnmap(pointer_of(address), bytes));
}

base::result<ipc_handle> amd_gpu::export_ipc(uint64_t address) {
  MORI_AMD_SCOPE;
  amd::ipc_memory made{};
  MORI_AMD(hipIpcGetMemHandle, &made, pointer_of(address));
  ipc_handle handle;
  static_assert(sizeof made.reserved == std::tuple_size_v<ipc_handle>);
  std::memcpy(handle.data(), made.reserved, handle.size());
  return handle;
}

base::result<uint64_t> amd_gpu::import_ipc(const ipc_handle& handle) {
  MORI_AMD_SCOPE;
  amd::ipc_memory given{};
  std::memcpy(given.reserved, handle.data(), handle.size());
  const unsigned lazy_peer_access = hip_.is_at_least(6, 0) ? 1 : 0;
  void* made = nullptr;
  MORI_AMD(hipIpcOpenMemHandle, &made, given, lazy_peer_access);
  return address_of(made);
}

void amd_gpu::close_ipc(uint64_t address) {
  const scope here(*this);
  settle(hip_.hipIpcCloseMemHandle(pointer_of(address)));
}

base::result<base::unique_fd> amd_gpu::export_dmabuf(uint64_t address, uint64_t bytes) {
  if (!facts_.exports_dmabuf)
    return base::fail(MORI_E_UNAVAILABLE,
                      "{} cannot export memory as a dma-buf: it lacks "
                      "hipMemGetHandleForAddressRange, which is new in 7.0",
                      hip_.describe());
  MORI_AMD_SCOPE;
  int descriptor = -1;
  MORI_AMD(hipMemGetHandleForAddressRange, &descriptor, pointer_of(address), bytes,
           amd::dmabuf_handle, 0);
  return base::unique_fd(descriptor);
}

base::status amd_gpu::enable_peer(int32_t ordinal) {
  if (ordinal == facts_.ordinal) return {};
  MORI_AMD_SCOPE;
  int can = 0;
  MORI_AMD(hipDeviceCanAccessPeer, &can, facts_.ordinal, ordinal);
  if (can == 0)
    return base::fail(MORI_E_UNAVAILABLE, "device {} ({}) cannot reach memory of device {}",
                      facts_.ordinal, facts_.name, ordinal);
  const amd::status outcome = hip_.hipDeviceEnablePeerAccess(ordinal, 0);
  if (outcome != amd::success && outcome != amd::peer_already_enabled)
    return explain("hipDeviceEnablePeerAccess", outcome);
  settle(outcome);
  return {};
}

namespace {

// An address that the driver does not know is an error in 5 and an empty answer since 6.0.
amd::status ask_driver(const amd::calls& hip, uint64_t address, gpu::pointer_facts& facts) {
  amd::pointer_attributes found{};
  const amd::status outcome = hip.hipPointerGetAttributes(&found, pointer_of(address));
  if (outcome == amd::invalid_value) {
    hip.hipGetLastError();
    return amd::success;
  }
  if (outcome != amd::success || (found.on_device == nullptr && found.on_host == nullptr))
    return outcome;
  facts.is_host = found.on_host != nullptr;
  facts.is_device = !facts.is_host;
  facts.ordinal = found.ordinal;
  return outcome;
}

}  // namespace

base::result<gpu::pointer_facts> amd_gpu::look_up(uint64_t address) {
  pointer_facts facts;
  if (address == 0) return facts;
  MORI_AMD_SCOPE;
  const amd::status outcome = ask_driver(hip_, address, facts);
  if (outcome != amd::success) return explain("hipPointerGetAttributes", outcome);
  return facts;
}

base::result<gpu::pointer_facts> amd_gpu::locate(uint64_t address,
                                                 std::span<const char* const> names) {
  pointer_facts facts;
  MORI_TRY(const amd::calls* hip, amd::driver(names));
  const amd::status outcome = address != 0 ? ask_driver(*hip, address, facts) : amd::success;
  if (outcome == amd::success) return facts;
  hip->hipGetLastError();
  return base::fail(MORI_E_OS, "hipPointerGetAttributes: error {}", outcome);
}

base::result<gpu::range> amd_gpu::allocation_at(uint64_t address) {
  MORI_AMD_SCOPE;
  void* start = nullptr;
  size_t bytes = 0;
  MORI_AMD(hipMemGetAddressRange, &start, &bytes, pointer_of(address));
  return range{address_of(start), bytes};
}

base::result<uint64_t> amd_gpu::memory_at(uint64_t address) {
  MORI_CHECK(require_virtual_memory());
  if (hip_.hipMemRetainAllocationHandle == nullptr)
    return base::fail(MORI_E_UNAVAILABLE, "{} lacks hipMemRetainAllocationHandle", hip_.describe());
  MORI_AMD_SCOPE;
  void* made = nullptr;
  MORI_AMD(hipMemRetainAllocationHandle, &made, pointer_of(address));
  return address_of(made);
}

}  // namespace mori::device
