// gpu_subject.hpp - a GPU implementation over a fake driver, as the tests see it. The
// body of a test is in gpu_test.cpp once; amd_gpu_test.cpp and nvidia_gpu_test.cpp say
// what their implementations are.
#pragma once

#include "fake_driver.hpp"

#include <mori/device/gpu_memory.hpp>

#include <doctest/doctest.h>

#include <functional>

namespace mori::test {

struct subject {
  std::string name;
  fake::driver fake;
  std::function<base::result<std::shared_ptr<device::gpu>>()> current;
  std::function<base::result<std::shared_ptr<device::gpu>>(int32_t)> at;
  std::function<base::result<int32_t>(const std::array<uint8_t, 16>&)> find;
  std::function<base::result<device::gpu::pointer_facts>(uint64_t)> locate;
  // What is different in each.
  int32_t backend;
  const char* architecture;
  uint32_t wave_lane_count;
  const char* allocate_call;
  const char* allocate_host_call;
  const char* create_memory_call;
  const char* out_of_memory;  // the rest of the message
};

// The versions of each that keep all of the contract.
std::vector<subject*> amd_subjects();
std::vector<subject*> nvidia_subjects();

// The calling thread is on device 0, in the global capture mode, and finds both so after each call;
// the GPU is device 1. At the end nothing lives, and no call broke a rule.
class session {
 public:
  explicit session(subject& of) : of_(of) {
    REQUIRE(of.fake.is_open());
    world().set = {};
    world().seen = {};
    world().set.expected_device = 1;
    world().set.fail_with = 999;
    of.fake.here() = {};
    kept_ = world().alive;
  }
  ~session() {
    CHECK(has_given_back());
    CHECK(list(world().seen.misplaced) == "");
    CHECK(list(world().seen.unrelaxed) == "");
    check_thread();
  }
  session(const session&) = delete;
  session& operator=(const session&) = delete;

  fake::world& world() const { return of_.fake.world(); }
  fake::thread_state& here() const { return of_.fake.here(); }

  // The GPU on device 1, made as a caller on that device would.
  std::shared_ptr<device::gpu> open() { return open(of_.current); }
  template <class Open>
  std::shared_ptr<device::gpu> open(const Open& open) {
    here().device = 1;
    const auto made = open();
    here().device = 0;
    REQUIRE_MESSAGE(made, made.error().text);
    keep_helpers(**made);
    return *made;
  }
  // Helper streams stay as long as the process.
  void keep_helpers(device::gpu& of) {
    for (const auto which : {device::gpu::helper::work, device::gpu::helper::alarm}) {
      const auto stream = of.helper_stream(which);
      REQUIRE(stream);
      kept_.insert({"stream", device::address_of(*stream)});
    }
  }
  bool has_given_back() const { return world().alive == kept_; }
  void check_thread() const {
    CHECK(here().device == 0);
    CHECK(here().capture_mode == 0);
    CHECK(here().last_error == 0);
  }

 private:
  static std::string list(const std::vector<std::string>& names) {
    std::string all;
    for (const std::string& name : names) all += name + " ";
    return all;
  }

  subject& of_;
  decltype(fake::world::alive) kept_;
};

}  // namespace mori::test
