// dispatch.hpp - the dispatch kernel: every token goes once to each distinct
// rank that owns one of its experts, straight into that rank's buffers.
//
//   route     each block takes a contiguous range of tokens, writes down their
//             destinations in ascending rank and counts rows per destination
//   exchange  the last block to come tells every rank this rank's whole row of
//             counts. Now all know the W x W matrix, hence all receive offsets,
//             and all come to the same verdict: go, or nobody writes anything
//   send      rows are copied to where the prefix sums say
//   arrive    the last block tells each peer by a word that its rows are
//             complete, and waits for theirs
//
// So the receive order is (source rank, source token), whatever the launch.
//
// Count words lie in two sets by the parity of the epoch: a rank may be in
// epoch e + 1 while a peer still reads the counts of e (when e ended with a
// verdict, without payload), but never in e + 2, because it cannot finish the
// exchange of e + 1 before that peer has started it. A rank reads the counts of e
// in one block, which then opens the way for all others, so it is done with
// them before any of its later kernels begins.
// Rows of e + 1 may overwrite what peers of combine e read: whoever sends has
// seen all counts of e + 1, and a rank sends those in a kernel that began after its
// combine e had ended, in all blocks. The words need no release for that: loads
// of an earlier kernel are over.
// A payload word of e + 1 comes after the receiver's own counts of e + 1, so
// after the kernel that was waiting for the word of e.
#pragma once

#include "kernels/routing.hpp"

namespace mori::ep_core {

class dispatch_kernel {
 public:
  MORI_DEVICE dispatch_kernel(const grid& g, const dispatch_args& args)
      : grid_(g),
        args_(args),
        at_(args.at),
        plan_(*own<plan>(args.at.plan)),
        epoch_(plan_.dispatch_epoch + 1),
        tokens_(share(args.token_count, g.block_index(), g.block_count())) {}

  MORI_DEVICE void run() {
    const patience waits(at_);
    route_tokens();
    if (!grid_.sync_after([&] { return exchange(waits); })) return;
    if (plan_.verdict != MORI_OK) return;
    finish_routes();
    send_rows();
    publish(block{});
    if (args_.count_local_experts != 0) {
      if (!grid_.sync_after([&] { return arrive(waits); })) return;
      count_experts();
      grid_.finish([&] { end(true); });
    } else {
      grid_.finish([&] { end(arrive(waits)); });
    }
  }

 private:
  MORI_DEVICE u32* block_counts(u32 of_block) const {
    return own<u32>(at_.block_counts, u64{of_block} * at_.rank_count);
  }

  // --- route ------------------------------------------------------------------------------------

  MORI_DEVICE void route_tokens() {
    const block b;
    const i32* ids = own<const i32>(args_.indices);
    router(at_, ids, tokens_).run(block_counts(grid_.block_index()));
    const u64 hash = b.reduce_add(hash_ids(at_, ids, tokens_));
    const u64 bad_slot = find_bad_slot(at_, ids, tokens_);
    if (b.rank() == 0)
      *own<block_report>(at_.block_reports, grid_.block_index()) = {hash, bad_slot};
    if (args_.count_local_experts == 0) return;
    i32* counts = own<i32>(at_.local_expert_count);
    for (u64 i = grid_.lane_index(); i < at_.experts_per_rank; i += grid_.lane_count())
      counts[i] = 0;
  }

  // --- exchange (the last block) ----------------------------------------------------------------

  // Words of rank `source`: its fingerprint, then its rows for each rank.
  MORI_DEVICE u64 count_word_address(u32 source) const {
    const u64 set = (epoch_ & 1) * at_.rank_count;
    return at_.counts + (set + source) * at_.count_row_words * sizeof(u64);
  }
  MORI_DEVICE u32 count_word(u32 source, u32 word) const {
    return untagged(*own<const u64>(count_word_address(source), word));
  }
  MORI_DEVICE u32 rows_between(u32 source, u32 destination) const {
    return count_word(source, 1 + destination);
  }

