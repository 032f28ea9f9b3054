// fake_driver.hpp - opens a fake GPU driver and gives a test its world. See fake_world.hpp.
#pragma once

#include "fake_world.hpp"

#include <dlfcn.h>

// What each fake exports beside the vendor's calls.
extern "C" {
using mori_fake_world_call = mori::fake::world* (*)();
using mori_fake_thread_call = mori::fake::thread_state* (*)();
}

namespace mori::fake {

class driver {
 public:
  explicit driver(const char* path) : handle_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    find(world_, "mori_fake_world");
    find(thread_, "mori_fake_thread");
  }
  bool is_open() const { return world_ != nullptr && thread_ != nullptr; }
  fake::world& world() const { return *world_(); }
  thread_state& here() const { return *thread_(); }

 private:
  template <class Call>
  void find(Call& call, const char* name) {
    call = handle_ != nullptr ? reinterpret_cast<Call>(dlsym(handle_, name)) : nullptr;
  }
  void* const handle_;
  mori_fake_world_call world_ = nullptr;
  mori_fake_thread_call thread_ = nullptr;
};

}  // namespace mori::fake
