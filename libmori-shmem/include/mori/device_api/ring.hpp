// ring.hpp - peers that are not mapped: commands in a ring, which the host's proxy
// takes and sends. The protocol is described in mori/shmem_device.h; here is the
// side of those who add commands, first its single steps, then what operations are made of.
//
// One lane adds a command; what the lanes of its group stored before is published first, since
// the proxy may read it at once.
#pragma once

#include <mori/device_api/state.hpp>

namespace mori::device_api {

using ring = mori_shmem_ring_v1;
using command = mori_shmem_command_v1;

inline constexpr u64 largest_inline_bytes = 16;

// --- Single steps. None waits.

MORI_HOT const ring& ring_of(const state& s, i32 queue) {
  return device::pointer<const ring>(s.rings)[static_cast<u32>(queue) % s.ring_count];
}

// posted before tail, and in this order for all: what a lane does not see in posted after its own
// command comes behind that in the ring.
MORI_HOT u64 claim_index(const ring& to, i32 pe) {
  using namespace device;
  fetch_add<scope::system, order::relaxed>(pointer<u64>(to.posted) + pe, u64{1});
  return fetch_add<scope::system, order::acq_rel>(pointer<u64>(to.tail), u64{1});
}

MORI_HOT bool has_room(u64 capacity, u64 index, u64 taken) { return index < taken + capacity; }

MORI_HOT u64* busy_word(const ring& to, u64 index) {
  return device::pointer<u64>(to.busy) + (index & (to.capacity_count - 1));
}

MORI_HOT const mori_shmem_answer_v1* answer_cell(const ring& to, u64 index) {
  return device::pointer<const mori_shmem_answer_v1>(to.answers) +
         (index & (to.capacity_count - 1));
}

// wakes: false only if a wait that can do the proxy's work follows at once.
MORI_HOT void write_command(const ring& to, u64 index, const command& what, bool wakes = true) {
  using namespace device;
  command* slot = pointer<command>(to.commands) + (index & (to.capacity_count - 1));
  slot->pe = what.pe;
  slot->kind = what.kind;
  slot->operation = what.operation;
  slot->remote = what.remote;
  slot->local = what.local;
  slot->bytes = what.bytes;
  slot->signal = what.signal;
  slot->value = what.value;
  slot->compare = what.compare;
  // The proxy may be about to sleep: on the host the full barrier that wake_thread() asks for.
  store_signal<order::release>(&slot->turn, index + 1);
  if (wakes || to.driver == 0) wake_thread(pointer<u32>(to.asleep), to.wake_fd);
}

// --- Waits on words of the proxy.

MORI_HOT device::doorbell bell_of(const ring& of) {
  return {device::pointer<u32>(of.doorbell), device::pointer<u32>(of.doorbell) + 1, of.driver,
          true};
}

enum class seen_word : u32 { taken = 0, done = 1 };

// Waits until enough(counter of the proxy). What was seen last is kept where producers are: most
// calls need no look over the bus. Whoever relies on it also relies on what the proxy published
// before, which came from outside of the GPU: hence system scope.
template <class Enough>
MORI_DEVICE i32 await_counter(const state& s, const ring& of, seen_word which, Enough enough,
                              const device::wait_subject& subject) {
  using namespace device;
  u64* seen = pointer<u64>(of.seen) + static_cast<u32>(which);
  if (enough(load<scope::system, order::acquire>(seen))) return MORI_OK;
  const u64* counter = pointer<const u64>(which == seen_word::taken ? of.taken : of.done);
  const auto result = device::wait_until(counter, enough, limits_of(s), subject, bell_of(of));
  if (!result.met) return ended_status(s);
  // Another lane may have seen more; then the next one looks once too often.
  store<scope::system, order::release>(seen, result.seen);
  return MORI_OK;
}

// What an operation says of itself in a fault.
struct posting {
  i32 operation;  // MORI_SHMEM_OP_*
  i32 queue_pair;
  bool waits = false;  // its end is waited for at once
};

// One lane; its stores are published. On success *out_index is the command's.
MORI_COLD i32 post(const state& s, const posting& how, const command& what, u64& out_index) {
  using namespace device;
  const ring& to = ring_of(s, how.queue_pair);
  const u64 index = claim_index(to, what.pe);
  out_index = index;
  const u64 capacity = to.capacity_count;
  const i32 status =
      await_counter(s, to, seen_word::taken,
                    [capacity, index](u64 taken) { return has_room(capacity, index, taken); },
                    {how.operation, what.pe, index + 1 - capacity});
  if (status != MORI_OK) return status;
  if (what.kind == MORI_SHMEM_COMMAND_ATOMIC && what.signal != 0) {
    const auto freed = device::wait_until(
        busy_word(to, index), [](u64 user) { return user == 0; }, limits_of(s),
        {how.operation, what.pe, 0}, bell_of(to));
    if (!freed.met) return ended_status(s);
    store<scope::system, order::relaxed>(busy_word(to, index), index + 1);
  }
  write_command(to, index, what, !how.waits);
  return MORI_OK;
}

// --- What operations are made of; all lanes of the group call.

// The command of an extent; its other fields are the caller's.
MORI_HOT command command_for(const state& s, u16 kind, const extent& where) {
  command made{};
  made.pe = where.pe;
  made.kind = kind;
  made.remote = device::address(where.symmetric) - s.heap_base;
  made.bytes = where.bytes;
  return made;
}

template <class Group>
MORI_DEVICE i32 post_for_group(const Group& group, const state& s, const posting& how,
                               const command& what) {
  device::publish(group);
  i32 status = MORI_OK;
  u64 index = 0;
  if (group.rank() == 0) status = post(s, how, what, index);
  return group.broadcast(status);
}

// A small put takes its bytes along: the source is free again at once.
MORI_HOT command inline_command(const state& s, const extent& where, const void* from) {
  command made = command_for(s, MORI_SHMEM_COMMAND_INLINE, where);
  const auto* bytes = static_cast<const device::u8*>(from);
  for (u32 i = 0; i < where.bytes; ++i) {
    const u64 byte = u64{bytes[i]} << (i % 8 * 8);
    if (i < 8)
      made.local |= byte;
    else
      made.compare |= byte;
  }
  return made;
}

MORI_HOT command put_command(const state& s, const extent& where, const void* from) {
  if (where.bytes <= largest_inline_bytes) return inline_command(s, where, from);
  command made = command_for(s, MORI_SHMEM_COMMAND_PUT, where);
  made.local = device::address(from);
  return made;
}

// One lane, until all commands that are in the ring now are complete.
MORI_COLD i32 drain_ring(const state& s, const ring& of, i32 pe) {
  using namespace device;
  const u64 tail = load<scope::system, order::acquire>(pointer<const u64>(of.tail));
  return await_counter(s, of, seen_word::done, [tail](u64 done) { return done >= tail; },
                       {MORI_SHMEM_OP_QUIET, pe, tail});
}

// The same for commands to one PE.
MORI_COLD i32 drain_peer(const state& s, const ring& of, i32 pe) {
  using namespace device;
  const u64 posted = load<scope::system, order::acquire>(pointer<const u64>(of.posted) + pe);
  if (posted == 0) return MORI_OK;
  const auto result = device::wait_until(
      pointer<const u64>(of.completed) + pe, [posted](u64 done) { return done >= posted; },
      limits_of(s), {MORI_SHMEM_OP_QUIET, pe, posted}, bell_of(of));
  return result.met ? static_cast<i32>(MORI_OK) : ended_status(s);
}

// pe -1: all PEs; queue -1: all queues. The lanes' own commands are all counted, since they meet.
template <class Group>
MORI_DEVICE i32 drain(const Group& group, const state& s, i32 pe, i32 queue) {
  if (s.ring_count == 0 || (pe >= 0 && !is_networked(s, pe))) return MORI_OK;
  group.sync();
  i32 status = MORI_OK;
  for (u32 i = 0; group.rank() == 0 && i < s.ring_count && status == MORI_OK; ++i) {
    if (queue >= 0 && static_cast<u32>(queue) % s.ring_count != i) continue;
    const ring& of = device::pointer<const ring>(s.rings)[i];
    status = pe < 0 ? drain_ring(s, of, pe) : drain_peer(s, of, pe);
  }
  status = group.broadcast(status);
  group.sync();
  return status;
}

}  // namespace mori::device_api
