// transfer.hpp - one transfer as its link sees it: what it moves, how far it is,
// and the cutting of its pieces into slices. The engine derives its own from it
// and keeps it alive until the link says that it is done with it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "memory/region.hpp"
#include "wire/message.hpp"

namespace mori::io_core::protocol {

struct transfer;

// Transfers of one session and priority, in the order of their submission. The
// links of a scheduler are in schedule.hpp.
struct flow {
  transfer* first = nullptr;
  transfer* last = nullptr;
  flow* next_active = nullptr;
  bool is_active = false;
  int64_t credit_bytes = 0;
};

// Where a transfer is cut next.
struct cut {
  uint64_t piece = 0;
  uint64_t offset = 0;  // in that piece
};

enum class phase : uint8_t {
  idle,       // not with a link
  queued,     // waits for its turn, or for the link
  sending,    // some slices are out, some are not
  sent,       // all slices are out
  notifying,  // the caller has its outcome; the target is still to be told
};

struct transfer {
  // --- What was asked; does not change.
  bool is_read = false;
  bool notifies = false;
  bool moved_elsewhere = false;  // by a backend: only the notification is left to do. A write
                                 // ends with it, a read has ended already
  uint8_t priority = 0;          // rank of schedule.hpp
  uint32_t remote_region = 0;
  wire::capability capability{};
  std::span<const memory::piece> pieces;  // sorted and merged, none empty
  uint64_t total_bytes = 0;
  uint64_t uid = 0;
  std::span<const std::byte> metadata;
  const memory::region* local = nullptr;
  uint64_t deadline_ns = UINT64_MAX;
  flow* of = nullptr;

  // --- Its link's.
  transfer* next = nullptr;         // in its flow
  transfer* link_before = nullptr;  // among all of its link
  transfer* link_after = nullptr;
  uint64_t sequence = 0;  // 0: has none yet
  phase at = phase::idle;
  bool cancelling = false;                       // the target was, or is to be, asked to stop
  mori_status cancel_status = MORI_E_CANCELLED;  // what it ends with if the target does
  uint64_t cancel_sent_ns = 0;
  uint32_t pins = 0;  // output that refers to its memory
  uint32_t retry_count = 0;
  uint64_t chunk_bytes = 0;  // of its slices; set with slice_count
  cut position;
  uint32_t slice_count = 0;  // 0: not counted yet
  uint32_t slices_sent = 0;
  uint32_t slices_done = 0;  // reads
  bool settled = false;      // its outcome is known, but output still refers to its memory
  mori_status outcome = MORI_OK;
  std::string failure_text;  // from the target, ahead of the outcome
};

// As if no link had ever seen it.
inline void forget_link(transfer& what) {
  what.next = what.link_before = what.link_after = nullptr;
  what.sequence = 0;
  what.at = phase::idle;
  what.cancelling = what.settled = false;
  what.cancel_sent_ns = 0;
  what.position = {};
  what.slice_count = what.slices_sent = what.slices_done = 0;
  what.failure_text.clear();
}

// Adds up to chunk_bytes and max_segments of the transfer from `from` on; calls
// each(local address, remote offset, bytes) and returns where the next slice begins.
template <class Each>
cut next_slice(const transfer& of, cut from, uint64_t chunk_bytes, Each&& each) {
  uint64_t left = chunk_bytes;
  for (size_t segments = 0; from.piece < of.pieces.size() && left > 0; ++segments) {
    if (segments == wire::max_segments) break;
    const memory::piece& what = of.pieces[from.piece];
    const uint64_t bytes = left < what.bytes - from.offset ? left : what.bytes - from.offset;
    each(of.local->begin + what.local_offset + from.offset, what.remote_offset + from.offset,
         static_cast<uint32_t>(bytes));
    left -= bytes;
    from.offset += bytes;
    if (from.offset == what.bytes) from = {from.piece + 1, 0};
  }
  return from;
}

// At least 1: a transfer of no bytes is one empty slice.
inline uint64_t count_slices(const transfer& of, uint64_t chunk_bytes) {
  if (of.total_bytes <= chunk_bytes && of.pieces.size() <= wire::max_segments) return 1;
  uint64_t count = 0;
  for (cut at; at.piece < of.pieces.size(); ++count)
    at = next_slice(of, at, chunk_bytes, [](std::byte*, uint64_t, uint32_t) {});
  return count;
}

}  // namespace mori::io_core::protocol
