// amd_driver.hpp - the calls of libamdhip64 that are used, declared by hand so that
// building needs no HIP and one build serves HIP 5 to 7, and the table that is filled from the
// library at run time. A test compares every declaration with HIP's own header where
// that is installed. Names are the library's own.
//
// What differs between versions, and how it is told apart
//  * hipDeviceProp_t: not used but for the architecture's name (read_architecture in
//    amd_gpu.cpp); all else comes from attributes, whose numbers are the same in 5.0 to 7.
//  * hipMemAllocationProp has today's order since 5.3.
//  * hipPointerAttribute_t: the numbers of its type were dealt anew in 6.0; its pointers tell the
//    same and did not change.
//  * hipIpcMemLazyEnablePeerAccess is 0 in 5 and 1 since 6.0, and no other value is taken.
//  * hipMemImportFromShareableHandle takes the address of the descriptor before 7.1 and
//    the descriptor itself since.
#pragma once

#include <mori/base/result.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace mori::device::amd {

using status = int;  // hipError_t

inline constexpr status success = 0;
inline constexpr status invalid_value = 1;
inline constexpr status out_of_memory = 2;
inline constexpr status no_device = 100;
inline constexpr status not_found = 500;
inline constexpr status not_ready = 600;
inline constexpr status peer_already_enabled = 704;
inline constexpr status not_supported = 801;

inline constexpr int attribute_multiprocessors = 63;
inline constexpr int attribute_wave = 87;
inline constexpr int attribute_vmm = 89;  // since 5.3

// Of hipExtMallocWithFlags.
inline constexpr unsigned device_fine_grained = 1;
inline constexpr unsigned device_uncached = 3;  // since 5.5

inline constexpr unsigned host_portable = 1, host_mapped = 2, host_coherent = 0x40000000;
inline constexpr unsigned registered_portable = 1, registered_mapped = 2;
inline constexpr unsigned stream_non_blocking = 1;
inline constexpr unsigned event_without_timing = 2;
inline constexpr int capture_relaxed = 2;
inline constexpr int copy_by_address = 4;
inline constexpr int function_largest_block = 0;

inline constexpr int memory_pinned = 1;
inline constexpr int memory_uncached = 0x40000000;  // hipMemCreate takes it since 7.0.2
inline constexpr int memory_on_device = 1;
inline constexpr int access_read_write = 3;
inline constexpr int descriptor_handle = 1;
inline constexpr int dmabuf_handle = 1;
inline constexpr int granularity_recommended = 1;

struct location {
  int type;
  int id;
};
struct allocation {
  int type;
  int handle_types;
  location where;
  void* windows;
  struct {
    unsigned char compression;
    unsigned char rdma;
    unsigned short usage;
  } flags;
};
struct access {
  location where;
  int flags;
};
struct pointer_attributes {
  int type;
  int ordinal;
  void* on_device;
  void* on_host;  // null for memory of a device
  int is_managed;
  unsigned flags;
};
struct uuid {
  char bytes[16];
};
struct ipc_memory {
  char reserved[64];
};

// Where gcnArchName lies in the properties' two layouts. The symbol's name carries the layout:
// hipGetDevicePropertiesR0600 fills the one of 6.0 and later, hipGetDeviceProperties that of 5.
inline constexpr size_t architecture_offset_r0600 = 1160;
inline constexpr size_t architecture_offset_5 = 396;
inline constexpr size_t architecture_bytes = 256;
inline constexpr size_t most_properties_bytes = 4096;  // 792 in 5, 1472 in 6 and 7

