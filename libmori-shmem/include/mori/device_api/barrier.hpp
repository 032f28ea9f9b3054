// barrier.hpp - all PEs wait for all PEs, from inside a kernel. Called by one
// group per PE at a time.
//
// Dissemination: in round k a PE signals PE (me + 2^k) mod n and waits for PE
// (me - 2^k) mod n, so ceil(log2 n) rounds tell everybody of everybody, with no
// coordinator. The word that is signalled is the sender's epoch, which only grows:
// a wait is for "at least my epoch", a PE that is one barrier ahead cannot confuse
// a slow one, and nothing is ever reset. Each round has a cache line of its own.
// GPUs have lanes to spare: up to 32 PEs that are all mapped meet in one round, each lane telling
// one peer.
#pragma once

#include <mori/device_api/order.hpp>
#include <mori/device_api/state.hpp>

namespace mori::device_api {

// Kernels and host calls meet on words of their own, so that neither disturbs the other.
struct barrier_words {
  u64 (*rounds)[8];  // in the own mori_shmem_sync_v1
  u64* epoch;
};

// Tells one peer that this PE has come: its word becomes the epoch.
MORI_DEVICE i32 tell_peer(const state& s, u64* word, u64 epoch, i32 pe) {
  const reached there = route(s, MORI_SHMEM_OP_BARRIER, {word, sizeof(u64), pe});
  if (there.status == by_network) {
    command what = command_for(s, MORI_SHMEM_COMMAND_INLINE, {word, 0, pe});
    what.operation = MORI_SHMEM_SIGNAL_SET;
    what.signal = what.remote;
    what.value = epoch;
    u64 index = 0;
    return post(s, {MORI_SHMEM_OP_BARRIER, 0}, what, index);
  }
  if (there.status != MORI_OK) return there.status;
  device::exchange<device::scope::system, device::order::acq_rel>(
      device::pointer<u64>(there.address), epoch);
  device::ring_doorbell(doorbell_of(peer_sync(s, pe)));
  return MORI_OK;
}

// One lane's part; the own and all lanes' earlier puts must be ordered before it.
MORI_DEVICE i32 disseminate(const state& s, const barrier_words& words) {
  using namespace device;
  const u64 count = static_cast<u64>(s.pe_count);
  const u64 me = static_cast<u64>(s.my_pe);
  const u64 epoch = *words.epoch + 1;
  // Written by this lane alone; atomic for those who look on.
  store<scope::system, order::relaxed>(words.epoch, epoch);
  u32 round = 0;
  for (u64 distance = 1; distance < count; distance *= 2, ++round) {
    const i32 to = static_cast<i32>((me + distance) % count);
    const i32 from = static_cast<i32>((me + count - distance) % count);
    const i32 told = tell_peer(s, &words.rounds[round][0], epoch, to);
    if (told != MORI_OK) return told;
    const auto result = device::wait_until(
        &words.rounds[round][0], [epoch](u64 seen) { return seen >= epoch; }, limits_of(s),
        {MORI_SHMEM_OP_BARRIER, from, epoch}, heap_bell_of(s));
    if (!result.met) return ended_status(s);
  }
  return MORI_OK;
}

// GPUs, few PEs: everybody tells everybody, each lane a peer of its own, in one round. The word of
// a sender lies in the line of its number.
inline constexpr i32 one_round_limit = 32;
inline constexpr u32 one_round_word = 1;

// The words of peers rank, rank + size, ... are one lane's; the own PE needs none.
template <class Visit>
MORI_HOT bool each_peer(const state& s, u32 rank, u32 size, Visit visit) {
  for (u32 i = rank + 1; i < static_cast<u32>(s.pe_count); i += size)
    if (!visit(static_cast<i32>((static_cast<u32>(s.my_pe) + i) % static_cast<u32>(s.pe_count))))
      return false;
  return true;
}

template <class Group>
MORI_DEVICE i32 meet_in_one_round(const Group& group, const state& s) {
  using namespace device;
  mori_shmem_sync_v1* own = own_sync(s);
  group.sync();
  bool met = true;
  u64 epoch = 0;
  if (group.rank() + 1 < static_cast<u32>(s.pe_count) || group.rank() == 0) {
    epoch = load<scope::system, order::relaxed>(&own->device_epoch) + 1;
    device::fence<scope::system, order::release>();
    u64* word = &own->device_barrier[s.my_pe][one_round_word];
    met = each_peer(s, group.rank(), group.size(), [&](i32 pe) {
      const reached there = reach(s, MORI_SHMEM_OP_BARRIER, {word, sizeof(u64), pe});
      if (there.status != MORI_OK) return false;
      store<scope::system, order::relaxed>(pointer<u64>(there.address), epoch);
      return true;
    });
    met = met && each_peer(s, group.rank(), group.size(), [&](i32 pe) {
            return device::wait_until(
                       &own->device_barrier[pe][one_round_word],
                       [epoch](u64 seen) { return seen >= epoch; }, limits_of(s),
                       {MORI_SHMEM_OP_BARRIER, pe, epoch}, doorbell_of(own))
                       .met != 0;
          });
  }
  const bool failed = group.any(!met);
  // All lanes have read the epoch.
  if (group.rank() == 0) store<scope::system, order::relaxed>(&own->device_epoch, epoch);
  return failed ? ended_status(s) : static_cast<i32>(MORI_OK);
}

// Puts issued before by lanes of the group are complete at their targets after it.
template <class Group>
MORI_DEVICE i32 barrier_all(const Group& group, const state& s) {
  if constexpr (!device::wave::single) {
    device::lane::drain_stores();
    if (s.all_mapped != 0 && s.pe_count <= one_round_limit) return meet_in_one_round(group, s);
  }
  i32 status = quiet(group, s);
  status = group.broadcast(status);
  if (status != MORI_OK) return status;
  mori_shmem_sync_v1* own = own_sync(s);
  if (group.rank() == 0) status = disseminate(s, {own->device_barrier, &own->device_epoch});
  status = group.broadcast(status);
  return status;
}

}  // namespace mori::device_api
