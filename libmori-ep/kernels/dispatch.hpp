// dispatch.hpp - the dispatch kernel: every token goes once to each distinct
// rank that owns one of its experts, straight into that rank's buffers.
//
//   route     each block takes a contiguous range of tokens, writes down their
//             destinations in ascending rank and counts rows per destination
//   exchange  every rank tells every rank its whole row of counts. Now all know
//             the W x W matrix, hence all receive offsets, and all come to the
//             same verdict: go, or nobody writes anything
//   send      rows are copied to where the prefix sums say
//   arrive    one word per peer says that its rows are complete
//
// So the receive order is (source rank, source token), whatever the launch.
//
// Count words lie in two sets by the parity of the epoch: a rank may be in
// epoch e + 1 while a peer still reads the counts of e (when e ended with a
// verdict, without payload), but never in e + 2, because it cannot finish the
// exchange of e + 1 before that peer has started it.
// Rows of e + 1 may overwrite what peers of combine e read: whoever sends has
// seen all counts of e + 1, so every rank has left combine e.
// A payload word of e + 1 comes after the receiver's own counts of e + 1, so
// after it was done with the word of e.
#pragma once

#include "kernels/exchange.hpp"

namespace mori::ep_core {

class dispatch_kernel {
 public:
  MORI_DEVICE dispatch_kernel(const grid& g, const dispatch_args& args)
      : grid_(g),
        args_(args),
        at_(args.at),
        plan_(*own<plan>(args.at.plan)),
        epoch_(plan_.dispatch_epoch + 1),
        first_token_(args.token_count * g.block_index() / g.block_count()),
        last_token_(args.token_count * (g.block_index() + 1) / g.block_count()) {}

  MORI_DEVICE void run() {
    const patience waits(at_);
    route_tokens();
    clear_expert_counts();
    if (!grid_.sync()) return;
    if (grid_.block_index() == 0 && !exchange(waits)) return;
    if (!grid_.sync()) return;
    if (plan_.verdict != MORI_OK) return;
    send_rows();
    device::fence<scope::system, order::release>();
    if (!grid_.sync()) return;
    if (grid_.block_index() == 0 && !arrive(waits)) return;
    if (args_.count_local_experts != 0) {
      if (!grid_.sync()) return;
      device::fence<scope::system, order::acquire>();
      count_experts();
      if (!grid_.sync()) return;
    }
    // Last of all: a call that was ended before this is no success.
    if (grid_.block_index() == 0 && grid_.this_block().rank() == 0)
      plan_.finished_dispatch = epoch_;
  }

 private:
  MORI_DEVICE route* routes_of(u64 token) const {
    return own<route>(at_.routes, token * at_.fan_out);
  }
  MORI_DEVICE u32* block_counts(u64 block) const {
    return own<u32>(at_.block_counts, block * at_.rank_count);
  }

  // --- route ------------------------------------------------------------------------------------

  MORI_DEVICE void route_tokens() {
    const device::block block = grid_.this_block();
    u32* counts = block_counts(grid_.block_index());
    for (u32 rank = block.rank(); rank < at_.rank_count; rank += block.size()) counts[rank] = 0;
    block.sync();
    u64 hash = 0;
    u64 bad_slot = no_slot;
    for (u64 first = first_token_; first < last_token_; first += block.size()) {
      const u64 token = first + block.rank();
      const bool is_mine = token < last_token_;
      if (is_mine) find_destinations(token, hash, bad_slot);
      number_rows(is_mine ? routes_of(token) : nullptr, counts);
    }
    report(hash, bad_slot);
  }

  // Distinct destinations, by insertion: top-k is small.
  MORI_DEVICE void find_destinations(u64 token, u64& hash, u64& bad_slot) {
    const i32* ids = own<const i32>(args_.indices, token * at_.top_k);
    route* to = routes_of(token);
    u32 count = 0;
    for (u32 slot = 0; slot < at_.top_k; ++slot) {
      const u64 index = token * at_.top_k + slot;
      hash += hash_part(index, ids[slot]);
      if (ids[slot] < 0) continue;
      const u32 rank = static_cast<u32>(ids[slot]) / at_.experts_per_rank;
      if (rank >= at_.rank_count) {
        if (at_.drop_invalid_experts == 0) bad_slot = device::min(bad_slot, index);
        continue;
      }
      u32 place = count;
      while (place > 0 && to[place - 1].rank > static_cast<i32>(rank)) --place;
      if (place > 0 && to[place - 1].rank == static_cast<i32>(rank)) continue;
      for (u32 i = count; i > place; --i) to[i].rank = to[i - 1].rank;
      to[place].rank = static_cast<i32>(rank);
      ++count;
    }
    if (count < at_.fan_out) to[count].rank = -1;
  }

