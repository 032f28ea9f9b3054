// order.hpp - quiet and fence. quiet: all puts and atomics that this lane issued
// before are complete at their targets. fence: they are ordered before its later
// ones to the same PE. Each lane speaks for itself; a group calls, then meets.
//
// Mapped peers: a system-scope fence does both. On the host it also drains
// streaming stores.
#pragma once

#include <mori/device_api/state.hpp>

namespace mori::device_api {

template <class Group>
MORI_HOT i32 quiet(const Group& group, const state& s) {
  device::fence<device::scope::system, device::order::seq_cst>();
  group.sync();
  return device::is_ended(limits_of(s)) ? ended_status(s) : static_cast<i32>(MORI_OK);
}

template <class Group>
MORI_HOT i32 fence(const Group& group, const state& s) {
  device::fence<device::scope::system, device::order::acq_rel>();
  group.sync();
  return device::is_ended(limits_of(s)) ? ended_status(s) : static_cast<i32>(MORI_OK);
}

// For one PE, or one queue pair of it: the same work for mapped peers.
template <class Group>
MORI_HOT i32 quiet_pe(const Group& group, const state& s, i32 pe) {
  if (static_cast<u32>(pe) >= static_cast<u32>(s.pe_count))
    return refuse_argument(s, MORI_SHMEM_OP_QUIET, pe, static_cast<u64>(static_cast<i64>(pe)),
                           static_cast<u64>(s.pe_count));
  return quiet(group, s);
}

template <class Group>
MORI_HOT i32 fence_pe(const Group& group, const state& s, i32 pe) {
  if (static_cast<u32>(pe) >= static_cast<u32>(s.pe_count))
    return refuse_argument(s, MORI_SHMEM_OP_QUIET, pe, static_cast<u64>(static_cast<i64>(pe)),
                           static_cast<u64>(s.pe_count));
  return fence(group, s);
}

}  // namespace mori::device_api
