// amd_driver_test.cpp - compares src/amd_driver.hpp with HIP's own header of whatever
// version is installed: most of the work is done when this compiles. Built where the
// header is. Running it names what the header is too old for.
#include "amd_driver.hpp"

#include <cstdio>
#include <cstdlib>
// HIP's header needs what is above.
#include "same_shape.hpp"

#include <hip/hip_runtime_api.h>
#include <hip/hip_version.h>

namespace {

using namespace mori::device;
using mori::test::same_call;

// Each call of the table has one of these lines; said_NAME is what the list below looks for.
#define MORI_SAME_AS(name, type)                                                               \
  static_assert(same_call<type, decltype(amd::calls::name)>::value, "not as in HIP's header"); \
  [[maybe_unused]] constexpr const char* said_##name = nullptr;
#define MORI_SAME(name) MORI_SAME_AS(name, decltype(&::name))
#define MORI_NEWER(name, since) constexpr const char* said_##name = #name " (new in " since ")";

MORI_SAME(hipGetErrorName)
MORI_SAME(hipGetErrorString)
MORI_SAME(hipRuntimeGetVersion)
MORI_SAME(hipGetLastError)
MORI_SAME(hipGetDeviceCount)
MORI_SAME(hipGetDevice)
MORI_SAME(hipSetDevice)
MORI_SAME(hipDeviceGetName)
MORI_SAME(hipDeviceGetPCIBusId)
MORI_SAME(hipDeviceGetUuid)
MORI_SAME(hipDeviceTotalMem)
MORI_SAME(hipDeviceGetAttribute)
MORI_SAME(hipDeviceGetStreamPriorityRange)
MORI_SAME(hipDeviceCanAccessPeer)
MORI_SAME(hipDeviceEnablePeerAccess)
MORI_SAME(hipThreadExchangeStreamCaptureMode)
MORI_SAME(hipExtMallocWithFlags)
MORI_SAME(hipFree)
// A template of this name hides the call itself.
MORI_SAME_AS(hipHostMalloc,
             decltype(static_cast<hipError_t (*)(void**, size_t, unsigned)>(&::hipHostMalloc)))
MORI_SAME(hipHostFree)
MORI_SAME(hipHostRegister)
MORI_SAME(hipHostUnregister)
MORI_SAME(hipHostGetDevicePointer)
MORI_SAME(hipMemGetAllocationGranularity)
MORI_SAME(hipMemCreate)
MORI_SAME(hipMemRelease)
MORI_SAME(hipMemExportToShareableHandle)
MORI_SAME(hipMemImportFromShareableHandle)
MORI_SAME(hipMemAddressReserve)
MORI_SAME(hipMemAddressFree)
MORI_SAME(hipMemMap)
MORI_SAME(hipMemUnmap)
MORI_SAME(hipMemSetAccess)
MORI_SAME(hipMemGetAddressRange)
MORI_SAME(hipMemRetainAllocationHandle)
MORI_SAME(hipIpcGetMemHandle)
MORI_SAME(hipIpcOpenMemHandle)
MORI_SAME(hipIpcCloseMemHandle)
MORI_SAME(hipPointerGetAttributes)
MORI_SAME(hipStreamCreateWithPriority)
MORI_SAME(hipStreamDestroy)
MORI_SAME(hipStreamSynchronize)
MORI_SAME(hipStreamIsCapturing)
MORI_SAME(hipStreamWaitEvent)
MORI_SAME(hipEventCreateWithFlags)
MORI_SAME(hipEventDestroy)
MORI_SAME(hipEventRecord)
MORI_SAME(hipEventSynchronize)
MORI_SAME(hipEventQuery)
MORI_SAME(hipMemcpyAsync)
MORI_SAME(hipMemsetAsync)
MORI_SAME(hipModuleLoadData)
MORI_SAME(hipModuleUnload)
MORI_SAME(hipModuleGetFunction)
MORI_SAME(hipModuleGetGlobal)
MORI_SAME(hipFuncGetAttribute)
MORI_SAME(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor)
MORI_SAME(hipModuleLaunchKernel)

// Since 6.0 hipGetDeviceProperties is a macro for the newer symbol, which the library has beside
// the older one.
#if HIP_VERSION >= 60000000
MORI_SAME(hipGetDevicePropertiesR0600)
#undef hipGetDeviceProperties
#define MORI_PROPERTIES architecture_offset_r0600
[[maybe_unused]] constexpr const char* said_hipGetDeviceProperties =
    "hipGetDeviceProperties (of 5; here another symbol has its name)";
#else
MORI_SAME(hipGetDeviceProperties)
#define MORI_PROPERTIES architecture_offset_5
MORI_NEWER(hipGetDevicePropertiesR0600, "6.0")
#endif
#if HIP_VERSION >= 70000000
MORI_SAME(hipMemGetHandleForAddressRange)
#else
MORI_NEWER(hipMemGetHandleForAddressRange, "7.0")
#endif

constexpr const char* said[] = {
#define MORI_SAID(name, required, ...) said_##name,
    MORI_AMD_CALLS(MORI_SAID)
#undef MORI_SAID
        said_hipGetErrorName,
    said_hipGetErrorString,
#if HIP_VERSION < 50300000
    "hipMemAllocationProp, hipDeviceAttributeVirtualMemoryManagementSupported (new in 5.3)",
#endif
#if HIP_VERSION < 50500000
    "hipDeviceMallocUncached (new in 5.5)",
#endif
#if HIP_VERSION < 70000000
    "hipMemRangeHandleTypeDmaBufFd (new in 7.0)",
#endif
#if HIP_VERSION < 70100000
    "hipMemAllocationTypeUncached (new in 7.0.2)",
#endif
};

static_assert(amd::success == hipSuccess && amd::invalid_value == hipErrorInvalidValue);
static_assert(amd::out_of_memory == hipErrorOutOfMemory && amd::no_device == hipErrorNoDevice);
static_assert(amd::not_found == hipErrorNotFound);
static_assert(amd::not_ready == hipErrorNotReady && amd::not_supported == hipErrorNotSupported);
static_assert(amd::peer_already_enabled == hipErrorPeerAccessAlreadyEnabled);
static_assert(amd::attribute_wave == hipDeviceAttributeWarpSize);
static_assert(amd::attribute_multiprocessors == hipDeviceAttributeMultiprocessorCount);
static_assert(amd::device_fine_grained == hipDeviceMallocFinegrained);
static_assert(amd::host_portable == hipHostMallocPortable);
static_assert(amd::host_mapped == hipHostMallocMapped);
static_assert(amd::host_coherent == hipHostMallocCoherent);
static_assert(amd::registered_portable == hipHostRegisterPortable);
static_assert(amd::registered_mapped == hipHostRegisterMapped);
static_assert(amd::stream_non_blocking == hipStreamNonBlocking);
static_assert(amd::event_without_timing == hipEventDisableTiming);
static_assert(amd::capture_relaxed == hipStreamCaptureModeRelaxed);
static_assert(hipStreamCaptureStatusNone == 0, "is_capturing() is whether it differs");
static_assert(amd::copy_by_address == hipMemcpyDefault);
static_assert(amd::function_largest_block == HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
static_assert(amd::memory_pinned == hipMemAllocationTypePinned);
static_assert(amd::memory_on_device == hipMemLocationTypeDevice);
static_assert(amd::access_read_write == hipMemAccessFlagsProtReadWrite);
static_assert(amd::descriptor_handle == hipMemHandleTypePosixFileDescriptor);
static_assert(amd::granularity_recommended == hipMemAllocationGranularityRecommended);
static_assert(hipIpcMemLazyEnablePeerAccess == (HIP_VERSION >= 60000000 ? 1 : 0));

static_assert(sizeof(amd::location) == sizeof(hipMemLocation));
static_assert(offsetof(amd::location, id) == offsetof(hipMemLocation, id));
static_assert(offsetof(amd::access, flags) == offsetof(hipMemAccessDesc, flags));
static_assert(offsetof(amd::pointer_attributes, ordinal) ==
              offsetof(hipPointerAttribute_t, device));
static_assert(offsetof(amd::pointer_attributes, on_device) ==
              offsetof(hipPointerAttribute_t, devicePointer));
static_assert(offsetof(amd::pointer_attributes, on_host) ==
              offsetof(hipPointerAttribute_t, hostPointer));
static_assert(sizeof(amd::ipc_memory) == sizeof(hipIpcMemHandle_t));
static_assert(sizeof(amd::uuid) == sizeof(hipUUID));
static_assert(amd::MORI_PROPERTIES == offsetof(hipDeviceProp_t, gcnArchName));
static_assert(sizeof(hipDeviceProp_t::gcnArchName) == amd::architecture_bytes);
static_assert(sizeof(hipDeviceProp_t) <= amd::most_properties_bytes);

#if HIP_VERSION >= 50300000
static_assert(amd::attribute_vmm == hipDeviceAttributeVirtualMemoryManagementSupported);
static_assert(offsetof(amd::allocation, type) == offsetof(hipMemAllocationProp, type));
static_assert(offsetof(amd::allocation, handle_types) ==
              offsetof(hipMemAllocationProp, requestedHandleType));
static_assert(offsetof(amd::allocation, where) == offsetof(hipMemAllocationProp, location));
static_assert(offsetof(amd::allocation, flags) == offsetof(hipMemAllocationProp, allocFlags));
#endif
#if HIP_VERSION >= 50500000
static_assert(amd::device_uncached == hipDeviceMallocUncached);
#endif
#if HIP_VERSION >= 70100000
static_assert(amd::memory_uncached == hipMemAllocationTypeUncached);
#endif
#if HIP_VERSION >= 70000000
static_assert(amd::dmabuf_handle == hipMemRangeHandleTypeDmaBufFd);
#endif

}  // namespace

int main() {
  std::printf("compared with the header of HIP %d.%d.%d, but for:\n", HIP_VERSION_MAJOR,
              HIP_VERSION_MINOR, HIP_VERSION_PATCH);
  for (const char* each : said)
    if (each != nullptr) std::printf("  %s\n", each);
  return 0;
}