  // Rows within the block in token order: one token per lane, one scan per destination.
  MORI_DEVICE void number_rows(route* to, u32* counts) {
    const device::block block = grid_.this_block();
    u32 next = 0;
    for (u32 rank = 0; rank < at_.rank_count; ++rank) {
      const bool goes =
          to != nullptr && next < at_.fan_out && to[next].rank == static_cast<i32>(rank);
      const auto place = block.exclusive_scan(goes ? 1u : 0u);
      const u32 before = counts[rank];
      if (goes) to[next++].row = before + place.before;
      block.sync();
      if (block.rank() == 0) counts[rank] = before + place.total;
      block.sync();
    }
  }

  MORI_DEVICE void report(u64 hash, u64 bad_slot) {
    const device::block block = grid_.this_block();
    const u64 hash_of_block = block.reduce_add(hash);
    // The smallest over the lanes: each lane in turn, rarely more than none.
    u64 first_bad = no_slot;
    if (block.reduce_add(bad_slot != no_slot ? 1u : 0u) != 0)
      for (u32 lane = 0; lane < block.size(); ++lane)
        first_bad = device::min(first_bad, block.broadcast(bad_slot, lane));
    if (block.rank() == 0)
      *own<block_report>(at_.block_reports, grid_.block_index()) = {hash_of_block, first_bad};
  }

  MORI_DEVICE void clear_expert_counts() {
    if (args_.count_local_experts == 0) return;
    i32* counts = own<i32>(at_.local_expert_count);
    for (u64 i = grid_.lane_index(); i < at_.experts_per_rank; i += grid_.lane_count())
      counts[i] = 0;
  }

  // --- exchange (block 0) -----------------------------------------------------------------------

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
    const device::block block = grid_.this_block();
    sum_up_blocks();
    block.sync();
    tell_counts();
    bool have_all = true;
    const u64 word_count = u64{at_.rank_count} * (1 + at_.rank_count);
    for (u64 i = block.rank(); have_all && i < word_count; i += block.size())
      have_all = wait_for_count(waits, static_cast<u32>(i / (1 + at_.rank_count)),
                                i % (1 + at_.rank_count));
    if (!all_succeeded(block, have_all)) return false;
    place_rows();
    block.sync();
    if (block.rank() == 0) decide();
    return true;
  }

  // Own rows per destination to send_begin; each block's rows begin where those before it end.
  MORI_DEVICE void sum_up_blocks() {
    const device::block block = grid_.this_block();
    for (u32 rank = block.rank(); rank < at_.rank_count; rank += block.size()) {
      u32 total = 0;
      for (u32 b = 0; b < grid_.block_count(); ++b) {
        u32& count = block_counts(b)[rank];
        const u32 own_rows = count;
        count = total;
        total += own_rows;
      }
      *own<u32>(at_.send_begin, rank) = total;
    }
    if (block.rank() != 0) return;
    u64 hash = 0, bad_slot = no_slot;
    for (u32 b = 0; b < grid_.block_count(); ++b) {
      const block_report& each = *own<const block_report>(at_.block_reports, b);
      hash += each.routing_hash;
      bad_slot = device::min(bad_slot, each.bad_slot);
    }
    plan_.routing_hash = hash;
    plan_.bad_slot = bad_slot;
    plan_.bad_id = bad_slot == no_slot ? 0 : *own<const i32>(args_.indices, bad_slot);
    plan_.foreign_hash = 0;
    plan_.verdict = MORI_OK;
    plan_.dispatch_epoch = epoch_;
  }

  MORI_DEVICE void tell_counts() const {
    const device::block block = grid_.this_block();
    for (u32 i = block.rank(); i < at_.rank_count; i += block.size()) {
      // Everybody begins with the next rank, not all with rank 0.
      const u32 peer = (at_.rank + 1 + i) % at_.rank_count;
      u64* words = at_peer<u64>(at_, peer, count_word_address(at_.rank));
      device::store<scope::system, order::relaxed>(words, tagged(epoch_, args_.fingerprint));
      for (u32 rank = 0; rank < at_.rank_count; ++rank)
        device::store<scope::system, order::relaxed>(
            words + 1 + rank, tagged(epoch_, *own<const u32>(at_.send_begin, rank)));
      wake(at_, peer);
    }
  }

  MORI_DEVICE bool wait_for_count(const patience& waits, u32 source, u64 word) const {
    const u64 epoch = epoch_;
    return waits.wait_for(own<const u64>(count_word_address(source), word),
                          [epoch](u64 seen) { return has_tag(seen, epoch); },
                          {MORI_SHMEM_OP_EP_COUNT, static_cast<i32>(source), epoch});
  }

