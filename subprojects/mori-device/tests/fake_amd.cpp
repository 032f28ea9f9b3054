// fake_amd.cpp - a libamdhip64 over a fake world (fake_world.hpp), for the tests of
// src/amd_gpu.cpp; its memory calls are in fake_amd_memory.cpp. Compiled once for each version that
// differs: FAKE_HIP_VERSION is what it says it is and behaves like; FAKE_IS_INCOMPLETE leaves out
// a call.
#include "fake_amd.hpp"

#include <cstdio>
#include <cstring>
#include <utility>

namespace mori::fake {

world& the_world() {
  static auto* const made = new world();
  return *made;
}
thread_state& here() {
  thread_local thread_state state;
  return state;
}

}  // namespace mori::fake

namespace mori::device::amd {

using namespace fake;

namespace {

const char* name_of(status outcome) {
  switch (outcome) {
    case 0: return "hipSuccess";
    case 1: return "hipErrorInvalidValue";
    case 2: return "hipErrorOutOfMemory";
    case 100: return "hipErrorNoDevice";
    case 600: return "hipErrorNotReady";
    case 704: return "hipErrorPeerAccessAlreadyEnabled";
    case 801: return "hipErrorNotSupported";
    default: return "hipErrorUnknown";
  }
}

}  // namespace

FAKE_EXPORT world* mori_fake_world() { return &the_world(); }
FAKE_EXPORT thread_state* mori_fake_thread() { return &here(); }

FAKE_EXPORT const char* hipGetErrorName(status outcome) { return name_of(outcome); }
FAKE_EXPORT const char* hipGetErrorString(status outcome) {
  return outcome == 2 ? "out of memory" : name_of(outcome);
}

status hipRuntimeGetVersion(int* version) {
  FAKE_CALL(hipRuntimeGetVersion, anywhere);
  *version = FAKE_HIP_VERSION;
  return done(true);
}

status hipGetLastError() {
  const std::lock_guard guard(the_world().lock);
  the_world().enter("hipGetLastError", rule::anywhere, here());
  return std::exchange(here().last_error, success);
}

// --- Devices.

status hipGetDeviceCount(int* count) {
  FAKE_CALL(hipGetDeviceCount, anywhere);
  *count = the_world().set.device_count;
  return done(*count > 0 ? success : no_device);
}

status hipGetDevice(int* ordinal) {
  FAKE_CALL(hipGetDevice, anywhere);
  *ordinal = here().device;
  return done(true);
}

status hipSetDevice(int ordinal) {
  FAKE_CALL(hipSetDevice, anywhere);
  if (ordinal < 0 || ordinal >= the_world().set.device_count) return done(false);
  here().device = ordinal;
  return done(true);
}

status hipDeviceGetName(char* name, int bytes, int ordinal) {
  FAKE_CALL(hipDeviceGetName, step);
  std::snprintf(name, static_cast<size_t>(bytes), "Fake Instinct %d", ordinal);
  return done(true);
}

status hipDeviceGetPCIBusId(char* bus, int bytes, int ordinal) {
  FAKE_CALL(hipDeviceGetPCIBusId, step);
  std::snprintf(bus, static_cast<size_t>(bytes), "0000:c%d:00.0", ordinal);
  return done(true);
}

#if FAKE_HIP_VERSION >= 50200000
status hipDeviceGetUuid(uuid* id, int ordinal) {
  FAKE_CALL(hipDeviceGetUuid, step);
  std::memcpy(id->bytes,
              the_world().set.has_uuid ? "0123456789abcde" : "XX\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
  if (the_world().set.has_uuid) id->bytes[15] = static_cast<char>('0' + ordinal);
  return done(true);
}
#endif

status hipDeviceTotalMem(size_t* bytes, int) {
  FAKE_CALL(hipDeviceTotalMem, step);
  *bytes = size_t{192} << 30;
  return done(true);
}

status hipDeviceGetAttribute(int* value, int which, int) {
  FAKE_CALL(hipDeviceGetAttribute, step);
  switch (which) {
    case attribute_multiprocessors: *value = 304; break;
    case attribute_wave: *value = 64; break;
    case attribute_vmm: *value = the_world().set.has_virtual_memory ? 1 : 0; break;
    default: return done(false);
  }
  return done(true);
}

// The layout goes with the symbol, not with the version.
namespace {
status fill_properties(void* properties, size_t offset) {
  const std::string& name = the_world().set.architecture;
  std::memcpy(static_cast<char*>(properties) + offset, name.c_str(), name.size() + 1);
  return done(true);
}
}  // namespace

#if FAKE_HIP_VERSION >= 60000000
status hipGetDevicePropertiesR0600(void* properties, int) {
  FAKE_CALL(hipGetDevicePropertiesR0600, step);
  return fill_properties(properties, architecture_offset_r0600);
}
#endif

status hipGetDeviceProperties(void* properties, int) {
  FAKE_CALL(hipGetDeviceProperties, step);
  return fill_properties(properties, architecture_offset_5);
}

status hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
  FAKE_CALL(hipDeviceGetStreamPriorityRange, step);
  *least = 1;
  *greatest = -1;
  return done(true);
}

status hipDeviceCanAccessPeer(int* can, int, int) {
  FAKE_CALL(hipDeviceCanAccessPeer, step);
  *can = the_world().set.reaches_peers ? 1 : 0;
  return done(true);
}

status hipDeviceEnablePeerAccess(int ordinal, unsigned) {
  FAKE_CALL(hipDeviceEnablePeerAccess, step);
  return done(the_world().seen.peers.insert(ordinal).second ? success : peer_already_enabled);
}

#if FAKE_HIP_VERSION >= 50200000
status hipThreadExchangeStreamCaptureMode(int* mode) {
  FAKE_CALL(hipThreadExchangeStreamCaptureMode, anywhere);
  std::swap(*mode, here().capture_mode);
  return done(true);
}
#endif

// --- Streams and events: all is done at once.

status hipStreamCreateWithPriority(void** made, unsigned flags, int priority) {
  FAKE_CALL(hipStreamCreateWithPriority, step);
  if (flags != stream_non_blocking || priority != -1) return done(false);
  return give(made, the_world().allocate("stream", 1));
}

status hipStreamDestroy(void* stream) {
  FAKE_CALL(hipStreamDestroy, gives_back);
  return done(the_world().free("stream", number(stream)));
}

status hipStreamSynchronize(void* stream) {
  FAKE_CALL(hipStreamSynchronize, step);
  return done(stream == nullptr || the_world().lives("stream", number(stream)));
}

status hipStreamIsCapturing(void*, int* state) {
  FAKE_CALL(hipStreamIsCapturing, step);
  *state = the_world().set.is_capturing ? 1 : 0;
  return done(true);
}

status hipStreamWaitEvent(void*, void* event, unsigned) {
  FAKE_CALL(hipStreamWaitEvent, step);
  return done(the_world().lives("event", number(event)));
}

status hipEventCreateWithFlags(void** made, unsigned flags) {
  FAKE_CALL(hipEventCreateWithFlags, step);
  if (flags != event_without_timing) return done(false);
  return give(made, the_world().allocate("event", 1));
}

status hipEventDestroy(void* event) {
  FAKE_CALL(hipEventDestroy, gives_back);
  return done(the_world().free("event", number(event)));
}

status hipEventRecord(void* event, void*) {
  FAKE_CALL(hipEventRecord, step);
  return done(the_world().lives("event", number(event)));
}

status hipEventSynchronize(void* event) {
  FAKE_CALL(hipEventSynchronize, step);
  return done(the_world().lives("event", number(event)));
}

status hipEventQuery(void* event) {
  FAKE_CALL(hipEventQuery, step);
  if (!the_world().lives("event", number(event))) return done(false);
  return done(the_world().set.events_are_reached ? success : not_ready);
}

status hipMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void*) {
  FAKE_CALL(hipMemcpyAsync, step);
  if (kind != copy_by_address) return done(false);
  std::memcpy(to, from, bytes);
  return done(true);
}

