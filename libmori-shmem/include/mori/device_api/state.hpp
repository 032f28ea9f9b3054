// state.hpp - what every device operation asks of the PE's state: has the
// context ended, is the target in the heap, how is the peer reached. A refused
// operation touches no memory and records the context's first fault.
//
// A symmetric address is an address in the own heap; route() turns it into the
// address at which this PE can load and store the peer's copy, or says that the
// peer is reached by commands.
#pragma once

#include <mori/shmem.h>
#include <mori/device/wait.hpp>

namespace mori::device_api {

using device::i32;
using device::i64;
using device::u16;
using device::u32;
using device::u64;
using device::usz;

using state = mori_shmem_device_state_v2;

// State is the struct of any level: libmori-ep speaks level 1.
template <class State>
MORI_HOT device::wait_limits limits_of(const State& s) {
  return {s.abort_word, s.fault, s.wait_budget_ns, s.spin_count, s.peer_left};
}

template <class State>
MORI_HOT mori_shmem_sync_v1* own_sync(const State& s) {
  return device::pointer<mori_shmem_sync_v1>(s.heap_base);
}

// Where the heap of an existing PE is mapped, 0: it is not. PEs at one stride need no look into
// the table, which costs a GPU as much as a quarter of a signal's way.
template <class State>
MORI_HOT u64 peer_base(const State& s, i32 pe) {
  if constexpr (!device::same_type<State, mori_shmem_device_state_v1>)
    if (static_cast<u32>(pe - s.strided_first) < s.strided_count)
      return s.heap_base + static_cast<u64>(static_cast<i64>(pe - s.my_pe)) * s.peer_stride;
  return device::load_constant(device::pointer<const u64>(s.peer_bases) + pe);
}

// Of a peer that reach() has accepted.
template <class State>
MORI_HOT mori_shmem_sync_v1* peer_sync(const State& s, i32 pe) {
  return device::pointer<mori_shmem_sync_v1>(peer_base(s, pe));
}
MORI_HOT device::doorbell doorbell_of(mori_shmem_sync_v1* sync) {
  return {&sync->doorbell, &sync->waiter_count};
}

// For waits for words of the own heap. On the host the waiting thread serves the network if only
// that changes them.
MORI_HOT device::doorbell heap_bell_of(const state& s) {
  device::doorbell bell = doorbell_of(own_sync(s));
  if constexpr (device::wave::single) {
    if (s.ring_count == 0) return bell;
    const u64 driver = device::pointer<const mori_shmem_ring_v1>(s.rings)->driver;
    if (driver == 0 || device::pointer<const mori_shmem_driver_v1>(driver)->hears_all == 0)
      return bell;
    bell.driver = driver;
    bell.sleeps_there = true;
  }
  return bell;
}

// MORI_OK, or why the context has ended: its fault's status, else MORI_E_ABORTED.
MORI_COLD i32 ended_status(const state& s) {
  using device::load;
  using device::order;
  using device::scope;
  if (!device::is_ended(limits_of(s))) return MORI_OK;
  if (s.fault == 0) return MORI_E_ABORTED;
  const auto* fault = device::pointer<const mori_shmem_fault>(s.fault);
  return load<scope::system, order::acquire>(&fault->claimed) == 2 ? fault->status : MORI_E_ABORTED;
}

// An address on a peer, or the status of what forbids it.
struct reached {
  u64 address;
  i32 status;
};

// What an operation wants to touch: bytes at a symmetric address of PE pe.
struct extent {
  const void* symmetric;
  u64 bytes;
  i32 pe;
};

// The slow half of reach(): finds out what was wrong, once more, and records it.
MORI_COLD i32 refuse(const state& s, i32 operation, const extent& what) {
  device::fault_record fault{MORI_E_INVALID, operation, what.pe, 0, 0};
  const u64 offset = device::address(what.symmetric) - s.heap_base;
  if (what.pe < 0 || what.pe >= s.pe_count) {
    fault.awaited = static_cast<u64>(static_cast<i64>(what.pe));
    fault.seen = static_cast<u64>(s.pe_count);
  } else if (offset > s.heap_bytes) {
    fault.awaited = device::address(what.symmetric);
    fault.seen = s.heap_base + s.heap_bytes;
  } else if (what.bytes > s.heap_bytes - offset) {
    fault.awaited = what.bytes;
    fault.seen = s.heap_bytes - offset;
  } else {
    fault.status = MORI_E_UNAVAILABLE;
    fault.awaited = device::address(what.symmetric);
    fault.seen = static_cast<u64>(device::pointer<const i32>(s.transports)[what.pe]);
  }
  device::record_fault(limits_of(s), fault);
  return fault.status;
}

// Records a fault of an argument that is not an extent (an operation code, an alignment).
MORI_COLD i32 refuse_argument(const state& s, i32 operation, i32 pe, u64 argument, u64 limit) {
  device::record_fault(limits_of(s), {MORI_E_INVALID, operation, pe, argument, limit});
  return MORI_E_INVALID;
}

// Whether [symmetric, symmetric + bytes) lies in the own heap; no sum that could wrap.
MORI_HOT bool is_in_heap(const state& s, const void* symmetric, u64 bytes) {
  const u64 offset = device::address(symmetric) - s.heap_base;
  return offset <= s.heap_bytes && bytes <= s.heap_bytes - offset;
}

// The size of count elements; the largest size, which no heap has, instead of an overflow.
template <class T>
MORI_HOT u64 bytes_of(u64 count) {
  return count > ~u64{0} / sizeof(T) ? ~u64{0} : count * sizeof(T);
}

// Whether commands reach this existing PE. See ring.hpp.
MORI_HOT bool is_networked(const state& s, i32 pe) {
  return s.ring_count != 0 &&
         device::pointer<const i32>(s.transports)[pe] > MORI_SHMEM_TRANSPORT_P2P;
}

// In place of a status: the peer is not mapped, but commands reach it.
inline constexpr i32 by_network = -1;

// The checks that every one-sided operation begins with. A base of 0 is a peer that is not mapped.
// Whether the context has ended is looked at on the host alone: on a GPU the look would take as
// long as a store to a peer, so there it is left to waits, quiet, fence and barrier.
MORI_HOT reached route(const state& s, i32 operation, const extent& what) {
  if constexpr (device::wave::single)
    if (device::is_ended(limits_of(s))) return {0, ended_status(s)};
  // One comparison for both ends: a negative pe is a huge unsigned one.
  if (static_cast<u32>(what.pe) >= static_cast<u32>(s.pe_count) ||
      !is_in_heap(s, what.symmetric, what.bytes))
    return {0, refuse(s, operation, what)};
  const u64 base = peer_base(s, what.pe);
  if (base == 0) return {0, is_networked(s, what.pe) ? by_network : refuse(s, operation, what)};
  return {base + (device::address(what.symmetric) - s.heap_base), MORI_OK};
}

// The same for what loads and stores alone can do.
MORI_HOT reached reach(const state& s, i32 operation, const extent& what) {
  const reached found = route(s, operation, what);
  return found.status == by_network ? reached{0, refuse(s, operation, what)} : found;
}

MORI_HOT i32 my_pe(const state& s) { return s.my_pe; }
MORI_HOT i32 n_pes(const state& s) { return s.pe_count; }

// Where this PE can load and store the peer's copy of an own heap address; null if outside the
// heap, no such PE, or not mapped here. Never faults.
template <class T>
MORI_HOT T* ptr(const state& s, T* symmetric, i32 pe) {
  if (static_cast<u32>(pe) >= static_cast<u32>(s.pe_count)) return nullptr;
  const u64 offset = device::address(symmetric) - s.heap_base;
  const u64 base = peer_base(s, pe);
  if (offset >= s.heap_bytes || base == 0) return nullptr;
  return device::pointer<T>(base + offset);
}

// As ptr, for an address of PE from_pe (as that PE's heap is mapped here, or the own one).
template <class T>
MORI_HOT T* ptr_p2p(const state& s, T* address, i32 from_pe, i32 pe) {
  if (static_cast<u32>(from_pe) >= static_cast<u32>(s.pe_count)) return nullptr;
  const u64 from_base = from_pe == s.my_pe ? s.heap_base : peer_base(s, from_pe);
  if (from_base == 0) return nullptr;
  return ptr(s, device::pointer<T>(device::address(address) - from_base + s.heap_base), pe);
}

}  // namespace mori::device_api
