// gpu.cpp - GPUs by back end. See mori/device/gpu.hpp.
#include "gpu_drivers.hpp"

#include <map>

namespace mori::device {

base::result<void*> gpu::helper_stream(helper which) {
  const std::lock_guard guard(helper_lock_);
  void*& stream = helpers_[which == helper::alarm ? 1 : 0];
  if (stream == nullptr) {
    MORI_TRY(stream, create_stream());
  }
  return stream;
}

base::status gpu::copy_now(uint64_t to, uint64_t from, uint64_t bytes, helper by) {
  MORI_TRY(void* const stream, helper_stream(by));
  MORI_CHECK(copy(to, from, bytes, stream));
  return synchronize_stream(stream);
}

base::status gpu::fill_now(uint64_t to, uint8_t value, uint64_t bytes) {
  MORI_TRY(void* const stream, helper_stream(helper::work));
  MORI_CHECK(fill(to, value, bytes, stream));
  return synchronize_stream(stream);
}

base::result<std::shared_ptr<gpu>> gpu_of_context(
    const void* context, const std::function<base::result<std::shared_ptr<gpu>>()>& make) {
  static std::mutex lock;
  // Never destroyed: calls may come during static destruction.
  static auto* const all = new std::map<const void*, std::shared_ptr<gpu>>();
  const std::lock_guard guard(lock);
  std::shared_ptr<gpu>& one = (*all)[context];
  if (one == nullptr) {
    MORI_TRY(one, make());
  }
  return one;
}

base::result<std::shared_ptr<gpu>> gpu::current(int32_t backend) {
  switch (backend) {
    case MORI_BACKEND_AMD: return current_amd_gpu();
    case MORI_BACKEND_NVIDIA: return current_nvidia_gpu();
    default: return base::fail(MORI_E_INVALID, "backend {} is no GPU", backend);
  }
}

base::result<std::shared_ptr<gpu>> gpu::at(int32_t backend, int32_t ordinal) {
  switch (backend) {
    case MORI_BACKEND_AMD: return amd_gpu_at(ordinal);
    case MORI_BACKEND_NVIDIA: return nvidia_gpu_at(ordinal);
    default: return base::fail(MORI_E_INVALID, "backend {} is no GPU", backend);
  }
}

base::result<int32_t> gpu::find(int32_t backend, const std::array<uint8_t, 16>& uuid) {
  switch (backend) {
    case MORI_BACKEND_AMD: return find_amd(uuid);
    case MORI_BACKEND_NVIDIA: return find_nvidia(uuid);
    default: return base::fail(MORI_E_INVALID, "backend {} is no GPU", backend);
  }
}

bool gpu::is_loaded(int32_t backend) {
  return backend == MORI_BACKEND_AMD      ? is_amd_loaded()
         : backend == MORI_BACKEND_NVIDIA ? is_nvidia_loaded()
                                          : false;
}

base::result<gpu::pointer_facts> gpu::locate(int32_t backend, uint64_t address) {
  switch (backend) {
    case MORI_BACKEND_AMD: return locate_on_amd(address);
    case MORI_BACKEND_NVIDIA: return locate_on_nvidia(address);
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
