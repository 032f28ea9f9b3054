// amd_gpu.cpp - an AMD GPU: which one, streams, events, copies, code. See amd_gpu.hpp.
#include "amd_gpu.hpp"

#include "gpu_drivers.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace mori::device {
namespace {

mori_status status_of(amd::status outcome) {
  switch (outcome) {
    case amd::out_of_memory: return MORI_E_NO_MEMORY;
    case amd::not_supported:
    case amd::no_device: return MORI_E_UNAVAILABLE;
    default: return MORI_E_OS;
  }
}

base::failure explain_with(const amd::calls& hip, const char* call, amd::status outcome) {
  const std::string_view name = hip.hipGetErrorName(outcome);
  const std::string_view text = hip.hipGetErrorString(outcome);
  hip.hipGetLastError();
  // Some versions give the name as the text.
  const bool says_more = text != name;
  return base::fail(status_of(outcome), "{}: {} ({}){}{}", call, name, outcome,
                    says_more ? ": " : "", says_more ? text : "");
}

// At least one, else MORI_E_UNAVAILABLE.
base::result<int> count_devices(const amd::calls& hip) {
  int count = 0;
  if (const auto outcome = hip.hipGetDeviceCount(&count); outcome != amd::success) {
    const base::failure why = explain_with(hip, "hipGetDeviceCount", outcome);
    return base::fail(MORI_E_UNAVAILABLE, "{}: {}", hip.describe(), why.text);
  }
  if (count < 1) return base::fail(MORI_E_UNAVAILABLE, "{} sees no device", hip.describe());
  return count;
}

base::result<int> current_device(const amd::calls& hip) {
  MORI_CHECK(count_devices(hip));
  int ordinal = 0;
  if (const auto outcome = hip.hipGetDevice(&ordinal); outcome != amd::success)
    return explain_with(hip, "hipGetDevice", outcome);
  return ordinal;
}

}  // namespace

amd_gpu::scope::scope(const amd_gpu& on) : hip_(on.hip_) {
  exchange_mode();
  outcome_ = hip_.hipGetDevice(&callers_);
  if (outcome_ != amd::success || callers_ == on.facts_.ordinal) return;
  outcome_ = hip_.hipSetDevice(on.facts_.ordinal);
  changed_ = outcome_ == amd::success;
}

amd_gpu::scope::~scope() {
  if (changed_ && hip_.hipSetDevice(callers_) != amd::success) hip_.hipGetLastError();
  exchange_mode();
}

// Before 5.2 there are no modes: calls then never end a capture.
void amd_gpu::scope::exchange_mode() {
  if (hip_.hipThreadExchangeStreamCaptureMode != nullptr)
    hip_.hipThreadExchangeStreamCaptureMode(&mode_);
}

base::failure amd_gpu::explain(const char* call, amd::status outcome) const {
  return explain_with(hip_, call, outcome);
}

base::result<std::shared_ptr<gpu>> amd_gpu::make(const amd::calls& hip, int ordinal) {
  std::shared_ptr<amd_gpu> made(new amd_gpu(hip, ordinal));
  MORI_CHECK(made->read_facts());
  return std::shared_ptr<gpu>(std::move(made));
}

base::result<std::shared_ptr<gpu>> amd_gpu::current(std::span<const char* const> names) {
  MORI_TRY(const amd::calls* hip, amd::driver(names));
  MORI_TRY(const int ordinal, current_device(*hip));
  return gpu_of_context(&hip->contexts[ordinal], [&] { return make(*hip, ordinal); });
}

base::result<std::shared_ptr<gpu>> amd_gpu::at(int32_t ordinal,
                                               std::span<const char* const> names) {
  MORI_TRY(const amd::calls* hip, amd::driver(names));
  MORI_TRY(const int count, count_devices(*hip));
  if (ordinal < 0 || ordinal >= count)
    return base::fail(MORI_E_INVALID, "device {} is outside 0 .. {}", ordinal, count - 1);
  return gpu_of_context(&hip->contexts[ordinal], [&] { return make(*hip, ordinal); });
}

base::result<int32_t> amd_gpu::find(const std::array<uint8_t, 16>& uuid,
                                    std::span<const char* const> names) {
  MORI_TRY(const amd::calls* hip, amd::driver(names));
  MORI_TRY(const int count, count_devices(*hip));
  for (int32_t ordinal = 0; ordinal < count; ++ordinal)
    if (uuid_of(*hip, ordinal) == uuid) return ordinal;
  return base::fail(MORI_E_NOT_FOUND, "this process does not see that device, only {} other{}",
                    count, count == 1 ? "" : "s");
}

base::result<std::shared_ptr<gpu>> amd_gpu::open(std::span<const char* const> names) {
  MORI_TRY(const amd::calls* hip, amd::driver(names));
  MORI_TRY(const int ordinal, current_device(*hip));
  return make(*hip, ordinal);
}