status hipMemsetAsync(void* to, int value, size_t bytes, void*) {
  FAKE_CALL(hipMemsetAsync, step);
  std::memset(to, value, bytes);
  return done(true);
}

// --- Code.

status hipModuleLoadData(void** made, const void* image) {
  FAKE_CALL(hipModuleLoadData, step);
  if (std::strcmp(static_cast<const char*>(image), "fake code") != 0) return done(false);
  return give(made, the_world().allocate("module", 1));
}

status hipModuleUnload(void* module) {
  FAKE_CALL(hipModuleUnload, gives_back);
  return done(the_world().free("module", number(module)));
}

status hipModuleGetFunction(void** found, void* module, const char* name) {
  FAKE_CALL(hipModuleGetFunction, step);
  *found = const_cast<void*>(the_world().find_kernel(name));
  return done(*found != nullptr && the_world().lives("module", number(module)));
}

status hipModuleGetGlobal(void** found, size_t* bytes, void* module, const char* name) {
  FAKE_CALL(hipModuleGetGlobal, step);
  const auto& all = the_world().set.variables;
  const auto one = all.find({number(module), name});
  if (one == all.end()) return done(not_found);
  *found = one->second.first;
  *bytes = one->second.second;
  return done(the_world().lives("module", number(module)));
}

status hipFuncGetAttribute(int* value, int which, void*) {
  FAKE_CALL(hipFuncGetAttribute, step);
  *value = 1024;
  return done(which == function_largest_block);
}

status hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int lanes, size_t) {
  FAKE_CALL(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor, step);
  *blocks = 2048 / lanes;
  return done(true);
}

#if !defined(FAKE_IS_INCOMPLETE)
status hipModuleLaunchKernel(void* kernel, unsigned x, unsigned, unsigned, unsigned lanes, unsigned,
                             unsigned, unsigned, void* stream, void** arguments, void**) {
  const launched how{{}, x, lanes, stream};
  kernel_body body;
  {
    FAKE_CALL(hipModuleLaunchKernel, step);
    body = the_world().launch(kernel, how, arguments);
  }
  if (body) body(how, arguments);
  return done(true);
}
#endif

}  // namespace mori::device::amd
