// combine.hpp - the combine kernel: each source token gathers what its distinct
// destination ranks made of it, from their buffers, and adds it up. One
// instance per element type.
//
//   publish   expert outputs are copied to symmetric memory, unless they are
//             there already; indices are compared with dispatch's by a hash
//   announce  one word per peer: "you may read"; wait for all of theirs
//   gather    the sum, in fp32, over destination ranks in ascending order, starting
//             from the first one's value, rounded once
//   release   one word per peer: "I read no more"
//
// The buffer is written again by the next combine (publish) or by the caller (a
// buffer that was used in place). So: a combine that copied leaves its epoch in
// plan.release_epoch, and the next one waits for the peers' release words
// before it copies; a dispatch in between proves the same (see dispatch.hpp)
// and clears it. A combine that used the caller's rows in place waits at its end.
// Ready words need no second set: a rank announces combine c + 1 after all have
// released c, or after a dispatch that all have entered, hence after all have
// read its word of c. Release words likewise: c + 1 is released after
// all ready words of c + 1 came, and a rank that still waited for releases of c has
// not announced c + 1.
#pragma once

#include "kernels/exchange.hpp"

namespace mori::ep_core {

// Elements that one lane adds at a time: on GPUs 16 bytes, so that neighbouring lanes read
// neighbouring chunks; on the host (waves of one lane) few enough that their sums stay near the
// registers, while the next lines of all rows are fetched.
template <class Element>
inline constexpr u32 tile_elements =
    static_cast<u32>((device::wave::single ? 128 : 16) / sizeof(Element));

// Element vectors of 16 bytes at least: rows are multiples of that.
template <class Element, u32 Count>
MORI_HOT void add_tile(Element* out, const Element* const* rows, u32 row_count, u64 first) {
  float sum[Count];
  const Element* row = rows[0] + first;
  device::prefetch_beyond<sizeof(Element[Count])>(row);
  for (u32 i = 0; i < Count; ++i) sum[i] = device::to_float(row[i]);
  for (u32 r = 1; r < row_count; ++r) {
    row = rows[r] + first;
    device::prefetch_beyond<sizeof(Element[Count])>(row);
    for (u32 i = 0; i < Count; ++i) sum[i] = sum[i] + device::to_float(row[i]);
  }
  for (u32 i = 0; i < Count; ++i) out[first + i] = device::from_float<Element>(sum[i]);
}

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
        first_token_(args.token_count * g.block_index() / g.block_count()),
        last_token_(args.token_count * (g.block_index() + 1) / g.block_count()) {}

  MORI_DEVICE void run() {
    const patience waits(at_);
    if (unreleased_ != 0) {
      if (grid_.block_index() == 0 && !wait_for_releases(waits, unreleased_)) return;
      if (!grid_.sync()) return;
    }
    publish();
    if (!grid_.sync()) return;
    if (grid_.block_index() == 0 && !announce(waits)) return;
    if (!grid_.sync()) return;
    device::fence<scope::system, order::acquire>();
    if (plan_.verdict == MORI_OK) gather();
    if (!grid_.sync()) return;
    if (grid_.block_index() == 0) release(waits);
  }

 private:
  // --- publish ----------------------------------------------------------------------------------

  MORI_DEVICE void publish() const {
    const u64 first = args_.recv_count * grid_.block_index() / grid_.block_count();
    const u64 last = args_.recv_count * (grid_.block_index() + 1) / grid_.block_count();
    const struct {
      u64 to, from, bytes;
    } parts[] = {
        {at_.tokens, args_.input, args_.input == 0 ? 0 : args_.row_bytes},
        {at_.combine_weights, args_.input_weights,
         args_.input_weights == 0 ? 0 : at_.top_k * sizeof(float)},
    };
    for (const auto& part : parts) copy_rows(part.to, part.from, first, last, part.bytes);
    hash_indices();
    device::fence<scope::system, order::release>();
  }

  // Rows are dense on both sides, so a wave's share is one piece.
  MORI_DEVICE void copy_rows(u64 to, u64 from, u64 first, u64 last, u64 bytes) const {
    const device::block block = grid_.this_block();
    const u64 rows = last - first;
    const u64 begin = first + rows * block.wave_index() / block.wave_count();
    const u64 end = first + rows * (block.wave_index() + 1) / block.wave_count();
    device::copy_streaming(grid_.this_wave(), own<u8>(to, begin * bytes),
                           own<const u8>(from, begin * bytes), (end - begin) * bytes);
  }

  MORI_DEVICE void hash_indices() const {
    const device::block block = grid_.this_block();
    const i32* ids = own<const i32>(args_.indices);
    u64 hash = 0;
    const u64 end = last_token_ * at_.top_k;
    for (u64 i = first_token_ * at_.top_k + block.rank(); i < end; i += block.size())
      hash += hash_part(i, ids[i]);
    hash = block.reduce_add(hash);
    if (block.rank() == 0)
      own<block_report>(at_.block_reports, grid_.block_index())->routing_hash = hash;
  }

  // --- announce (block 0) -----------------------------------------------------------------------

