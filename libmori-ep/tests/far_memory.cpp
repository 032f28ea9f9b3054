// far_memory.cpp - see far_memory.hpp.
#include "far_memory.hpp"

#include <doctest/doctest.h>
#include <mori/device/gpu_memory.hpp>

#include <cstdlib>
#include <cstring>
#include <string>

namespace ep_test {
namespace {

int32_t backend() {
  const char* name = std::getenv("MORI_BACKEND");
  if (name == nullptr) return MORI_BACKEND_HOST;
  return std::string(name) == "nvidia" ? MORI_BACKEND_NVIDIA
         : std::string(name) == "amd"  ? MORI_BACKEND_AMD
                                       : MORI_BACKEND_HOST;
}

const std::shared_ptr<mori::device::gpu>& gpu_here() {
  static const std::shared_ptr<mori::device::gpu> found = [] {
    auto current = mori::device::gpu::current(backend());
    REQUIRE(current);
    return *current;
  }();
  return found;
}

}  // namespace

bool is_far() { return backend() != MORI_BACKEND_HOST; }

void* own_stream() {
  if (!is_far()) return nullptr;
  // Streams of ended threads are left to the process: a rank's thread outlives its calls.
  thread_local void* const stream = [] {
    auto made = gpu_here()->create_stream();
    return made ? *made : nullptr;
  }();
  return stream;
}

struct uploaded::far {
  mori::device::device_buffer memory;
};

uploaded::uploaded(const void* from, uint64_t bytes) : at_(from) {
  if (!is_far() || from == nullptr || bytes == 0) return;
  auto made = mori::device::device_buffer::allocate(gpu_here(), bytes);
  REQUIRE(made);
  far_ = std::make_unique<far>(far{std::move(*made)});
  at_ = reinterpret_cast<const void*>(far_->memory.address());
  copy_bytes(reinterpret_cast<void*>(far_->memory.address()), from, bytes);
}

uploaded::~uploaded() = default;

void copy_bytes(void* to, const void* from, uint64_t bytes) {
  if (bytes == 0) return;
  if (!is_far()) {
    std::memcpy(to, from, bytes);
    return;
  }
  const auto copied =
      gpu_here()->copy_now(mori::device::address_of(to), mori::device::address_of(from), bytes);
  REQUIRE(copied);
}

}  // namespace ep_test
