// put.hpp - stores to a peer: bulk puts, typed puts, put-with-signal, scalar puts.
//
// Bulk puts are non-blocking: the source may be reused at once for mapped peers, and for
// up to 16 bytes, else after quiet(); the data is complete at the target only after
// quiet(), or when a later signal of the same call has been seen there. All lanes of the
// group call with the same arguments.
// Every function returns MORI_OK or why it did nothing (see state.hpp).
#pragma once

#include <mori/device/copy.hpp>
#include <mori/device_api/ring.hpp>

namespace mori::device_api {

// One bulk put: bytes from any address of this PE to a symmetric address on PE pe. The
// queue pair, which mapped peers ignore, keeps the order of what is sent by it.
struct put_request {
  void* to;
  const void* from;
  u64 bytes;
  i32 pe;
  i32 queue_pair = 0;
};

template <class T>
struct typed_put_request {
  T* to;
  const T* from;
  u64 count;
  i32 pe;
  i32 queue_pair = 0;
};

// What happens to an 8-byte aligned word of the target after the data.
struct signal_request {
  u64* word;  // symmetric address
  u64 value;
  i32 operation;  // MORI_SHMEM_SIGNAL_SET or MORI_SHMEM_SIGNAL_ADD
};

// Moves the bytes of an accepted request. One machine word is a single store.
template <class Group>
MORI_HOT void move(const Group& group, u64 to, const void* from, u64 bytes) {
  if constexpr (Group::single) {
    if (bytes == 8) {
      __builtin_memcpy(device::pointer<void>(to), from, 8);
      return;
    }
  }
  device::copy(group, device::pointer<void>(to), from, static_cast<usz>(bytes));
}

template <class Group>
MORI_DEVICE i32 putmem_by_network(const Group& group, const state& s, const put_request& put) {
  if (put.bytes == 0) return MORI_OK;
  return post_for_group(group, s, {MORI_SHMEM_OP_PUT, put.queue_pair},
                        put_command(s, {put.to, put.bytes, put.pe}, put.from));
}

template <class Group>
MORI_HOT i32 putmem_nbi(const Group& group, const state& s, const put_request& put) {
  const reached target = route(s, MORI_SHMEM_OP_PUT, {put.to, put.bytes, put.pe});
  if (target.status == by_network) return putmem_by_network(group, s, put);
  if (target.status == MORI_OK) move(group, target.address, put.from, put.bytes);
  return target.status;
}

template <class Group, class T>
MORI_HOT i32 put_nbi(const Group& group, const state& s, const typed_put_request<T>& put) {
  return putmem_nbi(group, s, {put.to, put.from, bytes_of<T>(put.count), put.pe, put.queue_pair});
}

// Stores or adds, at system scope, then wakes whoever sleeps there. `O` is release where the data
// before it has not been published yet.
template <device::order O>
MORI_HOT void apply_signal(const state& s, u64 word, const signal_request& signal, i32 pe) {
  auto* p = device::pointer<u64>(word);
  if (signal.operation == MORI_SHMEM_SIGNAL_SET)
    device::store_signal<O>(p, signal.value);
  else
    device::fetch_add<device::scope::system, O>(p, signal.value);
  device::ring_doorbell(doorbell_of(peer_sync(s, pe)));
}

// Checks a signal: its place, alignment and operation.
MORI_HOT reached reach_signal(const state& s, const signal_request& signal, i32 pe) {
  const reached word = route(s, MORI_SHMEM_OP_PUT_SIGNAL, {signal.word, sizeof(u64), pe});
  if (word.status != MORI_OK && word.status != by_network) return word;
  if (device::address(signal.word) % sizeof(u64) != 0)
    return {0, refuse_argument(s, MORI_SHMEM_OP_PUT_SIGNAL, pe, device::address(signal.word),
                               sizeof(u64))};
  if (signal.operation != MORI_SHMEM_SIGNAL_SET && signal.operation != MORI_SHMEM_SIGNAL_ADD)
    return {0, refuse_argument(s, MORI_SHMEM_OP_PUT_SIGNAL, pe,
                               static_cast<u64>(static_cast<i64>(signal.operation)),
                               MORI_SHMEM_SIGNAL_ADD)};
  return word;
}

template <class Group>
MORI_DEVICE i32 putmem_signal_by_network(const Group& group, const state& s, const put_request& put,
                                         const signal_request& signal) {
  extent where{device::pointer<void>(s.heap_base), 0, put.pe};
  if (put.bytes != 0) where = {put.to, put.bytes, put.pe};
  if (!is_in_heap(s, where.symmetric, where.bytes))
    return refuse(s, MORI_SHMEM_OP_PUT_SIGNAL, where);
  command what = put_command(s, where, put.from);
  what.operation = static_cast<u16>(signal.operation);
  what.signal = device::address(signal.word) - s.heap_base;
  what.value = signal.value;
  return post_for_group(group, s, {MORI_SHMEM_OP_PUT_SIGNAL, put.queue_pair}, what);
}

// The data (0 bytes are fine), then the signal: who sees the signal with acquire sees the data.
template <class Group>
MORI_HOT i32 putmem_signal_nbi(const Group& group, const state& s, const put_request& put,
                               const signal_request& signal) {
  const reached word = reach_signal(s, signal, put.pe);
  if (word.status == by_network) return putmem_signal_by_network(group, s, put, signal);
  reached target{0, word.status};
  if (word.status == MORI_OK && put.bytes != 0)
    target = reach(s, MORI_SHMEM_OP_PUT_SIGNAL, {put.to, put.bytes, put.pe});
  if (target.status == MORI_OK && put.bytes != 0) move(group, target.address, put.from, put.bytes);
  // No lane may skip the meeting, whatever it saw of an abort.
  if constexpr (Group::single) {
    if (target.status == MORI_OK)
      apply_signal<device::order::release>(s, word.address, signal, put.pe);
  } else {
    device::publish(group);
    if (group.rank() == 0 && target.status == MORI_OK)
      apply_signal<device::order::relaxed>(s, word.address, signal, put.pe);
  }
  return target.status;
}

// One element of 4 or 8 bytes, by one lane, in one store; ordered after other puts by fence() alone
// (the host's store is a release all the same, which costs nothing there). Wakes a sleeper too; a
// wake that is missed costs it at most its bounded sleep.
template <class Group, class T>
MORI_HOT i32 p(const Group& group, const state& s, T* to, T value, i32 pe, i32 queue_pair = 0) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  using device::order;
  using device::scope;
  using word = typename device::word_of_size<sizeof(T)>::type;
  const reached target = route(s, MORI_SHMEM_OP_PUT, {to, sizeof(T), pe});
  if (target.status != MORI_OK && target.status != by_network) return target.status;
  if (device::address(to) % sizeof(T) != 0)
    return refuse_argument(s, MORI_SHMEM_OP_PUT, pe, device::address(to), sizeof(T));
  if (target.status == by_network)
    return post_for_group(group, s, {MORI_SHMEM_OP_PUT, queue_pair},
                          inline_command(s, {to, sizeof(T), pe}, &value));
  if (group.rank() == 0) {
    constexpr order O = device::wave::single ? order::release : order::relaxed;
    device::store<scope::system, O>(device::pointer<word>(target.address),
                                    device::bit_cast<word>(value));
    device::ring_doorbell(doorbell_of(peer_sync(s, pe)));
  }
  return MORI_OK;
}

// A value of 1, 2, 4, 8 or 16 bytes; other sizes are a fault.
template <class Group>
MORI_HOT i32 put_size_imm_nbi(const Group& group, const state& s, const put_request& put) {
  const reached target = route(s, MORI_SHMEM_OP_PUT, {put.to, put.bytes, put.pe});
  if (target.status != MORI_OK && target.status != by_network) return target.status;
  if (put.bytes == 0 || put.bytes > 16 || (put.bytes & (put.bytes - 1)) != 0)
    return refuse_argument(s, MORI_SHMEM_OP_PUT, put.pe, put.bytes, 16);
  if (target.status == by_network) return putmem_by_network(group, s, put);
  if (group.rank() == 0) move(device::one_lane{}, target.address, put.from, put.bytes);
  return MORI_OK;
}

}  // namespace mori::device_api
