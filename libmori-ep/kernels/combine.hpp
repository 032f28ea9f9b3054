// combine.hpp - the combine kernel: each source token gathers what its distinct
// destination ranks made of it, from their buffers, and adds it up. One
// instance per element type.
//
//   publish   expert outputs are copied to symmetric memory, unless they are
//             there already; indices are compared with dispatch's by a hash
//   announce  the last block to come tells each peer by a word "you may read",
//             and waits for all of theirs
//   gather    the sum over destination ranks in ascending order; see gather.hpp
//   release   the last block tells each peer by a word "I read no more"
//
// The buffer is written again by the next combine (publish) or by the caller (a
// buffer that was used in place). So: a combine that copied leaves its epoch in
// plan.release_epoch, and the next one waits for the peers' release words before it
// copies; a dispatch in between proves the same (see dispatch.hpp) and clears it. A
// combine that used the caller's rows in place waits at its end.
// Ready words need no second set: a rank announces combine c + 1 after it has seen
// that all have released c, or after a dispatch that all have entered, hence after
// all have read its word of c. Release words likewise: c + 1 is released after all
// ready words of c + 1 came, and a rank that still waited for releases of c has not
// announced c + 1.
//
// After a dispatch that failed by a verdict there are no rows; the verdict is the
// same on every rank, so all do nothing, and epochs stay in step.
#pragma once

#include "kernels/gather.hpp"

namespace mori::ep_core {

template <class Element>
class combine_kernel {
 public:
  MORI_DEVICE combine_kernel(const grid& g, const combine_args& args)
      : grid_(g),
        args_(args),
        at_(args.at),
        plan_(*own<plan>(args.at.plan)),
        epoch_(plan_.combine_epoch + 1),
        unreleased_(plan_.release_epoch),
        tokens_(share(args.token_count, g.block_index(), g.block_count())) {}

  MORI_DEVICE void run() {
    if (plan_.dispatch_verdict != MORI_OK) return;
    const patience waits(at_);
    // One block looks, so that a rank that is ahead does not poll with all of them.
    if (unreleased_ != 0 &&
        !grid_.sync_after([&] { return wait_for_releases(waits, unreleased_); }))
      return;
    publish_rows();
    const u64 hash = block{}.reduce_add(hash_ids(at_, own<const i32>(args_.indices), tokens_));
    if (block{}.rank() == 0)
      own<block_report>(at_.block_reports, grid_.block_index())->routing_hash = hash;
    publish(block{});
    if (!grid_.sync_after([&] { return announce(waits); })) return;
    if (plan_.verdict == MORI_OK) gather();
    grid_.finish([&] { release(waits); });
  }

 private:
  MORI_HOT u64 received_rows() const { return static_cast<u64>(plan_.recv_count); }

  // --- publish ----------------------------------------------------------------------------------

  // Rows are dense on both sides: each wave takes a piece of the whole, in lines of 128 bytes.
  MORI_DEVICE void publish_rows() const {
    // A caller that says it has fewer rows than were received is told so; nothing is read beyond.
    const u64 rows = device::min(received_rows(), args_.input_row_count);
    u64 from = args_.input, to = at_.tokens, bytes = rows * args_.row_bytes;
    MORI_NO_UNROLL
    for (;;) {
      if (from != 0) {
        const auto mine = share_of_bytes(bytes, grid_.wave_index(), grid_.wave_count());
        device::copy_streaming(wave{}, own<u8>(to, mine.first), own<const u8>(from, mine.first),
                               mine.count());
      }
      if (to == at_.combine_weights) return;
      from = args_.input_weights;
      to = at_.combine_weights;
      bytes = rows * at_.top_k * sizeof(float);
    }
  }

  // --- announce (the last block) ----------------------------------------------------------------

  MORI_DEVICE bool announce(const patience& waits) {
    const block b;
    const bool goes_on = !waits.is_over(), keeps_plan = b.wave_index() == b.wave_count() - 1;
    const u64 hash = keeps_plan ? hash_of_blocks() : 0;
    // A call that was ended before tells nobody anything: its epoch has not begun.
    if (!all_succeeded(b, goes_on)) return false;
    const u32 word = received_rows() == 0 ? without_rows(args_.fingerprint) : args_.fingerprint;
    tell_peers(at_, b, &flag_line::ready, tagged(epoch_, word));
    if (keeps_plan && wave{}.rank() == 0) begin_plan(hash);
    const u64 epoch = epoch_;
    const bool have_all = wait_for_peers(at_, b, waits, &flag_line::ready,
                                         [epoch](u64 seen) { return has_tag(seen, epoch); },
                                         {MORI_SHMEM_OP_EP_COMBINE, -1, epoch});
    if (!all_succeeded(b, have_all)) return false;
    u64 opinions = 0;
    for (u32 source = b.rank(); source < at_.rank_count; source += b.size())
      opinions += opinion::of_word(ready_word(source), ready_word(0));
    opinions = b.reduce_add(opinions);
    if (b.rank() != 0) return true;
    plan_.flows = opinion::flows(opinions);
    if (opinion::is_mixed(opinions))
      check_agreement(at_, plan_, [this](u32 source) { return ready_word(source); });
    return true;
  }