  MORI_DEVICE bool exchange(const patience& waits) {
    const block b;
    const bool goes_on = !waits.is_over();
    sum_up_blocks();
    // A call that was ended before tells nobody anything: its epoch has not begun.
    if (!all_succeeded(b, goes_on)) return false;
    tell_counts();
    if (b.wave_index() == b.wave_count() - 1) begin_plan();
    if (!all_succeeded(b, wait_for_counts(waits))) return false;
    u64 opinions = place_rows();
    for (u32 source = b.rank(); source < at_.rank_count; source += b.size())
      opinions += opinion::of_word(count_word(source, 0), count_word(0, 0));
    decide(b.reduce_add(opinions));
    return true;
  }

  // Own rows per destination to send_begin; each block's rows begin where those before it end. A
  // wave for each rank, a lane for each block.
  MORI_DEVICE void sum_up_blocks() const {
    const block b;
    const wave w;
    for (u32 rank = b.wave_index(); rank < at_.rank_count; rank += b.wave_count()) {
      u32 total = 0;
      for (u32 first = 0; first < grid_.block_count(); first += w.size()) {
        const u32 of_block = first + w.rank();
        const bool is_block = of_block < grid_.block_count();
        u32* rows = block_counts(of_block) + rank;
        const auto place = w.exclusive_scan(is_block ? *rows : 0u);
        if (is_block) *rows = total + place.before;
        total += place.total;
      }
      if (w.rank() == 0) *own<u32>(at_.send_begin, rank) = total;
    }
  }

  // A lane for each word of each peer.
  MORI_DEVICE void tell_counts() const {
    const block b;
    const u32 words = 1 + at_.rank_count;
    for (u32 i = b.rank(); i < at_.rank_count * words; i += b.size()) {
      const u32 peer = peer_in_turn(at_, i / words), word = i % words;
      const u32 value = word == 0 ? args_.fingerprint : *own<const u32>(at_.send_begin, word - 1);
      device::store<scope::system, order::relaxed>(
          at_peer<u64>(at_, peer, count_word_address(at_.rank), word), tagged(epoch_, value));
    }
    wake_peers(at_);
  }

  // One wave, while the words travel: what blocks have reported.
  MORI_DEVICE void begin_plan() const {
    const wave w;
    u64 hash = 0, bad_slot = no_slot;
    for (u32 first = 0; first < grid_.block_count(); first += w.size()) {
      block_report each{0, no_slot};
      if (first + w.rank() < grid_.block_count())
        each = *own<const block_report>(at_.block_reports, first + w.rank());
      hash += each.routing_hash;
      // Blocks are in the order of their slots: the first one that has any has the first.
      const u64 votes = w.ballot(each.bad_slot != no_slot);
      if (votes != 0 && bad_slot == no_slot) bad_slot = w.shuffle(each.bad_slot, lowest_bit(votes));
    }
    hash = w.reduce_add(hash);
    if (w.rank() != 0) return;
    plan_.routing_hash = hash;
    plan_.bad_slot = bad_slot;
    plan_.bad_id = bad_slot == no_slot ? 0 : *own<const i32>(args_.indices, bad_slot);
    plan_.foreign_hash = 0;
    plan_.verdict = MORI_OK;
    plan_.dispatch_epoch = epoch_;
  }

  MORI_DEVICE bool wait_for_counts(const patience& waits) const {
    const block b;
    const u64 epoch = epoch_;
    const u32 words = 1 + at_.rank_count;
    bool have_all = true;
    for (u32 i = b.rank(); have_all && i < at_.rank_count * words; i += b.size()) {
      const u32 source = i / words;
      have_all = waits.wait_for(own<const u64>(count_word_address(source), i % words),
                                [epoch](u64 seen) { return has_tag(seen, epoch); },
                                {MORI_SHMEM_OP_EP_COUNT, static_cast<i32>(source), epoch});
    }
    return have_all;
  }

  struct column {
    u64 before, total;  // rows from ranks below this one; from all
  };
  // A wave sums the rows for one rank.
  MORI_DEVICE column rows_for(u32 rank) const {
    const wave w;
    column sum{0, 0};
    for (u32 source = w.rank(); source < at_.rank_count; source += w.size()) {
      const u32 rows = rows_between(source, rank);
      sum.total += rows;
      if (source < at_.rank) sum.before += rows;
    }
    return {w.reduce_add(sum.before), w.reduce_add(sum.total)};
  }

