// gpu_drivers.hpp - the two implementations of mori/device/gpu.hpp.
#pragma once

#include <mori/device/gpu.hpp>

namespace mori::device {

base::result<std::shared_ptr<gpu>> current_amd_gpu();
base::result<std::shared_ptr<gpu>> current_nvidia_gpu();

base::result<std::shared_ptr<gpu>> amd_gpu_at(int32_t ordinal);
base::result<std::shared_ptr<gpu>> nvidia_gpu_at(int32_t ordinal);

bool is_amd_loaded();
bool is_nvidia_loaded();

base::result<gpu::pointer_facts> locate_on_amd(uint64_t address);
base::result<gpu::pointer_facts> locate_on_nvidia(uint64_t address);

base::result<int32_t> find_amd(const std::array<uint8_t, 16>& uuid);
base::result<int32_t> find_nvidia(const std::array<uint8_t, 16>& uuid);

// "libcuda.so.1 for CUDA 13.0, 1 device, the first: ...", or what was tried.
base::result<std::string> describe_amd();
base::result<std::string> describe_nvidia();

}  // namespace mori::device
