// fake_nvidia.cpp - a libcuda over a fake world (fake_world.hpp), for the tests of
// src/nvidia_gpu.cpp; its memory calls are in fake_nvidia_memory.cpp. FAKE_IS_INCOMPLETE leaves out
// a call.
#include "fake_nvidia.hpp"

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

namespace mori::device::nvidia {

using namespace fake;

namespace {

// A device's context is this plus its ordinal.
char contexts[8];
void* context_of(int ordinal) { return ordinal < 0 ? nullptr : &contexts[ordinal]; }
int device_of(const void* context) {
  return static_cast<int>(static_cast<const char*>(context) - contexts);
}

const char* name_of(status outcome) {
  switch (outcome) {
    case 0: return "CUDA_SUCCESS";
    case 1: return "CUDA_ERROR_INVALID_VALUE";
    case 2: return "CUDA_ERROR_OUT_OF_MEMORY";
    case 100: return "CUDA_ERROR_NO_DEVICE";
    case 600: return "CUDA_ERROR_NOT_READY";
    case 704: return "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED";
    default: return "CUDA_ERROR_UNKNOWN";
  }
}

}  // namespace

FAKE_EXPORT world* mori_fake_world() { return &the_world(); }
FAKE_EXPORT thread_state* mori_fake_thread() { return &here(); }

status cuGetErrorName(status outcome, const char** name) {
  *name = name_of(outcome);
  return success;
}
status cuGetErrorString(status outcome, const char** text) {
  *text = outcome == 2 ? "out of memory" : "another error";
  return success;
}

status cuInit(unsigned) {
  FAKE_CALL(cuInit, anywhere);
  return the_world().set.device_count > 0 ? success : no_device;
}

status cuDriverGetVersion(int* version) {
  FAKE_CALL(cuDriverGetVersion, anywhere);
  *version = 13000;
  return success;
}

// --- Devices and contexts.

status cuDeviceGetCount(int* count) {
  FAKE_CALL(cuDeviceGetCount, anywhere);
  *count = the_world().set.device_count;
  return success;
}

status cuDeviceGet(device* made, int ordinal) {
  FAKE_CALL(cuDeviceGet, anywhere);
  *made = ordinal;
  return success;
}

status cuDeviceGetName(char* name, int bytes, device ordinal) {
  FAKE_CALL(cuDeviceGetName, anywhere);
  std::snprintf(name, static_cast<size_t>(bytes), "Fake Hopper %d", ordinal);
  return success;
}

status cuDeviceGetUuid_v2(uuid* id, device ordinal) {
  FAKE_CALL(cuDeviceGetUuid_v2, step);
  std::memcpy(id->bytes, "0123456789abcde", 16);
  id->bytes[15] = static_cast<char>('0' + ordinal);
  return success;
}

status cuDeviceTotalMem_v2(size_t* bytes, device) {
  FAKE_CALL(cuDeviceTotalMem_v2, step);
  *bytes = size_t{192} << 30;
  return success;
}

status cuDeviceGetAttribute(int* value, int which, device) {
  FAKE_CALL(cuDeviceGetAttribute, step);
  const int has_virtual_memory = the_world().set.has_virtual_memory ? 1 : 0;
  switch (which) {
    case attribute_multiprocessors: *value = 304; break;
    case attribute_wave: *value = 32; break;
    case attribute_major: *value = 9; break;
    case attribute_minor: *value = 0; break;
    case attribute_vmm:
    case attribute_descriptors: *value = has_virtual_memory; break;
    case attribute_rdma_vmm:
    case attribute_dmabuf: *value = 1; break;
    default: return invalid_value;
  }
  return success;
}

status cuDevicePrimaryCtxRetain(void** made, device ordinal) {
  FAKE_CALL(cuDevicePrimaryCtxRetain, anywhere);
  *made = context_of(ordinal);
  return success;
}

status cuCtxGetCurrent(void** current) {
  FAKE_CALL(cuCtxGetCurrent, anywhere);
  *current = context_of(here().device);
  return success;
}

status cuCtxGetDevice(device* ordinal) {
  FAKE_CALL(cuCtxGetDevice, anywhere);
  *ordinal = here().device;
  return here().device >= 0 ? success : invalid_value;
}

status cuCtxPushCurrent_v2(void* context) {
  FAKE_CALL(cuCtxPushCurrent_v2, anywhere);
  here().pushed.push_back(std::exchange(here().device, device_of(context)));
  return success;
}

status cuCtxPopCurrent_v2(void** popped) {
  FAKE_CALL(cuCtxPopCurrent_v2, anywhere);
  if (here().pushed.empty()) return invalid_value;
  *popped = context_of(here().device);
  here().device = here().pushed.back();
  here().pushed.pop_back();
  return success;
}

status cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  FAKE_CALL(cuCtxGetStreamPriorityRange, step);
  *least = 0;
  *greatest = -5;
  return success;
}

