// gpu_here.hpp - the GPU of a test: device 1 of a fake driver whose devices are host memory, or,
// with MORI_TEST_GPU=real, the one of this machine. Tests that make calls fail need the fake.
#pragma once

#include "fake_driver.hpp"
#include "local/gpu_copier.hpp"
#include "subject_text.hpp"

#include <mori/device/gpu_memory.hpp>
#include <mori/device/runtime.hpp>

#include <cstdlib>
#include <string_view>
#include <vector>

MORI_KERNEL_DECLARE(mori_io_copy_pieces);
MORI_DEVICE_IMAGES_DECLARE(mori_io);

namespace mori::io_test {

inline bool is_real() {
  const char* const what = std::getenv("MORI_TEST_GPU");
  return what != nullptr && std::string_view(what) == "real";
}

// Opened before anybody asks for libcuda.so.1, whose name it has.
inline fake::driver& fake_nvidia() {
  static fake::driver opened(FAKE_NVIDIA);
  return opened;
}

// Runs all blocks one after the other, with the host's variant of the kernel.
inline void run_copy_pieces(const fake::launched& how, void** arguments) {
  for (unsigned block = 0; block < how.block_count; ++block)
    mori_io_copy_pieces_base.run(arguments[0], static_cast<const mori_device_launch*>(arguments[1]),
                                 block);
}

inline base::result<std::shared_ptr<device::gpu>> open_gpu() {
  if (is_real()) return device::gpu::at(MORI_BACKEND_NVIDIA, 0);
  if (!fake_nvidia().is_open()) return base::fail(MORI_E_UNAVAILABLE, "no fake driver");
  fake::world& world = fake_nvidia().world();
  world.set = {};
  world.seen = {};
  world.set.fail_with = 999;
  world.set.expected_device = 1;
  world.set.kernels = {{"mori_io_copy_pieces", run_copy_pieces}};
  return device::gpu::at(MORI_BACKEND_NVIDIA, 1);
}

inline std::span<const device::device_image> images_here() {
  static const device::device_image fake_images[] = {{"sm_90", "fake code", 10}};
  return is_real() ? MORI_DEVICE_IMAGES(mori_io)
                   : std::span<const device::device_image>(fake_images);
}

// Bytes of a device, by way of the host.
inline base::status fill_device(device::gpu& on, uint64_t address, uint64_t bytes, uint64_t seed) {
  std::vector<std::byte> host(bytes);
  fill(host.data(), bytes, seed);
  return on.copy_now(address, device::address_of(host.data()), bytes);
}
inline std::vector<std::byte> bytes_of_device(device::gpu& on, uint64_t address, uint64_t bytes) {
  std::vector<std::byte> host(bytes);
  if (!on.copy_now(device::address_of(host.data()), address, bytes)) host.clear();
  return host;
}

}  // namespace mori::io_test
