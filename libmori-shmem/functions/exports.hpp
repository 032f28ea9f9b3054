// exports.hpp - the device API as functions of C linkage over a state that belongs to the
// module, for kernels of other compilers: what exports.cpp, which is generated from
// declarations.py, is made of. Compiled to bitcode for each GPU architecture, and
// for the host, where tests run the same functions.
//
// Each function exists twice. mori_shmem_X is executed by the lanes of its group, like the
// device API itself. mori_shmem_program_X is called by all lanes of a block, acts once, and
// gives its result to all: the lanes meet before it, so it comes after what all of them
// did, and after it, so what they do comes later.
#pragma once

#include <mori/device/kernel.hpp>
#include <mori/device_api/shmem.hpp>

// The name carries the level of the device protocol. All zero: no context stands behind it (never
// set, or finalized), and nothing is done.
extern "C" {
extern MORI_MODULE_STATE mori_shmem_device_state_v2 mori_shmem_module_state_v2;
}

namespace mori::shmem_exports {

using namespace mori::device;
namespace api = mori::device_api;
using api::state;

inline constexpr u32 state_level = 2;
// What functions that return a status say without a context.
inline constexpr i32 ended = MORI_E_STATE;

template <class T>
MORI_HOT T* to(u64 address) {
  return pointer<T>(address);
}
template <class T>
MORI_HOT const T* from(u64 address) {
  return pointer<const T>(address);
}
// For memory of any kind, a lane's own too.
template <class T>
MORI_HOT const T* anywhere(u64 address) {
  return reinterpret_cast<const T*>(static_cast<uptr>(address));
}

// Also for values smaller than those that the device API stores at system scope.
template <class T, class Group>
MORI_HOT i32 put_value(const Group& group, const state& s, u64 dest, T value, i32 pe) {
  if constexpr (sizeof(T) >= 4) {
    return api::p(group, s, to<T>(dest), value, pe);
  } else {
    const auto target = api::reach(s, MORI_SHMEM_OP_PUT, {to<void>(dest), sizeof(T), pe});
    if (target.status != MORI_OK) return target.status;
    if (target.address % sizeof(T) != 0)
      return api::refuse_argument(s, MORI_SHMEM_OP_PUT, pe, dest, sizeof(T));
    *to<T>(target.address) = value;
    return MORI_OK;
  }
}

template <class Group>
MORI_HOT i32 atomic_of_size(const Group& group, const state& s, u64 dest, u64 value_address,
                            u64 bytes, i32 op, i32 pe) {
  if (bytes == 4)
    return api::atomic_nonfetch(
        group, s, api::atomic_request<u32>{to<u32>(dest), *anywhere<u32>(value_address), op, pe});
  if (bytes == 8)
    return api::atomic_nonfetch(
        group, s, api::atomic_request<u64>{to<u64>(dest), *anywhere<u64>(value_address), op, pe});
  return api::refuse_argument(s, MORI_SHMEM_OP_ATOMIC, pe, bytes, 8);
}

// Never greater than the value when the wait has failed: a refused wait has seen nothing.
template <class Group, class T>
MORI_HOT T wait_until_greater(const Group& group, const state& s, const T* word, T value) {
  const auto result =
      api::wait_until(group, s, api::wait_request<T>{word, MORI_SHMEM_CMP_GT, value});
  return result.met ? result.seen : min(result.seen, value);
}

template <class Group, class Result, class Body>
MORI_HOT Result run(Result dead, Body body) {
  const state& s = mori_shmem_module_state_v2;
  return s.level == state_level ? static_cast<Result>(body(Group{}, s)) : dead;
}

template <class Group>
MORI_HOT bool is_first_of_block() {
  if constexpr (same_type<Group, wave>)
    return block{}.wave_index() == 0;
  else
    return same_type<Group, block> || block{}.rank() == 0;
}

template <class Group, class Result, class Body>
MORI_HOT Result run_in_program(Result dead, Body body) {
  const state& s = mori_shmem_module_state_v2;
  if (s.level != state_level) return dead;
  const block all;
  // As in publish(): what the lanes stored, to peers too, comes before what one of them does.
  lane::drain_stores();
  all.sync();
  if constexpr (same_type<Group, block>) {
    const Result result = static_cast<Result>(body(all, s));
    all.sync();
    return result;
  } else {
    Result result = dead;
    if (is_first_of_block<Group>()) result = static_cast<Result>(body(Group{}, s));
    return all.broadcast(result);
  }
}

}  // namespace mori::shmem_exports

// The C ABI has host functions of some of the names that kernels use.
#if defined(MORI_TARGET_HOST)
#define MORI_EXPORT_NAME(name) mori_shmem_host_##name
#else
#define MORI_EXPORT_NAME(name) mori_shmem_##name
#endif

// One function of both kinds; the last argument is the expression.
#define MORI_EXPORT_LOOKUP(result, name, group_type, dead, parameters, ...)                       \
  extern "C" MORI_EXPORTED result MORI_EXPORT_NAME(name) parameters {                             \
    using namespace mori::shmem_exports;                                                          \
    return run<group_type, result>(static_cast<result>(dead),                                     \
                                   [&]([[maybe_unused]] const auto& group,                        \
                                       [[maybe_unused]] const state& s) { return __VA_ARGS__; }); \
  }
#define MORI_EXPORT(result, name, group_type, dead, parameters, ...)                              \
  MORI_EXPORT_LOOKUP(result, name, group_type, dead, parameters, __VA_ARGS__)                     \
  extern "C" MORI_EXPORTED result MORI_EXPORT_NAME(program_##name) parameters {                   \
    using namespace mori::shmem_exports;                                                          \
    return run_in_program<group_type, result>(                                                    \
        static_cast<result>(dead), [&]([[maybe_unused]] const auto& group,                        \
                                       [[maybe_unused]] const state& s) { return __VA_ARGS__; }); \
  }