  // Where own rows begin at each destination, and each source's rows here.
  MORI_DEVICE void place_rows() const {
    const device::block block = grid_.this_block();
    for (u32 rank = block.rank(); rank < at_.rank_count; rank += block.size()) {
      u32 before = 0;
      for (u32 source = 0; source < at_.rank; ++source) before += rows_between(source, rank);
      *own<u32>(at_.send_begin, rank) = before;
    }
    if (block.rank() != 0) return;
    u32 begin = 0;
    for (u32 source = 0; source < at_.rank_count; ++source) {
      *own<u32>(at_.source_begin, source) = begin;
      begin += rows_between(source, at_.rank);
    }
    *own<u32>(at_.source_begin, at_.rank_count) = begin;
  }

  // The same verdict on every rank: it depends on the matrix alone.
  MORI_DEVICE void decide() {
    // Every rank has entered this dispatch, so none reads from an earlier combine.
    plan_.release_epoch = 0;
    plan_.recv_count = 0;
    if (!check_agreement(at_, plan_, [this](u32 source) { return count_word(source, 0); })) return;
    for (u32 rank = 0; rank < at_.rank_count; ++rank) {
      u64 rows = 0;
      for (u32 source = 0; source < at_.rank_count; ++source) rows += rows_between(source, rank);
      if (rows <= at_.recv_capacity) continue;
      plan_.verdict = MORI_E_OVERFLOW;
      plan_.verdict_rank = static_cast<i32>(rank);
      plan_.verdict_word = rows;
      plan_.verdict_limit = at_.recv_capacity;
      return;
    }
    plan_.recv_count = static_cast<i32>(*own<const u32>(at_.source_begin, at_.rank_count));
  }

  // --- send, arrive -----------------------------------------------------------------------------

  MORI_DEVICE void send_rows() {
    const device::block block = grid_.this_block();
    const u32* begin_of_block = block_counts(grid_.block_index());
    for (u64 token = first_token_ + block.wave_index(); token < last_token_;
         token += block.wave_count()) {
      route* to = routes_of(token);
      for (u32 i = 0; i < at_.fan_out && to[i].rank >= 0; ++i) {
        const auto rank = static_cast<u32>(to[i].rank);
        const u32 row = *own<const u32>(at_.send_begin, rank) + begin_of_block[rank] + to[i].row;
        send_row(token, rank, row);
        // All lanes have read the block's number before one writes the final one.
        grid_.this_wave().sync();
        if (grid_.this_wave().rank() == 0) to[i].row = row;
      }
    }
  }

  // One call of the copy for all parts of a row: it is large once inlined on GPUs.
  MORI_DEVICE void send_row(u64 token, u32 rank, u32 row) const {
    const struct {
      u64 region, from, bytes;
    } parts[] = {
        {at_.tokens, args_.input, args_.row_bytes},
        {at_.indices, args_.indices, at_.top_k * sizeof(i32)},
        {at_.weights, args_.weights, args_.weights == 0 ? 0 : at_.top_k * sizeof(float)},
        {at_.scales, args_.scales, args_.scales == 0 ? 0 : args_.scale_row_bytes},
    };
    for (const auto& part : parts)
      device::copy_streaming(grid_.this_wave(),
                             at_peer<u8>(at_, rank, part.region, row * part.bytes),
                             own<const u8>(part.from, token * part.bytes), part.bytes);
    if (grid_.this_wave().rank() == 0)
      *at_peer<i32>(at_, rank, at_.source_tokens, row) = static_cast<i32>(token);
  }

  MORI_DEVICE bool arrive(const patience& waits) {
    const device::block block = grid_.this_block();
    for (u32 i = block.rank(); i < at_.rank_count; i += block.size()) {
      const u32 peer = (at_.rank + 1 + i) % at_.rank_count;
      flag_line* flags = at_peer<flag_line>(at_, peer, at_.flags, at_.rank);
      device::store<scope::system, order::release>(&flags->payload, epoch_);
      wake(at_, peer);
    }
    bool have_all = true;
    for (u32 source = block.rank(); have_all && source < at_.rank_count; source += block.size()) {
      const u64 epoch = epoch_;
      have_all = waits.wait_for(&own<const flag_line>(at_.flags, source)->payload,
                                [epoch](u64 seen) { return seen == epoch; },
                                {MORI_SHMEM_OP_EP_PAYLOAD, static_cast<i32>(source), epoch});
    }
    have_all = all_succeeded(block, have_all);
    device::fence<scope::system, order::acquire>();
    return have_all;
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
  const u64 first_token_;
  const u64 last_token_;
};

MORI_DEVICE void dispatch(const grid& g, const dispatch_args& args) {
  dispatch_kernel(g, args).run();
}

}  // namespace mori::ep_core
