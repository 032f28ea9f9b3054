// fake_nvidia.hpp - what both halves of the fake libcuda share. Read fake_nvidia.cpp first.
#pragma once

#include "fake_world.hpp"
#include "nvidia_driver.hpp"

#include <cstdint>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

// Every definition is checked against the table, which is checked against cuda.h.
namespace mori::device::nvidia {
extern "C" {
#define FAKE_DECLARE(name, required, ...) \
  __attribute__((visibility("default"))) status name(__VA_ARGS__);
MORI_NVIDIA_CALLS(FAKE_DECLARE)
#undef FAKE_DECLARE
}
inline constexpr status no_device = 100;
}  // namespace mori::device::nvidia

namespace mori::fake {

world& the_world();
thread_state& here();

inline int done(bool is_fine) {
  return is_fine ? device::nvidia::success : device::nvidia::invalid_value;
}

inline uint64_t number(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }
inline uint64_t number(uint64_t address) { return address; }
inline int give(unsigned long long* to, uint64_t made) {
  *to = made;
  return made != 0 ? device::nvidia::success : device::nvidia::out_of_memory;
}
inline int give(void** to, uint64_t made) {
  *to = reinterpret_cast<void*>(made);
  return made != 0 ? device::nvidia::success : device::nvidia::out_of_memory;
}

}  // namespace mori::fake

// The first line of every call: counts it, and fails it if it shall.
#define FAKE_CALL(name, how)                          \
  const std::lock_guard fake_guard(the_world().lock); \
  if (const int fault = the_world().enter(#name, rule::how, here()); fault != 0) return fault
