// gpu_drivers.hpp - the two implementations of mori/device/gpu.hpp.
#pragma once

#include <mori/device/gpu.hpp>

namespace mori::device {

base::result<std::shared_ptr<gpu>> current_amd_gpu();
base::result<std::shared_ptr<gpu>> current_nvidia_gpu();

// "libcuda.so.1 for CUDA 13.0, 1 device, the first: ...", or what was tried.
base::result<std::string> describe_amd();
base::result<std::string> describe_nvidia();

}  // namespace mori::device