  MORI_DEVICE u32 ready_word(u32 source) const {
    return untagged(own<const flag_line>(at_.flags, source)->ready);
  }

  // One wave.
  MORI_DEVICE u64 hash_of_blocks() const {
    const wave w;
    u64 hash = 0;
    for (u32 of_block = w.rank(); of_block < grid_.block_count(); of_block += w.size())
      hash += own<const block_report>(at_.block_reports, of_block)->routing_hash;
    return w.reduce_add(hash);
  }

  // One lane.
  MORI_DEVICE void begin_plan(u64 hash) {
    plan_.foreign_hash = hash == plan_.routing_hash ? 0 : hash;
    const bool too_few = args_.needs_rows != 0 && args_.input_row_count < received_rows();
    plan_.given_rows = too_few ? args_.input_row_count : no_slot;
    plan_.verdict = MORI_OK;
    plan_.combine_epoch = epoch_;
  }

  // --- gather -----------------------------------------------------------------------------------

  MORI_DEVICE void gather() const {
    // Also when none has rows: zeros for all tokens then.
    const bool with_weights = (plan_.flows & flows_weights) != 0 || args_.input_weights != 0;
    const wave_items items(tokens_, args_.row_bytes);
    for (u32 item = items.begin(); item < items.end(); item += items.step()) {
      const u32 token = items.token(item);
      by_lane<u64> rows;
      const u32 count = for_destinations(at_, token, rows, [this](const route& r) {
        const auto rank = static_cast<u32>(r.rank);
        const bool registered = unpack(ready_word(rank)).reads_registered;
        return displacement(at_, rank) + (registered ? at_.registered : at_.tokens) +
               r.row * args_.row_bytes;
      });
      const auto part = items.bytes(item, args_.row_bytes);
      constexpr u32 width = sizeof(Element);
      sum_rows<Element, true>(at_.out + token * args_.row_bytes, rows, count,
                              {part.first / width, part.last / width});
      if (with_weights && items.part(item) == 0) gather_weights(token);
    }
  }

  MORI_DEVICE void gather_weights(u32 token) const {
    const u64 row_bytes = at_.top_k * sizeof(float);
    by_lane<u64> rows;
    const u32 count = for_destinations(at_, token, rows, [&](const route& r) {
      return displacement(at_, static_cast<u32>(r.rank)) + at_.combine_weights + r.row * row_bytes;
    });
    sum_rows<float, false>(at_.out_weights + token * row_bytes, rows, count, {0, at_.top_k});
  }

  // --- release (the last block) -----------------------------------------------------------------

  MORI_DEVICE void release(const patience& waits) {
    const block b;
    const bool goes_on = !waits.is_over();
    tell_peers(at_, b, &flag_line::released, epoch_);
    if (b.rank() == 0) plan_.release_epoch = args_.releases_at_end != 0 ? 0 : epoch_;
    const bool done = args_.releases_at_end == 0 || wait_for_releases(waits, epoch_);
    // Last of all: a call that was ended before this is no success.
    if (b.rank() != 0 || !done || !goes_on) return;
    plan_.finished_combine = epoch_;
    if (plan_.verdict != MORI_OK || plan_.foreign_hash != 0 || plan_.given_rows != no_slot)
      report_mishap(at_, mishap_of_combine, plan_);
  }

  MORI_DEVICE bool wait_for_releases(const patience& waits, u64 epoch) const {
    const block b;
    return all_succeeded(b, wait_for_peers(at_, b, waits, &flag_line::released,
                                           [epoch](u64 seen) { return seen == epoch; },
                                           {MORI_SHMEM_OP_EP_RELEASE, -1, epoch}));
  }

  const grid& grid_;
  const combine_args& args_;
  const places& at_;
  plan& plan_;
  const u64 epoch_;
  const u64 unreleased_;
  const span_of<u32> tokens_;
};

template <class Element>
MORI_DEVICE void combine(const grid& g, const combine_args& args) {
  combine_kernel<Element>(g, args).run();
}

}  // namespace mori::ep_core
