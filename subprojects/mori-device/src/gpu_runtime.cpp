// gpu_runtime.cpp - see gpu_runtime.hpp.
//
// Residency: blocks of a launch wait for each other, and launches of several PEs
// wait for each other too, so all of them must fit on the device at once, together. A
// launch gets at most its PE's share: what the device holds, divided by the PEs that
// share it. A client that MPS limits sees fewer multiprocessors, but others may use
// the same ones (seen on an H200: eight clients of 12 % each, all filling what they saw,
// stood in each other's way within 30 launches), so the division stays.
#include "gpu_runtime.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace mori::device {
namespace {

constexpr uint64_t default_budget_ns = 300'000'000'000;
constexpr uint32_t default_wave_count = 8;
constexpr size_t largest_args_bytes = 4096;  // CUDA's limit for sm_80; HIP's too

// The number of "sm_90": 90. 0 for other names.
int capability_of(std::string_view architecture) {
  int number = 0;
  if (architecture.starts_with("sm_"))
    std::from_chars(architecture.data() + 3, architecture.data() + architecture.size(), number);
  return number;
}

// Whether code for `image` runs on `device`: the same architecture; NVIDIA's also on later minor
// versions of the same major one.
bool runs_on(std::string_view image, std::string_view device) {
  if (image == device) return true;
  const int built = capability_of(image), here = capability_of(device);
  return built != 0 && built / 10 == here / 10 && built <= here;
}

base::result<const device_image*> choose(std::span<const device_image> images,
                                         const gpu_facts& facts) {
  const device_image* best = nullptr;
  std::string names;
  for (const device_image& each : images) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", each.architecture);
    const bool better =
        best == nullptr || capability_of(each.architecture) > capability_of(best->architecture);
    if (runs_on(each.architecture, facts.architecture) && better) best = &each;
  }
  if (best == nullptr)
    return base::fail(MORI_E_UNAVAILABLE, "no code for {} ({}) in this build, only for {}",
                      facts.architecture, facts.name, names.empty() ? "no GPU" : names);
  return best;
}

}  // namespace

base::result<std::unique_ptr<runtime>> gpu_runtime::create(const runtime_options& options) {
  std::shared_ptr<gpu> on = options.gpu;
  if (on == nullptr) {
    MORI_TRY(on, gpu::current(options.backend));
  }
  if (on->facts().backend != options.backend)
    return base::fail(MORI_E_INTERNAL, "a device of backend {} was given for backend {}",
                      backend_name(on->facts().backend), backend_name(options.backend));
  std::unique_ptr<gpu_runtime> made(new gpu_runtime(on, std::max(1u, options.sharer_count)));
  MORI_CHECK(made->load(options));
  return std::unique_ptr<runtime>(std::move(made));
}

gpu_runtime::~gpu_runtime() {
  if (module_ != nullptr) gpu_->unload_module(module_);
}

base::status gpu_runtime::load(const runtime_options& options) {
  MORI_TRY(const device_image* image, choose(options.images, gpu_->facts()));
  MORI_TRY(module_, gpu_->load_module(*image));
  MORI_TRY(barrier_, device_buffer::allocate(gpu_, sizeof(mori_device_grid_barrier)));
  kernels_.reserve(options.kernels.size());
  for (const kernel& each : options.kernels) {
    MORI_TRY(const loaded made, look_up(each.name));
    kernels_.push_back(made);
  }
  return launch_all_once();
}

// A device may hold up the first launch of a kernel until those that run have ended (seen on an
// H200, though the functions were loaded), and one of those may be waiting for this very launch.
base::status gpu_runtime::launch_all_once() {
  MORI_TRY(void* const stream, gpu_->helper_stream(gpu::helper::work));
  alignas(16) std::byte no_args[largest_args_bytes] = {};
  mori_device_launch nothing{};
  void* arguments[] = {no_args, &nothing};
  for (const loaded& each : kernels_)
    MORI_CHECK(gpu_->launch(each.handle, {1, gpu_->facts().wave_lane_count}, arguments, stream));
  return gpu_->synchronize_stream(stream);
}

base::result<gpu_runtime::loaded> gpu_runtime::look_up(const char* name) const {
  loaded made;
  made.name = name;
  MORI_TRY(made.handle, gpu_->find_kernel(module_, name));
  MORI_TRY(const uint32_t lanes, gpu_->largest_block(made.handle));
  const gpu_facts& facts = gpu_->facts();
  made.largest_wave_count = std::clamp(lanes / facts.wave_lane_count, 1u, most_waves);
  for (uint32_t waves = 1; waves <= made.largest_wave_count; ++waves) {
    MORI_TRY(const uint32_t on_one,
             gpu_->resident_blocks(made.handle, waves * facts.wave_lane_count));
    made.resident_blocks[waves] = std::max(1u, on_one * facts.multiprocessor_count / sharer_count_);
  }
  return made;
}

base::result<const gpu_runtime::loaded*> gpu_runtime::find(const kernel& what) const {
  const auto found = std::ranges::find_if(kernels_, [&](const loaded& each) {
    return each.name == what.name || std::string_view(each.name) == what.name;
  });
  if (found == kernels_.end())
    return base::fail(MORI_E_INTERNAL, "kernel {} was not loaded at create", what.name);
  return &*found;
}

base::result<uint32_t> gpu_runtime::launch_bytes(const kernel& what, const launch_options& options,
                                                 const void* args, uint64_t args_bytes) {
  if (options.block_count < 1)
    return base::fail(MORI_E_INVALID, "kernel {}: block_count 0 is below 1", what.name);
  if (what.host[0] != nullptr && args_bytes != what.host[0]->args_bytes)
    return base::fail(MORI_E_INTERNAL, "kernel {}: arguments of {} bytes, it takes {}", what.name,
                      args_bytes, what.host[0]->args_bytes);
  MORI_TRY(const loaded* kernel, find(what));
  const uint32_t asked = options.wave_count == 0 ? default_wave_count : options.wave_count;
  const uint32_t waves = std::min(asked, kernel->largest_wave_count);
  const uint32_t blocks = std::min(options.block_count, kernel->resident_blocks[waves]);
  mori_device_launch with{
      .struct_size = sizeof(mori_device_launch),
      .block_count = blocks,
      .pe = options.pe,
      .barrier = barrier_.address(),
      .abort_word = options.abort_word,
      .fault = options.fault,
      .wait_budget_ns = options.wait_budget_ns == 0 ? default_budget_ns : options.wait_budget_ns,
      .spin_count = options.spin_count,
  };
  // The driver copies both; it does not write to them.
  void* arguments[] = {const_cast<void*>(args), &with};
  MORI_CHECK(gpu_->launch(kernel->handle, {blocks, waves * gpu_->facts().wave_lane_count},
                          arguments, options.stream));
  return blocks;
}

}  // namespace mori::device