  // Where own rows begin at each destination, and each source's rows here. Returns this lane's
  // count of ranks that would receive too much.
  MORI_DEVICE u64 place_rows() const {
    const block b;
    const wave w;
    u64 troubles = 0;
    for (u32 rank = b.wave_index(); rank < at_.rank_count; rank += b.wave_count()) {
      const column rows = rows_for(rank);
      if (w.rank() != 0) continue;
      *own<u32>(at_.send_begin, rank) = static_cast<u32>(rows.before);
      if (rows.total > at_.recv_capacity) troubles += opinion::trouble;
    }
    if (b.wave_index() != 0) return troubles;
    u32 begin = 0;
    for (u32 first = 0; first < at_.rank_count; first += w.size()) {
      const u32 source = first + w.rank();
      const bool is_source = source < at_.rank_count;
      const auto place = w.exclusive_scan(is_source ? rows_between(source, at_.rank) : 0u);
      if (is_source) *own<u32>(at_.source_begin, source) = begin + place.before;
      begin += place.total;
    }
    if (w.rank() == 0) *own<u32>(at_.source_begin, at_.rank_count) = begin;
    return troubles;
  }

  // The same verdict on every rank: it depends on the matrix alone.
  MORI_DEVICE void decide(u64 opinions) {
    const block b;
    if (b.wave_index() != 0) return;
    if (b.rank() == 0) {
      // Every rank has entered this dispatch, so none reads from an earlier combine.
      plan_.release_epoch = 0;
      plan_.flows = opinion::flows(opinions);
      plan_.recv_count = 0;
    }
    if (opinion::is_mixed(opinions)) find_fault();
    if (b.rank() != 0) return;
    if (plan_.verdict == MORI_OK)
      plan_.recv_count = static_cast<i32>(*own<const u32>(at_.source_begin, at_.rank_count));
    plan_.dispatch_verdict = plan_.verdict;
    if (plan_.verdict != MORI_OK) report_mishap(at_, mishap_of_dispatch, plan_);
  }

  // One wave: a disagreement, else the first rank that would receive too much.
  MORI_DEVICE void find_fault() {
    const wave w;
    u32 agreed = 0;
    if (w.rank() == 0)
      agreed = check_agreement(at_, plan_, [this](u32 source) { return count_word(source, 0); });
    if (w.broadcast(agreed) == 0) return;
    for (u32 rank = 0; rank < at_.rank_count; ++rank) {
      const u64 rows = rows_for(rank).total;
      if (rows <= at_.recv_capacity) continue;
      if (w.rank() != 0) return;
      plan_.verdict = MORI_E_OVERFLOW;
      plan_.verdict_rank = static_cast<i32>(rank);
      plan_.verdict_word = rows;
      plan_.verdict_limit = at_.recv_capacity;
      return;
    }
  }

  // --- send, arrive -----------------------------------------------------------------------------

  // From rows within the block to rows at the destination, for the copies here and for combine. A
  // lane for each route; behind a token's last one lie routes of earlier calls, of no meaning.
  MORI_DEVICE void finish_routes() const {
    const block b;
    const u32* begin_of_block = block_counts(grid_.block_index());
    route* to = routes_of(at_, tokens_.first);
    for (u64 i = b.rank(); i < u64{tokens_.count()} * at_.fan_out; i += b.size()) {
      const route r = to[i];
      if (r.rank < 0) continue;
      to[i].row = *own<const u32>(at_.send_begin, static_cast<u32>(r.rank)) +
                  begin_of_block[r.rank] + r.row;
    }
    b.sync();
  }

  // Where one destination's copy of a token goes: addresses there are own ones plus `shift`.
  struct target {
    u64 shift;
    u64 row;
  };

