// all_operations.hpp - every function of the device API, called once per group
// type. It is compiled for each processor, so that no function can stop compiling
// for one of them unnoticed; it can be run too, on one PE (pe is the own one).
#pragma once

#include <mori/device/kernel.hpp>
#include <mori/device_api/shmem.hpp>

namespace mori::shmem_core {

struct all_operations_args {
  mori_shmem_device_state_v2 state;
  void* target;        // symmetric, at least 256 bytes, 16-byte aligned
  const void* source;  // private, 64 bytes
  void* sink;          // private, 64 bytes
  device::i32 pe;
  device::i32 operation_end;  // one past MORI_SHMEM_AMO_COMPARE_SWAP
  device::i32 compare_end;    // one past MORI_SHMEM_CMP_LE
};

// One element type of the typed functions.
template <class T, class Group>
MORI_OUTLINE void typed_operations(const Group& group, const all_operations_args& args) {
  using namespace mori::device_api;
  const state& s = args.state;
  T* target = static_cast<T*>(args.target);
  const T* source = static_cast<const T*>(args.source);
  T* sink = static_cast<T*>(args.sink);
  put_nbi(group, s, typed_put_request<T>{target, source, 4, args.pe});
  get_nbi(group, s, typed_get_request<T>{sink, target, 4, args.pe});
  get(group, s, typed_get_request<T>{sink, target, 4, args.pe});
}

// One word type of the atomics and waits.
template <class T, class Group>
MORI_OUTLINE void word_operations(const Group& group, const all_operations_args& args) {
  using namespace mori::device_api;
  const state& s = args.state;
  T* word = static_cast<T*>(args.target) + 8;
  // The bound is not a constant, so that the loop is not unrolled into fourteen copies.
  for (i32 operation = MORI_SHMEM_AMO_INC; operation < args.operation_end; ++operation)
    if (is_atomic_operation(operation))
      atomic_nonfetch(group, s, atomic_request<T>{word, 1, operation, args.pe, 1});
  atomic_add(group, s, word, T{1}, args.pe);
  const T before = atomic_fetch_add(group, s, word, T{1}, args.pe);
  p(group, s, word, T{5}, args.pe);
  quiet(group, s);
  wait_until_equals(group, s, word, T{5});
  wait_until_greater_than(group, s, word, T{4});
  for (i32 compare = MORI_SHMEM_CMP_EQ; compare < args.compare_end; ++compare)
    wait_until(group, s, wait_request<T>{word, compare, before, args.pe, 1});
}

template <class Group>
MORI_OUTLINE void group_operations(const Group& group, const all_operations_args& args) {
  using namespace mori::device_api;
  const state& s = args.state;
  auto* bytes = static_cast<device::u8*>(args.target);
  typed_operations<u32>(group, args);
  typed_operations<u64>(group, args);
  typed_operations<float>(group, args);
  typed_operations<double>(group, args);
  word_operations<u64>(group, args);
  if constexpr (device::same_type<Group, device::one_lane>) {
    // The other word types differ in nothing that a group's form could add.
    word_operations<u32>(group, args);
    word_operations<i32>(group, args);
    word_operations<i64>(group, args);
  }
  p(group, s, static_cast<float*>(args.target), 1.0f, args.pe);
  p(group, s, static_cast<double*>(args.target), 1.0, args.pe);
  putmem_nbi(group, s, {bytes, args.source, 64, args.pe});
  put_size_imm_nbi(group, s, {bytes, args.source, 16, args.pe});
  getmem_nbi(group, s, {args.sink, bytes, 64, args.pe});
  getmem(group, s, {args.sink, bytes, 64, args.pe});
  u64* signal = static_cast<u64*>(args.target) + 16;
  putmem_signal_nbi(group, s, {bytes, args.source, 64, args.pe},
                    {signal, 1, MORI_SHMEM_SIGNAL_SET});
  putmem_signal_nbi(group, s, {nullptr, nullptr, 0, args.pe}, {signal, 1, MORI_SHMEM_SIGNAL_ADD});
  fence(group, s);
  fence_pe(group, s, args.pe);
  quiet_pe(group, s, args.pe);
  if (ptr(s, bytes, args.pe) != nullptr && ptr_p2p(s, bytes, my_pe(s), args.pe) != nullptr &&
      n_pes(s) > 0)
    barrier_all(group, s);
}

MORI_DEVICE void all_operations(const device::grid& g, const all_operations_args& args) {
  if (g.block_index() != 0) return;
  const device::block b = g.this_block();
  if (b.rank() == 0) group_operations(device::one_lane{}, args);
  b.sync();
  if (b.wave_index() == 0) group_operations(g.this_wave(), args);
  b.sync();
  group_operations(b, args);
}

}  // namespace mori::shmem_core
