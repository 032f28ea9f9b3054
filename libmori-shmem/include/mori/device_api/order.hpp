// order.hpp - quiet and fence. quiet: all puts and atomics that this lane issued
// before are complete at their targets. fence: they are ordered before its later
// ones to the same PE. Each lane speaks for itself; a group calls, then meets.
//
// Mapped peers: a system-scope fence does both. On the host it also drains
// streaming stores. Peers behind a network: quiet waits until the commands in the rings
// are complete. One ring keeps the order of commands by itself; with several, of which
// later operations may use any, fence waits too.
#pragma once

#include <mori/device_api/ring.hpp>

namespace mori::device_api {

// pe -1: all PEs; queue_pair -1: all queues.
template <device::order O, class Group>
MORI_HOT i32 complete(const Group& group, const state& s, i32 pe, i32 queue_pair) {
  const i32 status = drain(group, s, pe, queue_pair);
  device::fence<device::scope::system, O>();
  group.sync();
  if (status != MORI_OK) return status;
  return device::is_ended(limits_of(s)) ? ended_status(s) : static_cast<i32>(MORI_OK);
}

template <class Group>
MORI_HOT i32 quiet(const Group& group, const state& s) {
  return complete<device::order::seq_cst>(group, s, -1, -1);
}

template <class Group>
MORI_HOT i32 order_commands(const Group& group, const state& s, i32 pe) {
  if (s.ring_count > 1) return complete<device::order::acq_rel>(group, s, pe, -1);
  device::fence<device::scope::system, device::order::acq_rel>();
  group.sync();
  return device::is_ended(limits_of(s)) ? ended_status(s) : static_cast<i32>(MORI_OK);
}

template <class Group>
MORI_HOT i32 fence(const Group& group, const state& s) {
  return order_commands(group, s, -1);
}

MORI_COLD i32 refuse_pe(const state& s, i32 pe) {
  return refuse_argument(s, MORI_SHMEM_OP_QUIET, pe, static_cast<u64>(static_cast<i64>(pe)),
                         static_cast<u64>(s.pe_count));
}

// For one PE, or one queue pair of it.
template <class Group>
MORI_HOT i32 quiet_pe(const Group& group, const state& s, i32 pe, i32 queue_pair = -1) {
  if (static_cast<u32>(pe) >= static_cast<u32>(s.pe_count)) return refuse_pe(s, pe);
  return complete<device::order::seq_cst>(group, s, pe, queue_pair);
}

template <class Group>
MORI_HOT i32 fence_pe(const Group& group, const state& s, i32 pe) {
  if (static_cast<u32>(pe) >= static_cast<u32>(s.pe_count)) return refuse_pe(s, pe);
  return order_commands(group, s, pe);
}

}  // namespace mori::device_api
