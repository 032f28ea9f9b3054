// gpu.cpp - GPUs by back end. See mori/device/gpu.hpp.
#include "gpu_drivers.hpp"

namespace mori::device {

base::result<std::shared_ptr<gpu>> gpu::current(int32_t backend) {
  switch (backend) {
    case MORI_BACKEND_AMD: return current_amd_gpu();
    case MORI_BACKEND_NVIDIA: return current_nvidia_gpu();
    default: return base::fail(MORI_E_INVALID, "backend {} is no GPU", backend);
  }
}

base::result<std::string> gpu::describe(int32_t backend) {
  switch (backend) {
    case MORI_BACKEND_AMD: return describe_amd();
    case MORI_BACKEND_NVIDIA: return describe_nvidia();
    default: return base::fail(MORI_E_INVALID, "backend {} is no GPU", backend);
  }
}

}  // namespace mori::device
