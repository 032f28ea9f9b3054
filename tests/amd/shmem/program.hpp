// program.hpp - a kernel that runs a list of shmem operations, so that tests can put
// together any sequence of device functions, for each kind of group, without a
// kernel of their own. Each group of a launch (lane, wave or block) has a program of its
// own. Who makes the lists: shmem_test.py; the same source runs on the host and in the
// emulator of AMD GPUs.
#pragma once

#include <mori/device/kernel.hpp>
#include <mori/device_api/shmem.hpp>

namespace mori::amd_test {

using namespace mori::device;
namespace api = device_api;
using api::state;

enum class operation : u32 {
  putmem_nbi,
  put_nbi,
  putmem_signal_nbi,
  p,
  put_size_imm_nbi,
  getmem_nbi,
  getmem,
  get_nbi,
  get,
  atomic_fetch,
  atomic_nonfetch,
  atomic_fetch_add,
  atomic_add,
  wait_until,
  wait_until_equals,
  wait_until_greater_than,
  quiet,
  fence,
  quiet_pe,
  fence_pe,
  barrier_all,
  my_pe,
  n_pes,
  ptr,
  ptr_p2p,
  ended_status,
};

// What a typed operation works on.
enum class element : u32 { u8, u16, u32, u64, i32, i64, f32, f64 };

// One call. Fields that the operation does not take are ignored.
struct step {
  operation what;
  element type;
  i32 pe;
  i32 code;     // MORI_SHMEM_AMO_*, CMP_* or SIGNAL_*; ptr_p2p: the PE to reach
  u64 to;       // puts, atomics, waits: symmetric; gets: any address
  u64 from;     // the other end; put with signal: any address
  u64 count;    // bytes, or elements of typed operations; waits: budget_ns
  u64 value;    // bits of the operand
  u64 compare;  // compare-and-swap: expected value; put with signal: the signal's address
};

// What it gave back. `strangers` is the number of lanes that got something else than lane 0.
struct outcome {
  u64 value;
  i32 status;
  u32 strangers;
};

struct program {
  u64 begin, end;  // steps
};

struct program_args {
  state s;
  u64 steps;
  u64 outcomes;  // one per step
  u64 programs;  // one per group of the launch
  u64 program_count;
};

// Calls body with a value of the element type. Waves and blocks have two types of each kind, which
// shortens the compilation: the others differ in nothing that a group's form could add.
template <class Group, class Body>
MORI_HOT outcome for_type(const Group&, element type, Body body) {
  if constexpr (same_type<Group, one_lane>) {
    switch (type) {
      case element::u8: return body(u8{});
      case element::u16: return body(u16{});
      case element::f32: return body(0.0f);
      case element::u64: return body(u64{});
      default: break;
    }
  }
  return type == element::f64 ? body(0.0) : body(u32{});
}
template <class Group, class Body>
MORI_HOT outcome for_word(const Group&, element type, Body body) {
  if constexpr (same_type<Group, one_lane>) {
    if (type == element::u32) return body(u32{});
    if (type == element::i64) return body(i64{});
  }
  return type == element::i32 ? body(i32{}) : body(u64{});
}

template <class Group>
MORI_OUTLINE outcome run_put(const Group& group, const state& s, const step& todo) {
  const api::put_request put{pointer<void>(todo.to), pointer<const void>(todo.from), todo.count,
                             todo.pe};
  switch (todo.what) {
    case operation::putmem_nbi: return {0, api::putmem_nbi(group, s, put), 0};
    case operation::put_size_imm_nbi: return {0, api::put_size_imm_nbi(group, s, put), 0};
    case operation::putmem_signal_nbi:
      return {0,
              api::putmem_signal_nbi(group, s, put,
                                     {pointer<u64>(todo.compare), todo.value, todo.code}),
              0};
    case operation::p:
      if (todo.type == element::f32)
        return {0,
                api::p(group, s, pointer<float>(todo.to),
                       bit_cast<float>(static_cast<u32>(todo.value)), todo.pe),
                0};
      if (todo.type == element::f64)
        return {0,
                api::p(group, s, pointer<double>(todo.to), bit_cast<double>(todo.value), todo.pe),
                0};
      return for_word(group, todo.type, [&](auto zero) {
        using T = decltype(zero);
        return outcome{
            0, api::p(group, s, pointer<T>(todo.to), static_cast<T>(todo.value), todo.pe), 0};
      });
    default:
      return for_type(group, todo.type, [&](auto zero) {
        using T = decltype(zero);
        return outcome{
            0,
            api::put_nbi(group, s,
                         api::typed_put_request<T>{pointer<T>(todo.to), pointer<const T>(todo.from),
                                                   todo.count, todo.pe}),
            0};
      });
  }
}

template <class Group>
MORI_OUTLINE outcome run_get(const Group& group, const state& s, const step& todo) {
  const api::get_request get_it{pointer<void>(todo.to), pointer<const void>(todo.from), todo.count,
                                todo.pe};
  if (todo.what == operation::getmem_nbi) return {0, api::getmem_nbi(group, s, get_it), 0};
  if (todo.what == operation::getmem) return {0, api::getmem(group, s, get_it), 0};
  return for_type(group, todo.type, [&](auto zero) {
    using T = decltype(zero);
    const api::typed_get_request<T> typed{pointer<T>(todo.to), pointer<const T>(todo.from),
                                          todo.count, todo.pe};
    return outcome{
        0,
        todo.what == operation::get_nbi ? api::get_nbi(group, s, typed) : api::get(group, s, typed),
        0};
  });
}

template <class Group>
MORI_OUTLINE outcome run_atomic(const Group& group, const state& s, const step& todo) {
  return for_word(group, todo.type, [&](auto zero) {
    using T = decltype(zero);
    T* to = pointer<T>(todo.to);
    const T value = static_cast<T>(todo.value);
    const api::atomic_request<T> request{to, value, todo.code, todo.pe,
                                         static_cast<T>(todo.compare)};
    switch (todo.what) {
      case operation::atomic_fetch: {
        const auto done = api::atomic_fetch(group, s, request);
        return outcome{static_cast<u64>(done.before), done.status, 0};
      }
      case operation::atomic_nonfetch:
        return outcome{0, api::atomic_nonfetch(group, s, request), 0};
      case operation::atomic_fetch_add:
        return outcome{static_cast<u64>(api::atomic_fetch_add(group, s, to, value, todo.pe)), 0, 0};
      default: return outcome{0, api::atomic_add(group, s, to, value, todo.pe), 0};
    }
  });
}

template <class Group>
MORI_OUTLINE outcome run_wait(const Group& group, const state& s, const step& todo) {
  return for_word(group, todo.type, [&](auto zero) {
    using T = decltype(zero);
    const T* word = pointer<const T>(todo.to);
    const T value = static_cast<T>(todo.value);
    switch (todo.what) {
      case operation::wait_until: {
        const auto done =
            wait_until(group, s, api::wait_request<T>{word, todo.code, value, todo.pe, todo.count});
        return outcome{static_cast<u64>(done.seen), done.met != 0 ? 1 : 0, 0};
      }
      case operation::wait_until_equals:
        return outcome{0, api::wait_until_equals(group, s, word, value), 0};
      default:
        return outcome{static_cast<u64>(api::wait_until_greater_than(group, s, word, value)), 0, 0};
    }
  });
}

template <class Group>
MORI_OUTLINE outcome run_other(const Group& group, const state& s, const step& todo) {
  switch (todo.what) {
    case operation::quiet: return {0, api::quiet(group, s), 0};
    case operation::fence: return {0, api::fence(group, s), 0};
    case operation::quiet_pe: return {0, api::quiet_pe(group, s, todo.pe), 0};
    case operation::fence_pe: return {0, api::fence_pe(group, s, todo.pe), 0};
    case operation::barrier_all: return {0, api::barrier_all(group, s), 0};
    case operation::my_pe: return {static_cast<u64>(api::my_pe(s)), 0, 0};
    case operation::n_pes: return {static_cast<u64>(api::n_pes(s)), 0, 0};
    case operation::ptr: return {address(api::ptr(s, pointer<u8>(todo.to), todo.pe)), 0, 0};
    case operation::ptr_p2p:
      return {address(api::ptr_p2p(s, pointer<u8>(todo.to), todo.pe, todo.code)), 0, 0};
    default: return {0, api::ended_status(s), 0};
  }
}

template <class Group>
MORI_DEVICE outcome run_step(const Group& group, const state& s, const step& todo) {
  if (todo.what <= operation::put_size_imm_nbi) return run_put(group, s, todo);
  if (todo.what <= operation::get) return run_get(group, s, todo);
  if (todo.what <= operation::atomic_add) return run_atomic(group, s, todo);
  if (todo.what <= operation::wait_until_greater_than) return run_wait(group, s, todo);
  return run_other(group, s, todo);
}

template <class Group>
MORI_DEVICE void run_program(const Group& group, const program_args& args, u64 index) {
  if (index >= args.program_count) return;
  const program mine = pointer<const program>(args.programs)[index];
  for (u64 i = mine.begin; i < mine.end; ++i) {
    outcome done = run_step(group, args.s, pointer<const step>(args.steps)[i]);
    const u64 value = group.broadcast(done.value);
    const i32 status = group.broadcast(done.status);
    const bool is_stranger = value != done.value || status != done.status;
    done.strangers = group.reduce_add(is_stranger ? 1u : 0u);
    if (group.rank() == 0) pointer<outcome>(args.outcomes)[i] = done;
  }
}

MORI_DEVICE void lane_programs(const grid& g, const program_args& args) {
  run_program(one_lane{}, args, g.lane_index());
}
MORI_DEVICE void wave_programs(const grid& g, const program_args& args) {
  run_program(g.this_wave(), args, g.wave_index());
}
MORI_DEVICE void block_programs(const grid& g, const program_args& args) {
  run_program(g.this_block(), args, g.block_index());
}

}  // namespace mori::amd_test
