// fake_amd_memory.cpp - the memory calls of the fake libamdhip64. Read fake_amd.cpp first.
#include "fake_amd.hpp"

#include <unistd.h>

#include <cstring>

namespace mori::device::amd {

using namespace fake;

// --- Memory.

status hipExtMallocWithFlags(void** made, size_t bytes, unsigned flags) {
  FAKE_CALL(hipExtMallocWithFlags, step);
  const bool knows_uncached = FAKE_HIP_VERSION >= 50500000;
  if (flags != device_fine_grained && !(flags == device_uncached && knows_uncached))
    return done(false);
  return give(made,
              the_world().allocate_shared(
                  flags == device_uncached ? "uncached memory" : "fine-grained memory", bytes));
}

status hipFree(void* pointer) {
  FAKE_CALL(hipFree, gives_back);
  return done(the_world().free_shared("uncached memory", number(pointer)) ||
              the_world().free_shared("fine-grained memory", number(pointer)));
}

status hipHostMalloc(void** made, size_t bytes, unsigned flags) {
  FAKE_CALL(hipHostMalloc, step);
  const unsigned all = host_portable | host_mapped | host_coherent;
  if (flags != all) return done(false);
  return give(made, the_world().allocate("host memory", bytes));
}

status hipHostFree(void* pointer) {
  FAKE_CALL(hipHostFree, gives_back);
  return done(the_world().free("host memory", number(pointer)));
}

status hipHostRegister(void* pointer, size_t, unsigned flags) {
  FAKE_CALL(hipHostRegister, step);
  return done(flags == (registered_portable | registered_mapped) &&
              the_world().begin("registered memory", number(pointer)));
}

status hipHostUnregister(void* pointer) {
  FAKE_CALL(hipHostUnregister, gives_back);
  return done(the_world().end("registered memory", number(pointer)));
}

status hipHostGetDevicePointer(void** seen, void* pointer, unsigned) {
  FAKE_CALL(hipHostGetDevicePointer, step);
  *seen = pointer;
  return done(the_world().lives("registered memory", number(pointer)));
}

status hipPointerGetAttributes(pointer_attributes* found, const void* pointer) {
  FAKE_CALL(hipPointerGetAttributes, step);
  const uint64_t address = number(pointer);
  const uint64_t start = the_world().range_at(address).first;
  const bool is_host =
      the_world().lives("host memory", start) || the_world().lives("registered memory", address);
  const bool is_device = the_world().lives("uncached memory", start) ||
                         the_world().lives("fine-grained memory", start) ||
                         the_world().lives("mapping", start) ||
                         the_world().lives("opened handle", start);
  *found = {};
  found->ordinal = is_host || is_device ? here().device : -1;
  if (is_host || is_device) found->on_device = const_cast<void*>(pointer);
  if (is_host) found->on_host = const_cast<void*>(pointer);
  return done(is_host || is_device || FAKE_HIP_VERSION >= 60000000);
}

// --- Virtual memory. Before 7.0.2 there is no uncached one.
#if FAKE_HIP_VERSION >= 50200000

namespace {
bool is_known(const allocation& what) {
  const bool knows_uncached = FAKE_HIP_VERSION >= 70051831;
  return what.where.type == memory_on_device && what.where.id == here().device &&
         what.handle_types == descriptor_handle &&
         (what.type == memory_pinned || (what.type == memory_uncached && knows_uncached));
}
}  // namespace

status hipMemGetAllocationGranularity(size_t* bytes, const allocation* what, int) {
  FAKE_CALL(hipMemGetAllocationGranularity, step);
  *bytes = granule;
  return done(is_known(*what));
}

status hipMemCreate(void** made, size_t bytes, const allocation* what, unsigned long long) {
  FAKE_CALL(hipMemCreate, step);
  if (!is_known(*what)) return done(false);
  return give(made, the_world().create_memory(bytes));
}

status hipMemRelease(void* memory) {
  FAKE_CALL(hipMemRelease, gives_back);
  return done(the_world().release_memory(number(memory)));
}

status hipMemExportToShareableHandle(void* descriptor, void* memory, int, unsigned long long) {
  FAKE_CALL(hipMemExportToShareableHandle, step);
  const int made = the_world().export_memory(number(memory));
  std::memcpy(descriptor, &made, sizeof made);
  return done(made >= 0);
}

status hipMemImportFromShareableHandle(void** made, void* given, int) {
  FAKE_CALL(hipMemImportFromShareableHandle, step);
#if FAKE_HIP_VERSION >= 70100000
  const int descriptor = static_cast<int>(number(given));
#else
  const int descriptor = *static_cast<int*>(given);
#endif
  return give(made, the_world().import_memory(descriptor));
}

status hipMemAddressReserve(void** made, size_t bytes, size_t alignment, void*,
                            unsigned long long) {
  FAKE_CALL(hipMemAddressReserve, step);
  return give(made, the_world().reserve(bytes, alignment));
}

status hipMemAddressFree(void* address, size_t bytes) {
  FAKE_CALL(hipMemAddressFree, gives_back);
  return done(the_world().release(number(address), bytes));
}

status hipMemMap(void* address, size_t bytes, size_t, void* memory, unsigned long long) {
  FAKE_CALL(hipMemMap, step);
  return done(the_world().map(number(address), bytes, number(memory)));
}

status hipMemUnmap(void* address, size_t bytes) {
  FAKE_CALL(hipMemUnmap, gives_back);
  return done(the_world().unmap(number(address), bytes));
}

status hipMemSetAccess(void* address, size_t bytes, const access* what, size_t count) {
  FAKE_CALL(hipMemSetAccess, step);
  return done(count == 1 && what->where.id == here().device && what->flags == access_read_write &&
              the_world().allow(number(address), bytes));
}
#endif

#if FAKE_HIP_VERSION >= 70000000
status hipMemGetHandleForAddressRange(void* descriptor, void* address, size_t, int,
                                      unsigned long long) {
  FAKE_CALL(hipMemGetHandleForAddressRange, step);
  const int made = the_world().lives("uncached memory", number(address)) ? ::dup(2) : -1;
  std::memcpy(descriptor, &made, sizeof made);
  return done(made >= 0);
}
#endif

// --- Handles.

status hipIpcGetMemHandle(ipc_memory* made, void* address) {
  FAKE_CALL(hipIpcGetMemHandle, step);
  *made = {};
  return done(the_world().export_handle(number(address), made->reserved));
}

status hipIpcOpenMemHandle(void** made, ipc_memory given, unsigned flags) {
  FAKE_CALL(hipIpcOpenMemHandle, step);
  if (flags != (FAKE_HIP_VERSION >= 60000000 ? 1u : 0u)) return done(false);
  *made = reinterpret_cast<void*>(the_world().open_handle(given.reserved));
  return done(*made != nullptr);
}

status hipIpcCloseMemHandle(void* address) {
  FAKE_CALL(hipIpcCloseMemHandle, gives_back);
  return done(the_world().close_handle(number(address)));
}

// --- What lies where.

status hipMemGetAddressRange(void** start, size_t* bytes, void* given) {
  FAKE_CALL(hipMemGetAddressRange, step);
  const auto found = the_world().range_at(number(given));
  *start = reinterpret_cast<void*>(found.first);
  *bytes = found.second;
  return done(found.second != 0);
}

#if FAKE_HIP_VERSION >= 50200000
status hipMemRetainAllocationHandle(void** made, void* given) {
  FAKE_CALL(hipMemRetainAllocationHandle, step);
  *made = reinterpret_cast<void*>(the_world().memory_at(number(given)));
  return done(*made != nullptr);
}
#endif

}  // namespace mori::device::amd