base::result<std::string> amd_gpu::describe(std::span<const char* const> names) {
  MORI_TRY(const amd::calls* hip, amd::driver(names));
  MORI_TRY(const int count, count_devices(*hip));
  amd_gpu first(*hip, 0);
  MORI_CHECK(first.read_facts());
  return fmt::format("{}, {} device{}, the first: {} ({})", hip->describe(), count,
                     count == 1 ? "" : "s", first.facts_.name, first.facts_.architecture);
}

base::result<int> amd_gpu::attribute(int which) const {
  int value = 0;
  MORI_AMD(hipDeviceGetAttribute, &value, which, facts_.ordinal);
  return value;
}

base::status amd_gpu::read_facts() {
  MORI_AMD_SCOPE;
  facts_.backend = MORI_BACKEND_AMD;
  char name[256] = {};
  MORI_AMD(hipDeviceGetName, name, static_cast<int>(sizeof name - 1), facts_.ordinal);
  facts_.name = name;
  MORI_TRY(facts_.architecture, read_architecture());
  if (facts_.name.empty()) facts_.name = facts_.architecture;
  facts_.uuid = uuid_of(hip_, facts_.ordinal);
  size_t bytes = 0;
  MORI_AMD(hipDeviceTotalMem, &bytes, facts_.ordinal);
  facts_.memory_bytes = bytes;
  MORI_TRY(const int multiprocessors, attribute(amd::attribute_multiprocessors));
  facts_.multiprocessor_count = static_cast<uint32_t>(multiprocessors);
  MORI_TRY(const int lanes, attribute(amd::attribute_wave));
  facts_.wave_lane_count = static_cast<uint32_t>(lanes);
  read_virtual_memory();
  facts_.exports_descriptors = no_virtual_memory_.empty();
  facts_.exports_dmabuf = hip_.hipMemGetHandleForAddressRange != nullptr;
  return {};
}

// "gfx942" of "gfx942:sramecc+:xnack-". No attribute has it, and the topology in sysfs has only
// numbers, of devices that this process may be kept from; so it is read from the properties, whose
// layout the symbol's name tells (see amd_driver.hpp), and must look like what it should be.
base::result<std::string> amd_gpu::read_architecture() const {
  alignas(16) char properties[amd::most_properties_bytes] = {};
  size_t offset = amd::architecture_offset_r0600;
  if (hip_.hipGetDevicePropertiesR0600 != nullptr) {
    MORI_AMD(hipGetDevicePropertiesR0600, properties, facts_.ordinal);
  } else if (hip_.hipGetDeviceProperties != nullptr) {
    offset = amd::architecture_offset_5;
    MORI_AMD(hipGetDeviceProperties, properties, facts_.ordinal);
  } else {
    return base::fail(MORI_E_UNAVAILABLE, "{} lacks hipGetDeviceProperties", hip_.describe());
  }
  std::string_view name(properties + offset, strnlen(properties + offset, amd::architecture_bytes));
  name = name.substr(0, name.find(':'));
  if (!name.starts_with("gfx"))
    return base::fail(MORI_E_UNAVAILABLE, "{} gives no architecture's name for device {}: \"{}\"",
                      hip_.describe(), facts_.ordinal, name);
  return std::string(name);
}

// The address on the bus where the device has no number of its own: "XX" then, in all of them.
std::array<uint8_t, 16> amd_gpu::uuid_of(const amd::calls& hip, int ordinal) {
  std::array<uint8_t, 16> made{};
  static_assert(sizeof(amd::uuid) == sizeof made);
  amd::uuid id{};
  const amd::status outcome =
      hip.hipDeviceGetUuid != nullptr ? hip.hipDeviceGetUuid(&id, ordinal) : amd::success;
  settle_with(hip, outcome);
  if (outcome == amd::success && id.bytes[0] != 0 && std::memcmp(id.bytes, "XX", 2) != 0) {
    std::memcpy(made.data(), id.bytes, sizeof id.bytes);
    return made;
  }
  char bus[64] = {};
  settle_with(hip, hip.hipDeviceGetPCIBusId(bus, static_cast<int>(sizeof bus - 1), ordinal));
  std::copy_n(bus, made.size(), made.begin());
  return made;
}

base::result<void*> amd_gpu::create_stream() {
  MORI_AMD_SCOPE;
  int least = 0, greatest = 0;
  MORI_AMD(hipDeviceGetStreamPriorityRange, &least, &greatest);
  void* made = nullptr;
  MORI_AMD(hipStreamCreateWithPriority, &made, amd::stream_non_blocking, greatest);
  return made;
}

void amd_gpu::destroy_stream(void* stream) {
  const scope here(*this);
  settle(hip_.hipStreamDestroy(stream));
}

base::status amd_gpu::synchronize_stream(void* stream) {
  MORI_AMD_SCOPE;
  MORI_AMD(hipStreamSynchronize, stream);
  return {};
}

