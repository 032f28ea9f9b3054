// nvidia_gpu.cpp - an NVIDIA GPU: which one, streams, events, copies, code. See
// nvidia_gpu.hpp.
#include "nvidia_gpu.hpp"

#include "gpu_drivers.hpp"

#include <cstring>

namespace mori::device {
namespace {

base::failure explain_with(const nvidia::calls& cuda, const char* call, nvidia::status outcome) {
  const char* name = nullptr;
  const char* text = nullptr;
  cuda.cuGetErrorName(outcome, &name);
  cuda.cuGetErrorString(outcome, &text);
  return base::fail(outcome == nvidia::out_of_memory ? MORI_E_NO_MEMORY : MORI_E_OS,
                    "{}: {} ({}): {}", call, name != nullptr ? name : "unknown error", outcome,
                    text != nullptr ? text : "");
}

base::result<int> count_devices(const nvidia::calls& cuda, const char* library) {
  int count = 0;
  if (const auto outcome = cuda.cuDeviceGetCount(&count); outcome != nvidia::success)
    return explain_with(cuda, "cuDeviceGetCount", outcome);
  if (count == 0) return base::fail(MORI_E_UNAVAILABLE, "{} sees no device", library);
  return count;
}

}  // namespace

base::failure nvidia_gpu::explain(const char* call, nvidia::status outcome) const {
  return explain_with(cuda_, call, outcome);
}

base::result<std::shared_ptr<gpu>> nvidia_gpu::current(const char* library) {
  MORI_TRY(const nvidia::calls* cuda, nvidia::driver(library));
  MORI_CHECK(count_devices(*cuda, library));
  void* context = nullptr;
  cuda->cuCtxGetCurrent(&context);
  if (context == nullptr) {
    // Retained for good: streams and memory of frameworks live in it too.
    if (const auto outcome = cuda->cuDevicePrimaryCtxRetain(&context, 0);
        outcome != nvidia::success)
      return explain_with(*cuda, "cuDevicePrimaryCtxRetain", outcome);
  }
  return of_context(*cuda, context);
}

base::result<std::shared_ptr<gpu>> nvidia_gpu::of_context(const nvidia::calls& cuda,
                                                          void* context) {
  return gpu_of_context(context, [&]() -> base::result<std::shared_ptr<gpu>> {
    std::shared_ptr<nvidia_gpu> made(new nvidia_gpu(cuda, context));
    MORI_CHECK(made->read_facts());
    return std::shared_ptr<gpu>(std::move(made));
  });
}

base::result<std::shared_ptr<gpu>> nvidia_gpu::at(const char* library, int32_t ordinal) {
  MORI_TRY(const nvidia::calls* cuda, nvidia::driver(library));
  MORI_TRY(const int count, count_devices(*cuda, library));
  if (ordinal < 0 || ordinal >= count)
    return base::fail(MORI_E_INVALID, "device {} is outside 0 .. {}", ordinal, count - 1);
  void* context = nullptr;
  if (const auto outcome = cuda->cuDevicePrimaryCtxRetain(&context, ordinal);
      outcome != nvidia::success)
    return explain_with(*cuda, "cuDevicePrimaryCtxRetain", outcome);
  return of_context(*cuda, context);
}

base::result<int32_t> nvidia_gpu::find(const char* library, const std::array<uint8_t, 16>& uuid) {
  MORI_TRY(const nvidia::calls* cuda, nvidia::driver(library));
  MORI_TRY(const int count, count_devices(*cuda, library));
  for (int32_t ordinal = 0; ordinal < count; ++ordinal) {
    nvidia::uuid id{};
    if (const auto outcome = cuda->cuDeviceGetUuid_v2(&id, ordinal); outcome != nvidia::success)
      return explain_with(*cuda, "cuDeviceGetUuid_v2", outcome);
    if (std::memcmp(id.bytes, uuid.data(), uuid.size()) == 0) return ordinal;
  }
  return base::fail(MORI_E_NOT_FOUND, "this process does not see that device, only {} other{}",
                    count, count == 1 ? "" : "s");
}

base::result<std::string> nvidia_gpu::describe(const char* library) {
  MORI_TRY(const nvidia::calls* cuda, nvidia::driver(library));
  MORI_TRY(const int count, count_devices(*cuda, library));
  int version = 0;
  char name[128] = "unnamed";
  cuda->cuDriverGetVersion(&version);
  cuda->cuDeviceGetName(name, sizeof name, 0);
  return fmt::format("{} for CUDA {}.{}, {} device{}, the first: {}", library, version / 1000,
                     version % 1000 / 10, count, count == 1 ? "" : "s", name);
}

base::result<int> nvidia_gpu::attribute(int which) const {
  int value = 0;
  MORI_NVIDIA(cuDeviceGetAttribute, &value, which, facts_.ordinal);
  return value;
}

base::status nvidia_gpu::read_facts() {
  const scope here(*this);
  facts_.backend = MORI_BACKEND_NVIDIA;
  MORI_NVIDIA(cuCtxGetDevice, &facts_.ordinal);
  char name[128] = {};
  MORI_NVIDIA(cuDeviceGetName, name, static_cast<int>(sizeof name), facts_.ordinal);
  facts_.name = name;
  nvidia::uuid id{};
  MORI_NVIDIA(cuDeviceGetUuid_v2, &id, facts_.ordinal);
  std::memcpy(facts_.uuid.data(), id.bytes, sizeof id.bytes);
  size_t bytes = 0;
  MORI_NVIDIA(cuDeviceTotalMem_v2, &bytes, facts_.ordinal);
  facts_.memory_bytes = bytes;
  MORI_TRY(const int major, attribute(nvidia::attribute_major));
  MORI_TRY(const int minor, attribute(nvidia::attribute_minor));
  facts_.architecture = fmt::format("sm_{}{}", major, minor);
  MORI_TRY(const int multiprocessors, attribute(nvidia::attribute_multiprocessors));
  facts_.multiprocessor_count = static_cast<uint32_t>(multiprocessors);
  MORI_TRY(const int lanes, attribute(nvidia::attribute_wave));
  facts_.wave_lane_count = static_cast<uint32_t>(lanes);
  MORI_TRY(const int vmm, attribute(nvidia::attribute_vmm));
  MORI_TRY(const int descriptors, attribute(nvidia::attribute_descriptors));
  facts_.exports_descriptors = vmm != 0 && descriptors != 0;
  const auto rdma = attribute(nvidia::attribute_rdma_vmm);
  rdma_of_vmm_ = rdma && *rdma != 0;
  const auto dmabuf = attribute(nvidia::attribute_dmabuf);
  facts_.exports_dmabuf = dmabuf && *dmabuf != 0 && cuda_.cuMemGetHandleForAddressRange != nullptr;
  return {};
}

base::result<void*> nvidia_gpu::create_stream() {
  const scope here(*this);
  int least = 0, greatest = 0;
  MORI_NVIDIA(cuCtxGetStreamPriorityRange, &least, &greatest);
  void* made = nullptr;
  MORI_NVIDIA(cuStreamCreateWithPriority, &made, nvidia::stream_non_blocking, greatest);
  return made;
}

void nvidia_gpu::destroy_stream(void* stream) {
  const scope here(*this);
  cuda_.cuStreamDestroy_v2(stream);
}

base::status nvidia_gpu::synchronize_stream(void* stream) {
  const scope here(*this);
  MORI_NVIDIA(cuStreamSynchronize, stream);
  return {};
}

base::result<bool> nvidia_gpu::is_capturing(void* stream) {
  const scope here(*this);
  int state = 0;
  MORI_NVIDIA(cuStreamIsCapturing, stream, &state);
  return state != 0;
}

base::result<void*> nvidia_gpu::create_event() {
  const scope here(*this);
  void* made = nullptr;
  MORI_NVIDIA(cuEventCreate, &made, nvidia::event_without_timing);
  return made;
}

void nvidia_gpu::destroy_event(void* event) {
  const scope here(*this);
  cuda_.cuEventDestroy_v2(event);
}

base::status nvidia_gpu::record_event(void* event, void* stream) {
  const scope here(*this);
  MORI_NVIDIA(cuEventRecord, event, stream);
  return {};
}

base::status nvidia_gpu::wait_event(void* stream, void* event) {
  const scope here(*this);
  MORI_NVIDIA(cuStreamWaitEvent, stream, event, 0);
  return {};
}

base::status nvidia_gpu::synchronize_event(void* event) {
  const scope here(*this);
  MORI_NVIDIA(cuEventSynchronize, event);
  return {};
}

base::result<bool> nvidia_gpu::is_reached(void* event) {
  const scope here(*this);
  const nvidia::status outcome = cuda_.cuEventQuery(event);
  if (outcome == nvidia::not_ready) return false;
  if (outcome != nvidia::success) return explain("cuEventQuery", outcome);
  return true;
}

base::status nvidia_gpu::copy(uint64_t to, uint64_t from, uint64_t bytes, void* stream) {
  if (bytes == 0) return {};
  const scope here(*this);
  MORI_NVIDIA(cuMemcpyAsync, to, from, bytes, stream);
  return {};
}

base::status nvidia_gpu::fill(uint64_t to, uint8_t value, uint64_t bytes, void* stream) {
  if (bytes == 0) return {};
  const scope here(*this);
  MORI_NVIDIA(cuMemsetD8Async, to, value, bytes, stream);
  return {};
}

base::result<void*> nvidia_gpu::load_module(const device_image& image) {
  const scope here(*this);
  void* made = nullptr;
  MORI_NVIDIA(cuModuleLoadData, &made, image.begin);
  return made;
}

void nvidia_gpu::unload_module(void* module) {
  const scope here(*this);
  cuda_.cuModuleUnload(module);
}

base::result<void*> nvidia_gpu::find_kernel(void* module, const char* name) {
  const scope here(*this);
  void* found = nullptr;
  MORI_NVIDIA(cuModuleGetFunction, &found, module, name);
  // Older drivers load all of a module at once, newer ones each function at its first use, which
  // would be a launch.
  if (cuda_.cuFuncLoad != nullptr) MORI_NVIDIA(cuFuncLoad, found);
  return found;
}

base::result<gpu::variable> nvidia_gpu::find_variable(void* module, const char* name) {
  const scope here(*this);
  nvidia::address address = 0;
  size_t bytes = 0;
  const nvidia::status outcome = cuda_.cuModuleGetGlobal_v2(&address, &bytes, module, name);
  if (outcome == nvidia::not_found) return variable{};
  if (outcome != nvidia::success) return explain("cuModuleGetGlobal", outcome);
  return variable{address, bytes};
}

base::result<uint32_t> nvidia_gpu::largest_block(void* kernel) {
  const scope here(*this);
  int lanes = 0;
  MORI_NVIDIA(cuFuncGetAttribute, &lanes, nvidia::function_largest_block, kernel);
  return static_cast<uint32_t>(lanes);
}

base::result<uint32_t> nvidia_gpu::resident_blocks(void* kernel, uint32_t block_lanes) {
  const scope here(*this);
  int blocks = 0;
  MORI_NVIDIA(cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, kernel,
              static_cast<int>(block_lanes), 0);
  return static_cast<uint32_t>(blocks);
}

base::status nvidia_gpu::launch(void* kernel, shape grid, std::span<void*> arguments,
                                void* stream) {
  const scope here(*this);
  MORI_NVIDIA(cuLaunchKernel, kernel, grid.block_count, 1, 1, grid.block_lanes, 1, 1, 0, stream,
              arguments.data(), nullptr);
  return {};
}

base::result<std::shared_ptr<gpu>> current_nvidia_gpu() {
  return nvidia_gpu::current("libcuda.so.1");
}

base::result<std::shared_ptr<gpu>> nvidia_gpu_at(int32_t ordinal) {
  return nvidia_gpu::at("libcuda.so.1", ordinal);
}

bool is_nvidia_loaded() { return nvidia::is_loaded(); }

base::result<gpu::pointer_facts> locate_on_nvidia(uint64_t address) {
  return nvidia_gpu::locate("libcuda.so.1", address);
}

base::result<int32_t> find_nvidia(const std::array<uint8_t, 16>& uuid) {
  return nvidia_gpu::find("libcuda.so.1", uuid);
}

base::result<std::string> describe_nvidia() { return nvidia_gpu::describe("libcuda.so.1"); }

}  // namespace mori::device
