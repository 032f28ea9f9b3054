// gpu_devices.cpp - see gpu_devices.hpp.
#include "local/gpu_devices.hpp"

MORI_DEVICE_IMAGES_DECLARE(mori_io);

namespace mori::io_core::local {
namespace {

constexpr int32_t backends[] = {MORI_BACKEND_NVIDIA, MORI_BACKEND_AMD};

}  // namespace

// What a framework of this process uses comes first: opening another vendor's driver costs time.
base::result<int32_t> gpu_backend() {
  for (const int32_t each : backends)
    if (device::gpu::is_loaded(each) && device::gpu::describe(each)) return each;
  std::string tried;
  for (const int32_t each : backends) {
    const auto found = device::gpu::describe(each);
    if (found) return each;
    tried += fmt::format("{}{}", tried.empty() ? "" : "; ", found.error().text);
  }
  return base::fail(MORI_E_UNAVAILABLE, "no GPU here: {}", tried);
}

base::result<located> locate(const void* address) {
  for (const int32_t each : backends) {
    if (!device::gpu::is_loaded(each)) continue;
    // A driver without a device knows no address.
    const auto found = device::gpu::locate(each, device::address_of(address));
    if (found && found->is_device) return located{true, found->ordinal};
    if (!found && found.error().status != MORI_E_UNAVAILABLE) return found.error();
  }
  return located{};
}

bool is_pinned(device::gpu& on, uint64_t address, uint64_t bytes) {
  if (bytes == 0) return false;
  const auto first = on.look_up(address), last = on.look_up(address + bytes - 1);
  return first && first->is_host && last && last->is_host;
}

std::span<const device::device_image> gpu_devices::own_images() {
  return MORI_DEVICE_IMAGES(mori_io);
}

base::result<std::shared_ptr<device::gpu>> gpu_devices::at(int32_t ordinal) {
  MORI_TRY(const int32_t backend, gpu_backend());
  return device::gpu::at(backend, ordinal);
}

base::result<std::shared_ptr<device::gpu>> gpu_devices::of_uuid(
    const std::array<uint8_t, 16>& uuid) {
  MORI_TRY(const int32_t backend, gpu_backend());
  MORI_TRY(const int32_t ordinal, device::gpu::find(backend, uuid));
  return device::gpu::at(backend, ordinal);
}

base::result<std::shared_ptr<gpu_copier>> gpu_devices::copier_locked(
    const std::shared_ptr<device::gpu>& on) {
  entry& of = all_[on];
  if (of.copier == nullptr) {
    MORI_TRY(of.copier, gpu_copier::create(on, options_, images_));
  }
  return of.copier;
}

base::result<std::shared_ptr<gpu_copier>> gpu_devices::copier(
    const std::shared_ptr<device::gpu>& on) {
  const std::lock_guard guard(lock_);
  return copier_locked(on);
}

base::result<std::shared_ptr<staging_pool>> gpu_devices::staging(
    const std::shared_ptr<device::gpu>& on) {
  const std::lock_guard guard(lock_);
  MORI_TRY(auto copier, copier_locked(on));
  entry& of = all_[on];
  if (of.staging == nullptr) {
    MORI_TRY(of.staging, staging_pool::create(std::move(copier), staging_bytes_));
  }
  return of.staging;
}

}  // namespace mori::io_core::local
