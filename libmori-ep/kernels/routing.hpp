// routing.hpp - where tokens go: how work is shared out among blocks and waves,
// expert ids to ranks, the numbering of rows, and a wave's view of one token's
// destinations, which both kernels use. Read dispatch.hpp next.
//
// Numbering. Rows for one destination are in order of the tokens, whatever the
// launch: each block takes a contiguous range of tokens and each of its waves a
// contiguous part of that, a token for each lane. For each rank a ballot tells a
// lane how many lanes before it go there too. The waves count first, meet, add up
// what comes before each of them, and number then. The host's waves have one lane
// and its blocks one wave: it numbers at once.
// Ranks are looked at in windows of 64, whose destinations fit one mask.
#pragma once

#include "kernels/exchange.hpp"

namespace mori::ep_core {

// --- Shares -------------------------------------------------------------------------------------

template <class T>
struct span_of {
  T first, last;
  MORI_HOT T count() const { return last - first; }
};

// Part `index` of `parts` of 0 .. count - 1: contiguous, in order, sizes differing by one.
template <class T>
MORI_HOT span_of<T> share(T count, u32 index, u32 parts) {
  const T each = count / parts, more = count - each * parts;
  const T first = each * index + device::min<T>(index, more);
  return {first, first + each + (index < more ? 1 : 0)};
}

// The same of memory: whole lines of 128 bytes, but for the end.
template <class T>
MORI_HOT span_of<T> share_of_bytes(T bytes, u32 index, u32 parts) {
  const auto lines = share<T>((bytes + 127) / 128, index, parts);
  return {device::min<T>(lines.first * 128, bytes), device::min<T>(lines.last * 128, bytes)};
}

// A block's tokens over its waves. Where there are few tokens for each wave, rows are cut into
// parts, so that no wave walks through a whole row while others have nothing to do.
class wave_items {
 public:
  MORI_DEVICE wave_items(const span_of<u32>& tokens, u64 row_bytes)
      : first_token_(tokens.first), parts_(1), item_count_(tokens.count()) {
    if constexpr (!wave::single) {
      const u32 enough = items_of_wave * block{}.wave_count();
      if (item_count_ != 0 && item_count_ < enough) {
        const auto most = device::max(static_cast<u32>(row_bytes) / part_bytes, u32{1});
        parts_ = device::min(device::ceil_div(enough, item_count_), most);
        item_count_ *= parts_;
      }
    }
  }
  MORI_HOT u32 begin() const { return block{}.wave_index(); }
  MORI_HOT u32 end() const { return item_count_; }
  MORI_HOT u32 step() const { return block{}.wave_count(); }

  MORI_HOT u32 token(u32 item) const { return first_token_ + item / parts_; }
  MORI_HOT u32 part(u32 item) const { return item % parts_; }
  // Bytes of the row that this part has.
  MORI_HOT span_of<u32> bytes(u32 item, u64 row_bytes) const {
    const auto all = static_cast<u32>(row_bytes);
    if (parts_ == 1) return {0, all};
    return share_of_bytes(all, part(item), parts_);
  }

 private:
  static constexpr u32 items_of_wave = 4;
  static constexpr u32 part_bytes = 2048;  // four chunks a lane of a wave of 32

  u32 first_token_, parts_, item_count_;
};

// --- Lane masks ---------------------------------------------------------------------------------

MORI_HOT u32 lowest_bit(u64 mask) {
  return 63u - static_cast<u32>(__builtin_clzll(mask & (~mask + 1)));
}
// Lanes that voted; all of them, or those below this lane.
MORI_HOT u32 count_lanes(u64 votes) {
  if constexpr (wave::single)
    return static_cast<u32>(votes);
  else
    return static_cast<u32>(__builtin_popcountll(votes));
}
MORI_HOT u32 count_lanes_below(u64 votes) {
  if constexpr (wave::single)
    return 0;
  else
    return count_lanes(votes & ((u64{1} << wave{}.rank()) - 1));
}

// --- Expert ids ---------------------------------------------------------------------------------

MORI_HOT route* routes_of(const places& at, u32 token) {
  return own<route>(at.routes, u64{token} * at.fan_out);
}
// Of an id that is not negative; may be no rank at all.
MORI_HOT u32 rank_of(const places& at, i32 id) {
  return quotient(static_cast<u32>(id), at.by_experts_per_rank);
}

// This lane's part of the hash of a range of tokens' ids; the block's lanes share it.
MORI_DEVICE u64 hash_ids(const places& at, const i32* ids, const span_of<u32>& tokens) {
  const block b;
  u64 hash = 0;
  const u64 end = u64{tokens.last} * at.top_k;
  for (u64 i = u64{tokens.first} * at.top_k + b.rank(); i < end; i += b.size())
    hash += hash_part(i, ids[i]);
  return hash;
}

// The first id of a range of tokens that no rank owns, no_slot if there is none; the same for all
// lanes of the block.
MORI_DEVICE u64 find_bad_slot(const places& at, const i32* ids, const span_of<u32>& tokens) {
  if (at.drop_invalid_experts != 0) return no_slot;
  const block b;
  u64 bad_slot = no_slot;
  const u64 end = u64{tokens.last} * at.top_k;
  for (u64 i = u64{tokens.first} * at.top_k + b.rank(); i < end; i += b.size())
    if (ids[i] >= 0 && rank_of(at, ids[i]) >= at.rank_count) bad_slot = device::min(bad_slot, i);
  if (b.reduce_add(bad_slot != no_slot ? 1u : 0u) == 0) return no_slot;
  // Rare: each lane in turn.
  u64 first = no_slot;
  for (u32 lane = 0; lane < b.size(); ++lane)
    first = device::min(first, b.broadcast(bad_slot, lane));
  return first;
}

// --- Numbering ----------------------------------------------------------------------------------

inline constexpr u32 window_ranks = 64;

// One block writes down where its tokens go, rows being numbered within the block, and how many
// rows it has for each rank.
class router {
 public:
  MORI_DEVICE router(const places& at, const i32* ids, const span_of<u32>& tokens)
      : at_(at), ids_(ids) {
    const auto part = share(tokens.count(), block{}.wave_index(), block{}.wave_count());
    mine_ = {tokens.first + part.first, tokens.first + part.last};
  }