  MORI_DEVICE void send_rows() const {
    const wave_items items(tokens_, args_.row_bytes);
    for (u32 item = items.begin(); item < items.end(); item += items.step()) {
      const u32 token = items.token(item);
      by_lane<target> targets;
      const u32 count = for_destinations(at_, token, targets, [this](const route& r) {
        return target{displacement(at_, static_cast<u32>(r.rank)), r.row};
      });
      if (items.part(item) == 0) send_words(token, count, targets);
      send_bytes(token, count, targets, items.bytes(item, args_.row_bytes), items.part(item) == 0);
    }
  }

  // Ids, weights and where the row comes from: lane k has the k-th.
  MORI_DEVICE void send_words(u32 token, u32 count, const by_lane<target>& targets) const {
    const wave w;
    const u64 from = u64{token} * at_.top_k;
    for (u32 i = 0; i < count; ++i) {
      const target to = targets.of(i);
      const u64 first = to.row * at_.top_k;
      for (u32 k = w.rank(); k < at_.top_k; k += w.size()) {
        own<i32>(at_.indices + to.shift, first)[k] = own<const i32>(args_.indices, from)[k];
        if (args_.weights != 0)
          own<float>(at_.weights + to.shift, first)[k] = own<const float>(args_.weights, from)[k];
      }
      if (w.rank() == 0) *own<i32>(at_.source_tokens + to.shift, to.row) = static_cast<i32>(token);
    }
  }

  // The row, or a part of it, and the row of scales: one call of the copy, which is large once
  // inlined on GPUs.
  MORI_DEVICE void send_bytes(u32 token, u32 count, by_lane<target>& targets,
                              const span_of<u32>& part, bool with_scales) const {
    const wave w;
    u64 region = at_.tokens, from = args_.input, row_bytes = args_.row_bytes;
    span_of<u32> bytes = part;
    MORI_NO_UNROLL
    for (;;) {
      device::copy_to_many(
          w, count,
          [&](u32 i) {
            const target& to = targets.mine(i);
            return region + to.shift + to.row * row_bytes + bytes.first;
          },
          own<const u8>(from, token * row_bytes + bytes.first), bytes.count());
      if (!with_scales || args_.scales == 0 || region == at_.scales) return;
      region = at_.scales;
      from = args_.scales;
      row_bytes = args_.scale_row_bytes;
      bytes = {0, static_cast<u32>(row_bytes)};
    }
  }

  MORI_DEVICE bool arrive(const patience& waits) const {
    const block b;
    const bool goes_on = !waits.is_over();
    const u64 epoch = epoch_;
    tell_peers(at_, b, &flag_line::payload, epoch);
    const bool have_all = wait_for_peers(at_, b, waits, &flag_line::payload,
                                         [epoch](u64 seen) { return seen == epoch; },
                                         {MORI_SHMEM_OP_EP_PAYLOAD, -1, epoch});
    return all_succeeded(b, goes_on && have_all);
  }

  // Last of all: a call that was ended before this is no success.
  MORI_DEVICE void end(bool arrived) {
    if (!arrived || block{}.rank() != 0) return;
    plan_.finished_dispatch = epoch_;
    if (plan_.bad_slot != no_slot) report_mishap(at_, mishap_of_dispatch, plan_);
  }

  // (row, slot) pairs of own experts; integer sums need no order.
  MORI_DEVICE void count_experts() const {
    const i32* ids = own<const i32>(at_.indices);
    const u64 id_count = static_cast<u64>(plan_.recv_count) * at_.top_k;
    const u64 first = u64{at_.rank} * at_.experts_per_rank;
    for (u64 i = grid_.lane_index(); i < id_count; i += grid_.lane_count()) {
      const i64 id = ids[i];
      if (id < static_cast<i64>(first) || id >= static_cast<i64>(first + at_.experts_per_rank))
        continue;
      u32* count = own<u32>(at_.local_expert_count, static_cast<u64>(id) - first);
      device::fetch_add<scope::device, order::relaxed>(count, 1u);
    }
  }

  const grid& grid_;
  const dispatch_args& args_;
  const places& at_;
  plan& plan_;
  const u64 epoch_;
  const span_of<u32> tokens_;
};

MORI_DEVICE void dispatch(const grid& g, const dispatch_args& args) {
  dispatch_kernel(g, args).run();
}

}  // namespace mori::ep_core