base::result<bool> amd_gpu::is_capturing(void* stream) {
  MORI_AMD_SCOPE;
  int state = 0;
  MORI_AMD(hipStreamIsCapturing, stream, &state);
  return state != 0;
}

base::result<void*> amd_gpu::create_event() {
  MORI_AMD_SCOPE;
  void* made = nullptr;
  MORI_AMD(hipEventCreateWithFlags, &made, amd::event_without_timing);
  return made;
}

void amd_gpu::destroy_event(void* event) {
  const scope here(*this);
  settle(hip_.hipEventDestroy(event));
}

base::status amd_gpu::record_event(void* event, void* stream) {
  MORI_AMD_SCOPE;
  MORI_AMD(hipEventRecord, event, stream);
  return {};
}

base::status amd_gpu::wait_event(void* stream, void* event) {
  MORI_AMD_SCOPE;
  MORI_AMD(hipStreamWaitEvent, stream, event, 0);
  return {};
}

base::status amd_gpu::synchronize_event(void* event) {
  MORI_AMD_SCOPE;
  MORI_AMD(hipEventSynchronize, event);
  return {};
}

base::result<bool> amd_gpu::is_reached(void* event) {
  MORI_AMD_SCOPE;
  const amd::status outcome = hip_.hipEventQuery(event);
  if (outcome == amd::success) return true;
  if (outcome != amd::not_ready) return explain("hipEventQuery", outcome);
  settle(outcome);
  return false;
}

base::status amd_gpu::copy(uint64_t to, uint64_t from, uint64_t bytes, void* stream) {
  if (bytes == 0) return {};
  MORI_AMD_SCOPE;
  MORI_AMD(hipMemcpyAsync, reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes,
           amd::copy_by_address, stream);
  return {};
}

base::status amd_gpu::fill(uint64_t to, uint8_t value, uint64_t bytes, void* stream) {
  if (bytes == 0) return {};
  MORI_AMD_SCOPE;
  MORI_AMD(hipMemsetAsync, reinterpret_cast<void*>(to), value, bytes, stream);
  return {};
}

base::result<void*> amd_gpu::load_module(const device_image& image) {
  MORI_AMD_SCOPE;
  void* made = nullptr;
  MORI_AMD(hipModuleLoadData, &made, image.begin);
  return made;
}

void amd_gpu::unload_module(void* module) {
  const scope here(*this);
  settle(hip_.hipModuleUnload(module));
}

// The module's code is on the device since it was loaded, and a function's launch data are made
// when it is first asked for: here.
base::result<void*> amd_gpu::find_kernel(void* module, const char* name) {
  MORI_AMD_SCOPE;
  void* found = nullptr;
  MORI_AMD(hipModuleGetFunction, &found, module, name);
  return found;
}

base::result<gpu::variable> amd_gpu::find_variable(void* module, const char* name) {
  MORI_AMD_SCOPE;
  void* address = nullptr;
  size_t bytes = 0;
  const amd::status outcome = hip_.hipModuleGetGlobal(&address, &bytes, module, name);
  if (outcome == amd::not_found) {
    settle(outcome);
    return variable{};
  }
  if (outcome != amd::success) return explain("hipModuleGetGlobal", outcome);
  return variable{reinterpret_cast<uint64_t>(address), bytes};
}

base::result<uint32_t> amd_gpu::largest_block(void* kernel) {
  MORI_AMD_SCOPE;
  int lanes = 0;
  MORI_AMD(hipFuncGetAttribute, &lanes, amd::function_largest_block, kernel);
  return static_cast<uint32_t>(lanes);
}

base::result<uint32_t> amd_gpu::resident_blocks(void* kernel, uint32_t block_lanes) {
  MORI_AMD_SCOPE;
  int blocks = 0;
  MORI_AMD(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, kernel,
           static_cast<int>(block_lanes), 0);
  return static_cast<uint32_t>(blocks);
}

base::status amd_gpu::launch(void* kernel, shape grid, std::span<void*> arguments, void* stream) {
  MORI_AMD_SCOPE;
  MORI_AMD(hipModuleLaunchKernel, kernel, grid.block_count, 1, 1, grid.block_lanes, 1, 1, 0, stream,
           arguments.data(), nullptr);
  return {};
}

base::result<std::shared_ptr<gpu>> current_amd_gpu() { return amd_gpu::current(); }

base::result<std::shared_ptr<gpu>> amd_gpu_at(int32_t ordinal) { return amd_gpu::at(ordinal); }

bool is_amd_loaded() { return amd::is_loaded(); }

base::result<gpu::pointer_facts> locate_on_amd(uint64_t address) {
  return amd_gpu::locate(address);
}

base::result<int32_t> find_amd(const std::array<uint8_t, 16>& uuid) { return amd_gpu::find(uuid); }

base::result<std::string> describe_amd() { return amd_gpu::describe(); }

}  // namespace mori::device