  MORI_DEVICE bool announce(const patience& waits) {
    const device::block block = grid_.this_block();
    if (block.rank() == 0) begin_plan();
    for (u32 i = block.rank(); i < at_.rank_count; i += block.size()) {
      const u32 peer = (at_.rank + 1 + i) % at_.rank_count;
      flag_line* flags = at_peer<flag_line>(at_, peer, at_.flags, at_.rank);
      device::store<scope::system, order::release>(&flags->ready,
                                                   tagged(epoch_, args_.fingerprint));
      wake(at_, peer);
    }
    bool have_all = true;
    for (u32 source = block.rank(); have_all && source < at_.rank_count; source += block.size()) {
      const u64 epoch = epoch_;
      have_all = waits.wait_for(&own<const flag_line>(at_.flags, source)->ready,
                                [epoch](u64 seen) { return has_tag(seen, epoch); },
                                {MORI_SHMEM_OP_EP_COMBINE, static_cast<i32>(source), epoch});
    }
    if (!all_succeeded(block, have_all)) return false;
    if (block.rank() == 0) check_agreement(at_, plan_, [this](u32 s) { return ready_word(s); });
    return true;
  }

  MORI_DEVICE u32 ready_word(u32 source) const {
    return untagged(own<const flag_line>(at_.flags, source)->ready);
  }

  MORI_DEVICE void begin_plan() {
    u64 hash = 0;
    for (u32 b = 0; b < grid_.block_count(); ++b)
      hash += own<const block_report>(at_.block_reports, b)->routing_hash;
    plan_.foreign_hash = hash == plan_.routing_hash ? 0 : hash;
    plan_.verdict = MORI_OK;
    plan_.combine_epoch = epoch_;
  }

  // --- gather -----------------------------------------------------------------------------------

  MORI_DEVICE void gather() const {
    const device::block block = grid_.this_block();
    // Also when none has rows: zeros for all tokens then.
    const bool with_weights = (plan_.flows & flows_weights) != 0 || args_.input_weights != 0;
    for (u64 token = first_token_ + block.wave_index(); token < last_token_;
         token += block.wave_count()) {
      const Element* rows[fan_out_limit];
      const float* weights[fan_out_limit];
      u32 count = 0;
      const route* to = own<const route>(at_.routes, token * at_.fan_out);
      for (; count < at_.fan_out && to[count].rank >= 0; ++count) {
        const auto rank = static_cast<u32>(to[count].rank);
        const bool registered = unpack(ready_word(rank)).reads_registered;
        rows[count] = pointer<const Element>(device::address(at_peer<u8>(
            at_, rank, registered ? at_.registered : at_.tokens, to[count].row * args_.row_bytes)));
        weights[count] =
            at_peer<const float>(at_, rank, at_.combine_weights, u64{to[count].row} * at_.top_k);
      }
      const u64 elements = args_.row_bytes / sizeof(Element);
      sum_rows(own<Element>(at_.out, token * elements), rows, count, elements);
      if (with_weights)
        sum_rows(own<float>(at_.out_weights, token * at_.top_k), weights, count, at_.top_k);
    }
  }

  template <class T>
  MORI_DEVICE void sum_rows(T* out, const T* const* rows, u32 count, u64 elements) const {
    const device::wave wave = grid_.this_wave();
    constexpr u32 tile = tile_elements<T>;
    constexpr u32 narrow_tile = 16 / sizeof(T);
    const u64 whole = elements / tile * tile;
    const u64 whole_narrow = elements / narrow_tile * narrow_tile;
    if (count == 0) {
      for (u64 i = wave.rank(); i < elements; i += wave.size())
        out[i] = device::from_float<T>(0.0f);
      return;
    }
    for (u64 first = u64{wave.rank()} * tile; first < whole; first += u64{wave.size()} * tile)
      add_tile<T, tile>(out, rows, count, first);
    for (u64 first = whole + u64{wave.rank()} * narrow_tile; first < whole_narrow;
         first += u64{wave.size()} * narrow_tile)
      add_tile<T, narrow_tile>(out, rows, count, first);
    for (u64 first = whole_narrow + wave.rank(); first < elements; first += wave.size())
      add_tile<T, 1>(out, rows, count, first);
  }

  // --- release (block 0) ------------------------------------------------------------------------

  MORI_DEVICE void release(const patience& waits) {
    const device::block block = grid_.this_block();
    device::fence<scope::system, order::acq_rel>();
    for (u32 i = block.rank(); i < at_.rank_count; i += block.size()) {
      const u32 peer = (at_.rank + 1 + i) % at_.rank_count;
      flag_line* flags = at_peer<flag_line>(at_, peer, at_.flags, at_.rank);
      device::store<scope::system, order::release>(&flags->released, epoch_);
      wake(at_, peer);
    }
    if (block.rank() == 0) plan_.release_epoch = args_.releases_at_end != 0 ? 0 : epoch_;
    const bool done = args_.releases_at_end == 0 || wait_for_releases(waits, epoch_);
    if (done && block.rank() == 0) plan_.finished_combine = epoch_;
  }

  MORI_DEVICE bool wait_for_releases(const patience& waits, u64 epoch) const {
    const device::block block = grid_.this_block();
    bool have_all = true;
    for (u32 source = block.rank(); have_all && source < at_.rank_count; source += block.size())
      have_all = waits.wait_for(&own<const flag_line>(at_.flags, source)->released,
                                [epoch](u64 seen) { return seen == epoch; },
                                {MORI_SHMEM_OP_EP_RELEASE, static_cast<i32>(source), epoch});
    return all_succeeded(block, have_all);
  }

  const grid& grid_;
  const combine_args& args_;
  const places& at_;
  plan& plan_;
  const u64 epoch_;
  const u64 unreleased_;
  const u64 first_token_;
  const u64 last_token_;
};

template <class Element>
MORI_DEVICE void combine(const grid& g, const combine_args& args) {
  combine_kernel<Element>(g, args).run();
}

}  // namespace mori::ep_core
