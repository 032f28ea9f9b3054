// gpu_session.hpp - a test's turn with the GPU of gpu_here.hpp: at its end nothing that the test
// made lives in the fake driver.
#pragma once

#include <doctest/doctest.h>

#include "gpu_here.hpp"

namespace mori::io_test {

class gpu_session {
 public:
  gpu_session() {
    auto opened = open_gpu();
    REQUIRE_MESSAGE(opened, opened.error().text);
    gpu = std::move(*opened);
    REQUIRE(gpu->helper_stream(device::gpu::helper::work));  // stays
    REQUIRE(gpu->helper_stream(device::gpu::helper::alarm));
    if (!is_real()) kept_ = world().alive;
  }
  ~gpu_session() {
    if (is_real()) return;
    world().set.fail_at = 0;
    CHECK(has_given_back());
    // Asking for a device's UUID needs no device to be current.
    for (auto* const broken : {&world().seen.misplaced, &world().seen.unrelaxed}) {
      std::erase(*broken, "cuDeviceGetUuid_v2");
      CHECK(broken->empty());
    }
  }
  gpu_session(const gpu_session&) = delete;
  gpu_session& operator=(const gpu_session&) = delete;

  static fake::world& world() { return fake_nvidia().world(); }
  bool has_given_back() const { return world().alive == kept_; }

  std::shared_ptr<io_core::local::gpu_copier> copier(uint32_t streams = 4,
                                                     uint32_t events = 8) const {
    auto made = io_core::local::gpu_copier::create(
        gpu, {.stream_count = streams, .event_count = events}, images_here());
    REQUIRE_MESSAGE(made, made.error().text);
    return std::move(*made);
  }
  device::device_buffer buffer(uint64_t bytes) const {
    auto made = device::device_buffer::allocate(gpu, bytes);
    REQUIRE_MESSAGE(made, made.error().text);
    return std::move(*made);
  }

  // Runs `what` again and again, each time with another call of the driver failing, until none is
  // left to fail. Each failure names the call, and nothing stays behind.
  template <class What>
  int fail_each_call(What what) const {
    int step = 0;
    for (bool was_reached = true; was_reached;) {
      world().seen = {};
      world().set.fail_at = ++step;
      const base::status outcome = what();
      const std::string failed = world().seen.failed;
      CAPTURE(failed);
      CAPTURE(step);
      was_reached = !failed.empty();
      // Who gives back has nobody to tell.
      if (failed != "cuStreamSynchronize") CHECK(!outcome == was_reached);
      if (!outcome) CHECK(outcome.error().text.find(failed + ": ") != std::string::npos);
      CHECK(has_given_back());
    }
    world().set.fail_at = 0;
    return step;
  }

  std::shared_ptr<device::gpu> gpu;

 private:
  decltype(fake::world::alive) kept_;
};

}  // namespace mori::io_test