status cuCtxEnablePeerAccess(void* context, unsigned) {
  FAKE_CALL(cuCtxEnablePeerAccess, step);
  if (!the_world().set.reaches_peers) return 217;
  return the_world().seen.peers.insert(device_of(context)).second ? success : peer_already_enabled;
}

status cuThreadExchangeStreamCaptureMode(int* mode) {
  FAKE_CALL(cuThreadExchangeStreamCaptureMode, anywhere);
  std::swap(*mode, here().capture_mode);
  return success;
}

// --- Streams and events: all is done at once.

status cuStreamCreateWithPriority(void** made, unsigned flags, int priority) {
  FAKE_CALL(cuStreamCreateWithPriority, step);
  if (flags != stream_non_blocking || priority != -5) return invalid_value;
  return give(made, the_world().allocate("stream", 1));
}

status cuStreamDestroy_v2(void* stream) {
  FAKE_CALL(cuStreamDestroy_v2, gives_back);
  return done(the_world().free("stream", number(stream)));
}

status cuStreamSynchronize(void* stream) {
  FAKE_CALL(cuStreamSynchronize, step);
  return done(stream == nullptr || the_world().lives("stream", number(stream)));
}

status cuStreamIsCapturing(void*, int* state) {
  FAKE_CALL(cuStreamIsCapturing, step);
  *state = the_world().set.is_capturing ? 1 : 0;
  return success;
}

status cuStreamWaitEvent(void*, void* event, unsigned) {
  FAKE_CALL(cuStreamWaitEvent, step);
  return done(the_world().lives("event", number(event)));
}

status cuEventCreate(void** made, unsigned flags) {
  FAKE_CALL(cuEventCreate, step);
  if (flags != event_without_timing) return invalid_value;
  return give(made, the_world().allocate("event", 1));
}

status cuEventDestroy_v2(void* event) {
  FAKE_CALL(cuEventDestroy_v2, gives_back);
  return done(the_world().free("event", number(event)));
}

status cuEventRecord(void* event, void*) {
  FAKE_CALL(cuEventRecord, step);
  return done(the_world().lives("event", number(event)));
}

status cuEventSynchronize(void* event) {
  FAKE_CALL(cuEventSynchronize, step);
  return done(the_world().lives("event", number(event)));
}

status cuEventQuery(void* event) {
  FAKE_CALL(cuEventQuery, step);
  if (!the_world().lives("event", number(event))) return invalid_value;
  return the_world().set.events_are_reached ? success : not_ready;
}

// --- Code.

status cuModuleLoadData(void** made, const void* image) {
  FAKE_CALL(cuModuleLoadData, step);
  if (std::strcmp(static_cast<const char*>(image), "fake code") != 0) return invalid_value;
  return give(made, the_world().allocate("module", 1));
}

status cuModuleUnload(void* module) {
  FAKE_CALL(cuModuleUnload, gives_back);
  return done(the_world().free("module", number(module)));
}

status cuModuleGetFunction(void** found, void* module, const char* name) {
  FAKE_CALL(cuModuleGetFunction, step);
  *found = const_cast<void*>(the_world().find_kernel(name));
  return done(*found != nullptr && the_world().lives("module", number(module)));
}

status cuModuleGetGlobal_v2(address* found, size_t* bytes, void* module, const char* name) {
  FAKE_CALL(cuModuleGetGlobal_v2, step);
  const auto& all = the_world().set.variables;
  const auto one = all.find({number(module), name});
  if (one == all.end()) return not_found;
  *found = number(one->second.first);
  *bytes = one->second.second;
  return done(the_world().lives("module", number(module)));
}

status cuFuncLoad(void*) {
  FAKE_CALL(cuFuncLoad, step);
  return success;
}

status cuFuncGetAttribute(int* value, int which, void*) {
  FAKE_CALL(cuFuncGetAttribute, step);
  *value = 1024;
  return done(which == function_largest_block);
}

status cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int lanes, size_t) {
  FAKE_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, step);
  *blocks = 2048 / lanes;
  return success;
}

#if !defined(FAKE_IS_INCOMPLETE)
status cuLaunchKernel(void* kernel, unsigned x, unsigned, unsigned, unsigned lanes, unsigned,
                      unsigned, unsigned, void* stream, void** arguments, void**) {
  const launched how{{}, x, lanes, stream};
  kernel_body body;
  {
    FAKE_CALL(cuLaunchKernel, step);
    body = the_world().launch(kernel, how, arguments);
  }
  if (body) body(how, arguments);
  return success;
}
#endif

}  // namespace mori::device::nvidia
