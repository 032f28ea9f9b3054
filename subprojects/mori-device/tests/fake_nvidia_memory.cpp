// fake_nvidia_memory.cpp - the memory calls of the fake libcuda. Read fake_nvidia.cpp first.
#include "fake_nvidia.hpp"

#include <unistd.h>

#include <cstring>

namespace mori::device::nvidia {

using namespace fake;

status cuMemAlloc_v2(address* made, size_t bytes) {
  FAKE_CALL(cuMemAlloc_v2, step);
  return give(made, the_world().allocate_shared("device memory", bytes));
}

status cuMemFree_v2(address given) {
  FAKE_CALL(cuMemFree_v2, gives_back);
  return done(the_world().free_shared("device memory", given));
}

status cuMemHostAlloc(void** made, size_t bytes, unsigned flags) {
  FAKE_CALL(cuMemHostAlloc, step);
  if (flags != (host_portable | host_mapped)) return invalid_value;
  return give(made, the_world().allocate("host memory", bytes));
}

status cuMemFreeHost(void* pointer) {
  FAKE_CALL(cuMemFreeHost, gives_back);
  return done(the_world().free("host memory", number(pointer)));
}

status cuMemHostRegister_v2(void* pointer, size_t, unsigned flags) {
  FAKE_CALL(cuMemHostRegister_v2, step);
  return done(flags == (host_portable | host_mapped) &&
              the_world().begin("registered memory", number(pointer)));
}

status cuMemHostUnregister(void* pointer) {
  FAKE_CALL(cuMemHostUnregister, gives_back);
  return done(the_world().end("registered memory", number(pointer)));
}

status cuMemHostGetDevicePointer_v2(address* seen, void* pointer, unsigned) {
  FAKE_CALL(cuMemHostGetDevicePointer_v2, step);
  *seen = number(pointer);
  return done(the_world().lives("registered memory", number(pointer)));
}

status cuPointerGetAttribute(void* value, int which, address given) {
  FAKE_CALL(cuPointerGetAttribute, step);
  const uint64_t start = the_world().range_at(given).first;
  const bool is_host =
      the_world().lives("host memory", start) || the_world().lives("registered memory", given);
  const bool is_device = the_world().lives("device memory", start) ||
                         the_world().lives("mapping", start) ||
                         the_world().lives("opened handle", start);
  if (!is_host && !is_device) return invalid_value;
  const int type = is_host ? memory_type_host : 2;
  std::memcpy(value, which == pointer_memory_type ? &type : &here().device, sizeof type);
  return success;
}

status cuMemcpyAsync(address to, address from, size_t bytes, void*) {
  FAKE_CALL(cuMemcpyAsync, step);
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return success;
}

status cuMemsetD8Async(address to, unsigned char value, size_t bytes, void*) {
  FAKE_CALL(cuMemsetD8Async, step);
  std::memset(reinterpret_cast<void*>(to), value, bytes);
  return success;
}

// --- Virtual memory.

namespace {
bool is_known(const allocation& what) {
  return what.type == 1 && what.where.type == 1 && what.where.id == here().device &&
         what.handle_types == descriptor_handle;
}
}  // namespace

status cuMemGetAllocationGranularity(size_t* bytes, const allocation* what, int) {
  FAKE_CALL(cuMemGetAllocationGranularity, step);
  *bytes = granule;
  return done(is_known(*what));
}

status cuMemCreate(memory* made, size_t bytes, const allocation* what, unsigned long long) {
  FAKE_CALL(cuMemCreate, step);
  if (!is_known(*what)) return invalid_value;
  return give(made, the_world().create_memory(bytes));
}

status cuMemRelease(memory given) {
  FAKE_CALL(cuMemRelease, gives_back);
  return done(the_world().release_memory(given));
}

status cuMemExportToShareableHandle(void* descriptor, memory given, int, unsigned long long) {
  FAKE_CALL(cuMemExportToShareableHandle, step);
  const int made = the_world().export_memory(given);
  std::memcpy(descriptor, &made, sizeof made);
  return done(made >= 0);
}

status cuMemImportFromShareableHandle(memory* made, void* given, int) {
  FAKE_CALL(cuMemImportFromShareableHandle, step);
  return give(made, the_world().import_memory(static_cast<int>(number(given))));
}

status cuMemAddressReserve(address* made, size_t bytes, size_t alignment, address,
                           unsigned long long) {
  FAKE_CALL(cuMemAddressReserve, step);
  return give(made, the_world().reserve(bytes, alignment));
}

status cuMemAddressFree(address given, size_t bytes) {
  FAKE_CALL(cuMemAddressFree, gives_back);
  return done(the_world().release(given, bytes));
}

status cuMemMap(address at, size_t bytes, size_t, memory given, unsigned long long) {
  FAKE_CALL(cuMemMap, step);
  return done(the_world().map(at, bytes, given));
}

status cuMemUnmap(address at, size_t bytes) {
  FAKE_CALL(cuMemUnmap, gives_back);
  return done(the_world().unmap(at, bytes));
}

status cuMemSetAccess(address at, size_t bytes, const access* what, size_t count) {
  FAKE_CALL(cuMemSetAccess, step);
  return done(count == 1 && what->where.id == here().device && what->flags == 3 &&
              the_world().allow(at, bytes));
}

status cuMemGetHandleForAddressRange(void* descriptor, address given, size_t, int,
                                     unsigned long long) {
  FAKE_CALL(cuMemGetHandleForAddressRange, step);
  const int made = the_world().lives("device memory", given) ? ::dup(2) : -1;
  std::memcpy(descriptor, &made, sizeof made);
  return done(made >= 0);
}

// --- Handles.

status cuIpcGetMemHandle(ipc_memory* made, address given) {
  FAKE_CALL(cuIpcGetMemHandle, step);
  *made = {};
  return done(the_world().export_handle(given, made->reserved));
}

status cuIpcOpenMemHandle_v2(address* made, ipc_memory given, unsigned flags) {
  FAKE_CALL(cuIpcOpenMemHandle_v2, step);
  if (flags != ipc_lazy_peer_access) return invalid_value;
  *made = the_world().open_handle(given.reserved);
  return done(*made != 0);
}

status cuIpcCloseMemHandle(address given) {
  FAKE_CALL(cuIpcCloseMemHandle, gives_back);
  return done(the_world().close_handle(given));
}

// --- What lies where.

status cuMemGetAddressRange_v2(address* start, size_t* bytes, address given) {
  FAKE_CALL(cuMemGetAddressRange_v2, step);
  const auto found = the_world().range_at(given);
  *start = found.first;
  *bytes = found.second;
  return done(found.second != 0);
}

status cuMemRetainAllocationHandle(memory* made, void* given) {
  FAKE_CALL(cuMemRetainAllocationHandle, step);
  *made = the_world().memory_at(number(given));
  return done(*made != 0);
}

}  // namespace mori::device::nvidia