// X(symbol, required, parameters...). What is not required: stream capture modes, UUIDs and
// virtual memory are of 5.2, the properties by layout of 6.0, dma-bufs of 7.0.
#define MORI_AMD_CALLS(X)                                                                 \
  X(hipRuntimeGetVersion, true, int*)                                                     \
  X(hipGetLastError, true)                                                                \
  X(hipGetDeviceCount, true, int*)                                                        \
  X(hipGetDevice, true, int*)                                                             \
  X(hipSetDevice, true, int)                                                              \
  X(hipDeviceGetName, true, char*, int, int)                                              \
  X(hipDeviceGetPCIBusId, true, char*, int, int)                                          \
  X(hipDeviceGetUuid, false, uuid*, int)                                                  \
  X(hipDeviceTotalMem, true, size_t*, int)                                                \
  X(hipDeviceGetAttribute, true, int*, int, int)                                          \
  X(hipGetDeviceProperties, false, void*, int)                                            \
  X(hipGetDevicePropertiesR0600, false, void*, int)                                       \
  X(hipDeviceGetStreamPriorityRange, true, int*, int*)                                    \
  X(hipDeviceCanAccessPeer, true, int*, int, int)                                         \
  X(hipDeviceEnablePeerAccess, true, int, unsigned)                                       \
  X(hipThreadExchangeStreamCaptureMode, false, int*)                                      \
  X(hipExtMallocWithFlags, true, void**, size_t, unsigned)                                \
  X(hipFree, true, void*)                                                                 \
  X(hipHostMalloc, true, void**, size_t, unsigned)                                        \
  X(hipHostFree, true, void*)                                                             \
  X(hipHostRegister, true, void*, size_t, unsigned)                                       \
  X(hipHostUnregister, true, void*)                                                       \
  X(hipHostGetDevicePointer, true, void**, void*, unsigned)                               \
  X(hipMemGetAllocationGranularity, false, size_t*, const allocation*, int)               \
  X(hipMemCreate, false, void**, size_t, const allocation*, unsigned long long)           \
  X(hipMemRelease, false, void*)                                                          \
  X(hipMemExportToShareableHandle, false, void*, void*, int, unsigned long long)          \
  X(hipMemImportFromShareableHandle, false, void**, void*, int)                           \
  X(hipMemAddressReserve, false, void**, size_t, size_t, void*, unsigned long long)       \
  X(hipMemAddressFree, false, void*, size_t)                                              \
  X(hipMemMap, false, void*, size_t, size_t, void*, unsigned long long)                   \
  X(hipMemUnmap, false, void*, size_t)                                                    \
  X(hipMemSetAccess, false, void*, size_t, const access*, size_t)                         \
  X(hipMemGetAddressRange, true, void**, size_t*, void*)                                  \
  X(hipMemRetainAllocationHandle, false, void**, void*)                                   \
  X(hipIpcGetMemHandle, true, ipc_memory*, void*)                                         \
  X(hipIpcOpenMemHandle, true, void**, ipc_memory, unsigned)                              \
  X(hipIpcCloseMemHandle, true, void*)                                                    \
  X(hipMemGetHandleForAddressRange, false, void*, void*, size_t, int, unsigned long long) \
  X(hipPointerGetAttributes, true, pointer_attributes*, const void*)                      \
  X(hipStreamCreateWithPriority, true, void**, unsigned, int)                             \
  X(hipStreamDestroy, true, void*)                                                        \
  X(hipStreamSynchronize, true, void*)                                                    \
  X(hipStreamIsCapturing, true, void*, int*)                                              \
  X(hipStreamWaitEvent, true, void*, void*, unsigned)                                     \
  X(hipEventCreateWithFlags, true, void**, unsigned)                                      \
  X(hipEventDestroy, true, void*)                                                         \
  X(hipEventRecord, true, void*, void*)                                                   \
  X(hipEventSynchronize, true, void*)                                                     \
  X(hipEventQuery, true, void*)                                                           \
  X(hipMemcpyAsync, true, void*, const void*, size_t, int, void*)                         \
  X(hipMemsetAsync, true, void*, int, size_t, void*)                                      \
  X(hipModuleLoadData, true, void**, const void*)                                         \
  X(hipModuleUnload, true, void*)                                                         \
  X(hipModuleGetFunction, true, void**, void*, const char*)                               \
  X(hipModuleGetGlobal, true, void**, size_t*, void*, const char*)                        \
  X(hipFuncGetAttribute, true, int*, int, void*)                                          \
  X(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor, true, int*, void*, int, size_t)   \
  X(hipModuleLaunchKernel, true, void*, unsigned, unsigned, unsigned, unsigned, unsigned, \
    unsigned, unsigned, void*, void**, void**)

struct calls {
#define MORI_AMD_CALL(name, required, ...) status (*name)(__VA_ARGS__) = nullptr;
  MORI_AMD_CALLS(MORI_AMD_CALL)
#undef MORI_AMD_CALL
  const char* (*hipGetErrorName)(status) = nullptr;
  const char* (*hipGetErrorString)(status) = nullptr;

  std::string library;  // the name by which it was opened
  int version = 0;      // 60241133: HIP 6.2.41133
  // Devices have one context each, without a handle: the address of an element stands for it.
  // More than any machine has.
  char contexts[1024] = {};

  bool is_at_least(int major, int minor) const {
    return version >= major * 10'000'000 + minor * 100'000;
  }
  bool has_virtual_memory() const;
  std::string describe() const;  // "libamdhip64.so.6, HIP 6.2.41133"
};

inline constexpr const char* libraries[] = {"libamdhip64.so.7", "libamdhip64.so.6",
                                            "libamdhip64.so.5"};

// Opens the library once per process and fills the table. One that the process has loaded already
// comes first, then the names in their order. The failure says what was tried.
// `names` is for tests.
bool is_loaded(std::span<const char* const> names = libraries);
base::result<const calls*> driver(std::span<const char* const> names = libraries);

}  // namespace mori::device::amd
