// nvidia_driver_test.cpp - compares src/nvidia_driver.hpp with CUDA's own cuda.h of
// whatever version is installed: the work is done when this compiles. Built where the
// header is.
#include "nvidia_driver.hpp"

#include "same_shape.hpp"

#include <cuda.h>

#include <cstdio>

namespace {

using namespace mori::device;
using mori::test::same_call;

// cuda.h's macros give most names a version suffix; the table names the symbols themselves, so a
// name with a suffix is not touched by them, and one without must have none in the header either.
#define MORI_SAME(name, required, ...)                                              \
  static_assert(same_call<decltype(&::name), decltype(nvidia::calls::name)>::value, \
                "not as in cuda.h: " #name);
MORI_NVIDIA_CALLS(MORI_SAME)
#undef MORI_SAME

static_assert(nvidia::success == CUDA_SUCCESS && nvidia::invalid_value == CUDA_ERROR_INVALID_VALUE);
static_assert(nvidia::out_of_memory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(nvidia::not_found == CUDA_ERROR_NOT_FOUND);
static_assert(nvidia::not_ready == CUDA_ERROR_NOT_READY);
static_assert(nvidia::peer_already_enabled == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
static_assert(nvidia::attribute_wave == CU_DEVICE_ATTRIBUTE_WARP_SIZE);
static_assert(nvidia::attribute_multiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(nvidia::attribute_major == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(nvidia::attribute_minor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(nvidia::attribute_vmm == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
static_assert(nvidia::attribute_descriptors ==
              CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
static_assert(nvidia::attribute_rdma_vmm ==
              CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
static_assert(nvidia::attribute_dmabuf == CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
static_assert(nvidia::host_portable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(nvidia::host_portable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(nvidia::host_mapped == CU_MEMHOSTALLOC_DEVICEMAP);
static_assert(nvidia::host_mapped == CU_MEMHOSTREGISTER_DEVICEMAP);
static_assert(nvidia::stream_non_blocking == CU_STREAM_NON_BLOCKING);
static_assert(nvidia::event_without_timing == CU_EVENT_DISABLE_TIMING);
static_assert(nvidia::ipc_lazy_peer_access == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
static_assert(nvidia::capture_relaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(CU_STREAM_CAPTURE_STATUS_NONE == 0, "is_capturing() is whether it differs");
static_assert(nvidia::memory_type_host == CU_MEMORYTYPE_HOST);
static_assert(nvidia::pointer_memory_type == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(nvidia::pointer_ordinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(nvidia::function_largest_block == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
static_assert(nvidia::descriptor_handle == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(nvidia::dmabuf_handle == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
static_assert(nvidia::granularity_minimum == CU_MEM_ALLOC_GRANULARITY_MINIMUM);
// Written as numbers where they are used.
static_assert(CU_MEM_ALLOCATION_TYPE_PINNED == 1 && CU_MEM_LOCATION_TYPE_DEVICE == 1);
static_assert(CU_MEM_ACCESS_FLAGS_PROT_READWRITE == 3);

static_assert(sizeof(nvidia::location) == sizeof(CUmemLocation));
static_assert(offsetof(nvidia::allocation, handle_types) ==
              offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(nvidia::allocation, where) == offsetof(CUmemAllocationProp, location));
static_assert(offsetof(nvidia::allocation, flags) == offsetof(CUmemAllocationProp, allocFlags));
static_assert(offsetof(nvidia::allocation, flags.rdma) ==
              offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
static_assert(offsetof(nvidia::access, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(sizeof(nvidia::uuid) == sizeof(CUuuid));
static_assert(sizeof(nvidia::ipc_memory) == sizeof(CUipcMemHandle));

}  // namespace

int main() {
  std::printf("compared with cuda.h of CUDA %d.%d\n", CUDA_VERSION / 1000,
              CUDA_VERSION % 1000 / 10);
  return 0;
}
