// gpu_devices.hpp - the devices of this process, for those who move bytes of theirs: opened
// when they are first needed, each with one copier and one pool of staging memory. And where
// an address lies, asked without making a context.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "local/staging.hpp"

namespace mori::io_core::local {

// MORI_BACKEND_* whose driver this process uses, or that has a device here. MORI_E_UNAVAILABLE:
// none, and what was tried.
base::result<int32_t> gpu_backend();

struct located {
  bool is_device = false;
  int32_t ordinal = -1;
};
// Host memory where no driver is loaded, or none knows the address.
base::result<located> locate(const void* address);

// May the device read and write this host memory by itself: pinned, registered.
bool is_pinned(device::gpu& on, uint64_t address, uint64_t bytes);

class gpu_devices {
 public:
  explicit gpu_devices(const gpu_copier_options& options, uint64_t staging_bytes)
      : options_(options), staging_bytes_(staging_bytes) {}
  // Code for the kernels; the library's own unless a test gives another.
  void use_images(std::span<const device::device_image> images) { images_ = images; }

  base::result<std::shared_ptr<device::gpu>> at(int32_t ordinal);
  base::result<std::shared_ptr<device::gpu>> of_uuid(const std::array<uint8_t, 16>& uuid);
  base::result<std::shared_ptr<gpu_copier>> copier(const std::shared_ptr<device::gpu>& on);
  base::result<std::shared_ptr<staging_pool>> staging(const std::shared_ptr<device::gpu>& on);

 private:
  struct entry {
    std::shared_ptr<gpu_copier> copier;
    std::shared_ptr<staging_pool> staging;
  };
  base::result<std::shared_ptr<gpu_copier>> copier_locked(const std::shared_ptr<device::gpu>& on);

  const gpu_copier_options options_;
  const uint64_t staging_bytes_;
  std::span<const device::device_image> images_ = own_images();
  std::mutex lock_;
  std::map<std::shared_ptr<device::gpu>, entry> all_;

  static std::span<const device::device_image> own_images();
};

}  // namespace mori::io_core::local