  MORI_DEVICE void run(u32* rows_for_ranks) {
    for (u32 first = 0; first < at_.rank_count; first += window_ranks) {
      window_ = {first, device::min(first + window_ranks, at_.rank_count)};
      route_window(rows_for_ranks + first);
    }
  }

 private:
  using counts_of_wave = u32[window_ranks];

  MORI_DEVICE void route_window(u32* rows_for_ranks) {
    MORI_SHARED counts_of_wave counts[device::lane::max_waves];
    const block b;
    u32* own_counts = counts[b.wave_index()];
    for (u32 i = wave{}.rank(); i < window_.count(); i += wave{}.size()) own_counts[i] = 0;
    wave{}.sync();
    if constexpr (!wave::single) {
      number<false>(own_counts);
      b.sync();
      for (u32 i = b.rank(); i < window_.count(); i += b.size()) begin_waves(counts, i);
      b.sync();
    }
    number<true>(own_counts);
    b.sync();
    // The last wave has counted on from all others.
    for (u32 i = b.rank(); i < window_.count(); i += b.size())
      rows_for_ranks[i] = counts[b.wave_count() - 1][i];
    b.sync();
  }

  // Each wave's rows begin where those of the waves before it end.
  MORI_HOT void begin_waves(counts_of_wave* counts, u32 rank) const {
    u32 total = 0;
    for (u32 w = 0; w < block{}.wave_count(); ++w) {
      const u32 rows = counts[w][rank];
      counts[w][rank] = total;
      total += rows;
    }
  }

  // The ranks of the window that a token goes to.
  MORI_DEVICE u64 destinations(u32 token) const {
    const i32* ids = ids_ + u64{token} * at_.top_k;
    u64 mask = 0;
    for (u32 slot = 0; slot < at_.top_k; ++slot) {
      const i32 id = ids[slot];
      const u32 rank = rank_of(at_, id);
      if (id >= 0 && rank >= window_.first && rank < window_.last)
        mask |= u64{1} << (rank - window_.first);
    }
    return mask;
  }

  // The ranks to be numbered for tokens of a wave of which this lane has one.
  MORI_HOT u64 ranks_of_wave(u64 mask) const {
    if constexpr (wave::single)
      return mask;
    else
      return ~u64{0} >> (window_ranks - window_.count());
  }

  // Routes that earlier windows have written.
  MORI_DEVICE u32 routes_before(const route* to) const {
    u32 count = 0;
    if (window_.first != 0)
      while (count < at_.fan_out && to[count].rank >= 0) ++count;
    return count;
  }

  // Counts this wave's rows on from `counts`; Writes: and writes the routes down.
  template <bool Writes>
  MORI_DEVICE void number(u32* counts) const {
    const wave w;
    for (u32 first = mine_.first; first < mine_.last; first += w.size()) {
      const u32 token = first + w.rank();
      const bool is_mine = token < mine_.last;
      const u64 mask = is_mine ? destinations(token) : 0;
      route* const to = routes_of(at_, token);
      u32 next = Writes && is_mine ? routes_before(to) : 0;
      for (u64 left = ranks_of_wave(mask); left != 0; left &= left - 1) {
        const u32 i = lowest_bit(left);
        const bool goes = (mask >> i & 1) != 0;
        const u64 votes = w.ballot(goes);
        const u32 before = counts[i];
        if (Writes && goes)
          to[next++] = {static_cast<i32>(window_.first + i), before + count_lanes_below(votes)};
        w.sync();  // all have read the count
        if (w.rank() == 0) counts[i] = before + count_lanes(votes);
      }
      if (Writes && is_mine && next < at_.fan_out) to[next] = {-1, 0};
      w.sync();
    }
  }

  const places& at_;
  const i32* ids_;
  span_of<u32> mine_;
  span_of<u32> window_{};
};

// --- A wave's view of one token -----------------------------------------------------------------

// One item for each destination: lane i has the i-th, on the host the only lane has all.
template <class T>
class by_lane {
 public:
  MORI_HOT T& mine([[maybe_unused]] u32 i) {
    if constexpr (wave::single)
      return items_[i];
    else
      return items_[0];
  }
  // The i-th, to all lanes.
  MORI_HOT T of(u32 i) const {
    if constexpr (wave::single)
      return items_[i];
    else
      return wave{}.broadcast(items_[0], i);
  }

 private:
  T items_[wave::single ? fan_out_limit : 1];
};

// The token's routes, to make(route), which gives what is to be kept of it; returns
// how many there are. All lanes of the wave call.
template <class T, class Make>
MORI_DEVICE u32 for_destinations(const places& at, u32 token, by_lane<T>& kept, Make make) {
  const route* routes = routes_of(at, token);
  if constexpr (wave::single) {
    u32 count = 0;
    for (; count < at.fan_out && routes[count].rank >= 0; ++count)
      kept.mine(count) = make(routes[count]);
    return count;
  } else {
    const wave w;
    route mine{-1, 0};
    if (w.rank() < at.fan_out) mine = routes[w.rank()];
    const u32 count = lowest_bit(w.ballot(mine.rank < 0) | u64{1} << at.fan_out);
    kept.mine(0) = w.rank() < count ? make(mine) : T{};
    return count;
  }
}

}  // namespace mori::ep_core
