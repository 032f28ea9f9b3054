// nvidia_gpu_test.cpp - what is NVIDIA's own in src/nvidia_gpu.cpp: how the driver and the
// context are found. What all implementations keep is in gpu_test.cpp.
#include "nvidia_gpu.hpp"

#include "gpu_drivers.hpp"
#include "gpu_subject.hpp"

using namespace mori;
using namespace mori::device;
using test::session;
using test::subject;

namespace {

subject& current_version() {
  static subject made{
      .name = "NVIDIA",
      .fake = fake::driver(FAKE_NVIDIA),
      .current = [] { return nvidia_gpu::current(FAKE_NVIDIA); },
      .at = [](int32_t ordinal) { return nvidia_gpu::at(FAKE_NVIDIA, ordinal); },
      .find = [](const auto& uuid) { return nvidia_gpu::find(FAKE_NVIDIA, uuid); },
      .locate = [](uint64_t address) { return nvidia_gpu::locate(FAKE_NVIDIA, address); },
      .backend = MORI_BACKEND_NVIDIA,
      .architecture = "sm_90",
      .wave_lane_count = 32,
      .allocate_call = "cuMemAlloc_v2",
      .allocate_host_call = "cuMemHostAlloc",
      .create_memory_call = "cuMemCreate",
      .out_of_memory = "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory",
  };
  return made;
}

}  // namespace

std::vector<subject*> test::nvidia_subjects() { return {&current_version()}; }

TEST_CASE("nvidia: no driver: the name that was tried, as the loader words it") {
  const auto made = nvidia_gpu::current("libmori-none.so.1");
  REQUIRE(!made);
  CHECK(made.error().status == MORI_E_UNAVAILABLE);
  CHECK(made.error().text ==
        "no driver library: libmori-none.so.1: cannot open shared object file: No such file or "
        "directory");
  CHECK(nvidia_gpu::describe("libmori-none.so.1").error().text == made.error().text);
}

TEST_CASE("nvidia: the driver of this machine, or why there is none") {
  const auto described = gpu::describe(MORI_BACKEND_NVIDIA);
  const auto current = gpu::current(MORI_BACKEND_NVIDIA);
  CHECK(bool(described) == bool(current));
  if (current) {
    CHECK((*current)->facts().architecture.starts_with("sm_"));
    return;
  }
  CHECK(current.error().status == MORI_E_UNAVAILABLE);
  CHECK(described.error().text == current.error().text);
  CHECK(current.error().text.find("libcuda.so.1") != std::string::npos);
}

TEST_CASE("nvidia: what a driver says of itself") {
  session in(current_version());
  CHECK(*nvidia_gpu::describe(FAKE_NVIDIA) == FAKE_NVIDIA
        " for CUDA 13.0, 2 devices, the first: Fake Hopper 0");
  in.world().set.device_count = 1;
  CHECK(*nvidia_gpu::describe(FAKE_NVIDIA) == FAKE_NVIDIA
        " for CUDA 13.0, 1 device, the first: Fake Hopper 0");
}

TEST_CASE("nvidia: a library that lacks what is needed names it") {
  const auto made = nvidia_gpu::current(FAKE_NVIDIA_INCOMPLETE);
  REQUIRE(!made);
  CHECK(made.error().status == MORI_E_UNAVAILABLE);
  CHECK(made.error().text == FAKE_NVIDIA_INCOMPLETE " is too old: it lacks cuLaunchKernel");
}

TEST_CASE("nvidia: a driver that sees no device") {
  fake::driver opened(FAKE_NVIDIA_UNUSED);
  REQUIRE(opened.is_open());
  opened.world().set.device_count = 0;
  const auto none = nvidia_gpu::current(FAKE_NVIDIA_UNUSED);
  REQUIRE(!none);
  CHECK(none.error().status == MORI_E_UNAVAILABLE);
  CHECK(none.error().text == FAKE_NVIDIA_UNUSED ": cuInit failed with CUDA_ERROR_NO_DEVICE (100)");
  // One that comes later is found.
  opened.world().set.device_count = 1;
  CHECK(nvidia_gpu::describe(FAKE_NVIDIA_UNUSED));
}

TEST_CASE("nvidia: a thread without a context gets the first device's, and keeps none") {
  session in(current_version());
  in.world().set.expected_device = 0;
  in.here().device = -1;
  const auto on = current_version().current();
  REQUIRE(on);
  in.keep_helpers(**on);
  CHECK((*on)->facts().ordinal == 0);
  CHECK(in.here().device == -1);
  CHECK(device_buffer::allocate(*on, 64));
  CHECK(in.here().device == -1);
  CHECK(in.here().pushed.empty());
  in.here().device = 0;
}
