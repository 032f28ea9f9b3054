// fake_amd.hpp - what both halves of the fake libamdhip64 share. Read fake_amd.cpp first.
#pragma once

#include "amd_driver.hpp"
#include "fake_world.hpp"

#include <cstdint>

#if !defined(FAKE_HIP_VERSION)
#define FAKE_HIP_VERSION 70226015
#endif
#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

// Every definition is checked against the table, which is checked against HIP's header.
namespace mori::device::amd {
extern "C" {
#define FAKE_DECLARE(name, required, ...) \
  __attribute__((visibility("default"))) status name(__VA_ARGS__);
MORI_AMD_CALLS(FAKE_DECLARE)
#undef FAKE_DECLARE
}
}  // namespace mori::device::amd

namespace mori::fake {

namespace amd = device::amd;

world& the_world();
thread_state& here();

// A failed call leaves its error behind, as HIP does.
inline amd::status done(amd::status outcome) {
  if (outcome != amd::success) here().last_error = outcome;
  return outcome;
}
inline amd::status done(bool is_fine) { return done(is_fine ? amd::success : amd::invalid_value); }

inline uint64_t number(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }
template <class T>
amd::status give(T** to, uint64_t made) {
  *to = reinterpret_cast<T*>(made);
  return done(made != 0 ? amd::success : amd::out_of_memory);
}

}  // namespace mori::fake

// The first line of every call: counts it, and fails it if it shall.
#define FAKE_CALL(name, how)                          \
  const std::lock_guard fake_guard(the_world().lock); \
  if (const int fault = the_world().enter(#name, rule::how, here()); fault != 0) return done(fault)
