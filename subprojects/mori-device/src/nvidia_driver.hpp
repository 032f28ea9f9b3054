// nvidia_driver.hpp - the calls of libcuda.so.1 that are used, declared by hand so
// that building needs no CUDA, and the table that is filled from the library at run
// time. A test compares every declaration with cuda.h where that is installed.
// Names are the driver's own, with the version suffix that the library exports.
#pragma once

#include <mori/base/result.hpp>

#include <cstddef>
#include <cstdint>

namespace mori::device::nvidia {

using status = int;  // CUresult
using device = int;
using address = unsigned long long;  // CUdeviceptr
using memory = unsigned long long;   // CUmemGenericAllocationHandle

inline constexpr status success = 0;
inline constexpr status invalid_value = 1;
inline constexpr status out_of_memory = 2;
inline constexpr status not_found = 500;
inline constexpr status not_ready = 600;
inline constexpr status peer_already_enabled = 704;

inline constexpr int attribute_wave = 10;
inline constexpr int attribute_multiprocessors = 16;
inline constexpr int attribute_major = 75;
inline constexpr int attribute_minor = 76;
inline constexpr int attribute_vmm = 102;
inline constexpr int attribute_descriptors = 103;
inline constexpr int attribute_rdma_vmm = 110;
inline constexpr int attribute_dmabuf = 124;

inline constexpr unsigned host_portable = 1, host_mapped = 2;
inline constexpr unsigned stream_non_blocking = 1;
inline constexpr unsigned event_without_timing = 2;
inline constexpr unsigned ipc_lazy_peer_access = 1;
inline constexpr int capture_relaxed = 2;
inline constexpr int memory_type_host = 1;
inline constexpr int pointer_memory_type = 2;
inline constexpr int pointer_ordinal = 9;
inline constexpr int function_largest_block = 0;
inline constexpr int descriptor_handle = 1;
inline constexpr int dmabuf_handle = 1;
inline constexpr int granularity_minimum = 0;

struct location {
  int type;  // 1: device
  int id;
};
struct allocation {
  int type;  // 1: pinned
  int handle_types;
  location where;
  void* windows;
  struct {
    unsigned char compression;
    unsigned char rdma;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};
struct access {
  location where;
  int flags;  // 3: read and write
};
struct uuid {
  char bytes[16];
};
struct ipc_memory {
  char reserved[64];
};

// X(symbol, required, parameters...)
#define MORI_NVIDIA_CALLS(X)                                                                 \
  X(cuInit, true, unsigned)                                                                  \
  X(cuDriverGetVersion, true, int*)                                                          \
  X(cuGetErrorName, true, status, const char**)                                              \
  X(cuGetErrorString, true, status, const char**)                                            \
  X(cuDeviceGetCount, true, int*)                                                            \
  X(cuDeviceGet, true, device*, int)                                                         \
  X(cuDeviceGetName, true, char*, int, device)                                               \
  X(cuDeviceGetUuid_v2, true, uuid*, device)                                                 \
  X(cuDeviceTotalMem_v2, true, size_t*, device)                                              \
  X(cuDeviceGetAttribute, true, int*, int, device)                                           \
  X(cuDevicePrimaryCtxRetain, true, void**, device)                                          \
  X(cuCtxGetCurrent, true, void**)                                                           \
  X(cuCtxGetDevice, true, device*)                                                           \
  X(cuCtxPushCurrent_v2, true, void*)                                                        \
  X(cuCtxPopCurrent_v2, true, void**)                                                        \
  X(cuCtxGetStreamPriorityRange, true, int*, int*)                                           \
  X(cuCtxEnablePeerAccess, true, void*, unsigned)                                            \
  X(cuMemAlloc_v2, true, address*, size_t)                                                   \
  X(cuMemFree_v2, true, address)                                                             \
  X(cuMemHostAlloc, true, void**, size_t, unsigned)                                          \
  X(cuMemFreeHost, true, void*)                                                              \
  X(cuMemHostRegister_v2, true, void*, size_t, unsigned)                                     \
  X(cuMemHostUnregister, true, void*)                                                        \
  X(cuMemHostGetDevicePointer_v2, true, address*, void*, unsigned)                           \
  X(cuMemGetAllocationGranularity, true, size_t*, const allocation*, int)                    \
  X(cuMemCreate, true, memory*, size_t, const allocation*, unsigned long long)               \
  X(cuMemRelease, true, memory)                                                              \
  X(cuMemExportToShareableHandle, true, void*, memory, int, unsigned long long)              \
  X(cuMemImportFromShareableHandle, true, memory*, void*, int)                               \
  X(cuMemAddressReserve, true, address*, size_t, size_t, address, unsigned long long)        \
  X(cuMemAddressFree, true, address, size_t)                                                 \
  X(cuMemMap, true, address, size_t, size_t, memory, unsigned long long)                     \
  X(cuMemUnmap, true, address, size_t)                                                       \
  X(cuMemSetAccess, true, address, size_t, const access*, size_t)                            \
  X(cuMemGetAddressRange_v2, true, address*, size_t*, address)                               \
  X(cuMemRetainAllocationHandle, false, memory*, void*)                                      \
  X(cuIpcGetMemHandle, true, ipc_memory*, address)                                           \
  X(cuIpcOpenMemHandle_v2, true, address*, ipc_memory, unsigned)                             \
  X(cuIpcCloseMemHandle, true, address)                                                      \
  X(cuMemGetHandleForAddressRange, false, void*, address, size_t, int, unsigned long long)   \
  X(cuPointerGetAttribute, true, void*, int, address)                                        \
  X(cuStreamCreateWithPriority, true, void**, unsigned, int)                                 \
  X(cuStreamDestroy_v2, true, void*)                                                         \
  X(cuStreamSynchronize, true, void*)                                                        \
  X(cuStreamIsCapturing, true, void*, int*)                                                  \
  X(cuStreamWaitEvent, true, void*, void*, unsigned)                                         \
  X(cuEventCreate, true, void**, unsigned)                                                   \
  X(cuEventDestroy_v2, true, void*)                                                          \
  X(cuEventRecord, true, void*, void*)                                                       \
  X(cuEventSynchronize, true, void*)                                                         \
  X(cuEventQuery, true, void*)                                                               \
  X(cuMemcpyAsync, true, address, address, size_t, void*)                                    \
  X(cuMemsetD8Async, true, address, unsigned char, size_t, void*)                            \
  X(cuModuleLoadData, true, void**, const void*)                                             \
  X(cuModuleUnload, true, void*)                                                             \
  X(cuModuleGetFunction, true, void**, void*, const char*)                                   \
  X(cuModuleGetGlobal_v2, true, address*, size_t*, void*, const char*)                       \
  X(cuFuncLoad, false, void*)                                                                \
  X(cuFuncGetAttribute, true, int*, int, void*)                                              \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, true, int*, void*, int, size_t)             \
  X(cuLaunchKernel, true, void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
    unsigned, void*, void**, void**)                                                         \
  X(cuThreadExchangeStreamCaptureMode, true, int*)

struct calls {
#define MORI_NVIDIA_CALL(name, required, ...) status (*name)(__VA_ARGS__) = nullptr;
  MORI_NVIDIA_CALLS(MORI_NVIDIA_CALL)
#undef MORI_NVIDIA_CALL
};

// Opens the library once per process and fills the table; initialises the driver. The failure says
// what was tried. `library` is for tests.
bool is_loaded(const char* library = "libcuda.so.1");
base::result<const calls*> driver(const char* library = "libcuda.so.1");

}  // namespace mori::device::nvidia
