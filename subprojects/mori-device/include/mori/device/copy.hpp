// copy.hpp - bulk copies by a group, any size and alignment:
//
//   copy(group, to, from, bytes)
//   copy_streaming(group, to, from, bytes)   for data that this processor will not
//                                            read again, such as rows going to a peer
//   copy_to_many(wave, count, target_of, from, bytes)   one source, several targets
//
// No synchronisation is implied. Before a flag tells somebody of the data comes publish(group)
// or, for one lane and copy() only, at least a release store. After copy_streaming() the fence
// in publish() is needed on the host too: it drains the streaming stores, which a release
// store does not.
// The ranges must not overlap. Loops that read without copying have
//
//   prefetch_beyond<Bytes>(from)             a hint, for each step of Bytes through memory
#pragma once

#include <mori/device/group.hpp>

#if defined(MORI_TARGET_HOST)
#include <mori/device/copy_host.hpp>
#else
#include <mori/device/copy_lanes.hpp>
#endif

namespace mori::device {

template <class Group>
MORI_HOT void copy([[maybe_unused]] const Group& group, void* to, const void* from, usz bytes) {
#if defined(MORI_TARGET_HOST)
  bulk::copy(static_cast<u8*>(to), static_cast<const u8*>(from), bytes);
#else
  lanes::copy(group.rank(), group.size(), static_cast<u8*>(to), static_cast<const u8*>(from),
              bytes);
#endif
}

// On GPUs the same as copy(): peer memory is not cached by the copier, so there is nothing to
// bypass.
template <class Group>
MORI_HOT void copy_streaming([[maybe_unused]] const Group& group, void* to, const void* from,
                             usz bytes) {
#if defined(MORI_TARGET_HOST)
  bulk::copy_streaming(static_cast<u8*>(to), static_cast<const u8*>(from), bytes);
#else
  copy(group, to, from, bytes);
#endif
}

// A wave copies one source to several targets and reads it once: target_of(i) is the address of
// target i < count, at most as many as a wave has lanes on any GPU (32). It must not synchronise:
// lanes ask for targets of their own.
template <class TargetOf>
MORI_DEVICE void copy_to_many(const wave& w, u32 count, TargetOf target_of, const void* from,
                              usz bytes) {
#if defined(MORI_TARGET_HOST)
  for (u32 i = 0; i < count; ++i) copy_streaming(w, pointer<void>(target_of(i)), from, bytes);
#else
  const u64 mine = w.rank() < count ? target_of(w.rank()) : 0;
  const u64 skew = mine | address(from) | bytes;
  if (w.ballot(skew % 16 != 0) == 0) {
    lanes::copy_chunks_to_many(w, count, mine, static_cast<const lanes::chunk16*>(from),
                               bytes / 16);
  } else {
    for (u32 i = 0; i < count; ++i) copy(w, pointer<void>(w.broadcast(mine, i)), from, bytes);
  }
#endif
}

// Fetches what this step's [from, from + Bytes) will be followed by. A loop over several sources
// is too irregular for the hardware to do that by itself. No address is wrong. Nothing on GPUs,
// where other waves hide the latency.
template <usz Bytes>
MORI_HOT void prefetch_beyond([[maybe_unused]] const void* from) {
#if defined(MORI_TARGET_HOST)
  for (usz at = 0; at < Bytes; at += bulk::line_bytes)
    __builtin_prefetch(static_cast<const u8*>(from) + bulk::prefetch_bytes + at, 0, 0);
#endif
}

}  // namespace mori::device
