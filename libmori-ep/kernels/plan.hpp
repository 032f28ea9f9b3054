// plan.hpp - what host code and kernels share: the operator's memory as
// addresses, the arguments of the two kernels, and the plan, a line of private
// memory in which the kernels keep what must outlive a launch (epochs, routing
// hash, receive count) and say what went wrong. Plain data in one layout for all
// processors. Nothing in the arguments depends on what an earlier call did on the
// device, so a captured launch can be replayed.
// Read exchange.hpp next, then routing.hpp, dispatch.hpp and combine.hpp.
#pragma once

#include <mori/ep.h>
#include <mori/shmem_device.h>
#include <mori/device/core.hpp>

namespace mori::ep_core {

using device::i32;
using device::i64;
using device::u32;
using device::u64;
using device::u8;

// One line per source rank; each word is written by that rank alone.
struct flag_line {
  u64 payload;   // epoch of the dispatch whose rows are complete here
  u64 ready;     // tagged(): combine's input of that rank may be read
  u64 released;  // epoch of the combine after which that rank reads no more
  u64 reserved[5];
};
static_assert(sizeof(flag_line) == 64);

// Where one token's row went. Routes of a token are in ascending rank. One load moves one.
struct alignas(8) route {
  i32 rank;  // -1: no more routes
  u32 row;   // at that rank
};
static_assert(sizeof(route) == 8);

// What a block leaves for the whole grid: sums and minima need no order, so no atomics either.
struct block_report {
  u64 routing_hash;  // this block's part
  u64 bad_slot;      // first index of an id out of range; no_slot: none
};

inline constexpr u64 no_slot = ~u64{0};

// A token goes to at most as many ranks as it has slots.
inline constexpr u32 fan_out_limit = 32;

// Written by the kernels, read by the host after them.
struct plan {
  u64 dispatch_epoch;  // of the last dispatch, failed ones included
  u64 combine_epoch;
  u64 finished_dispatch;  // epoch of the last one that ran to its end
  u64 finished_combine;
  u64 release_epoch;     // a combine that peers may still be reading from; 0: none
  u64 routing_hash;      // of the last dispatch
  i32 verdict;           // mori_status of the last launch
  i32 dispatch_verdict;  // of the last dispatch; unless it is MORI_OK, combines do nothing
  i32 recv_count;        // of the last dispatch
  u32 flows;             // flows_weights, flows_scales of the last launch
  i32 verdict_rank;      // overflow: who receives too much; mismatch: who differs ...
  i32 verdict_other;     //                                          ... from whom
  i32 bad_id;            // at bad_slot
  u64 verdict_word;      // overflow: how much; mismatch: fingerprint of verdict_rank ...
  u64 verdict_limit;     //           capacity              ... and of verdict_other
  u64 bad_slot;          // own ids: index of the first out of range; no_slot: none
  u64 foreign_hash;  // combine: hash of the given indices if they are not the dispatch's, else 0
  u64 given_rows;    // combine: rows it was given if fewer than received; no_slot: enough
};
static_assert(sizeof(plan) <= 256);

// What went wrong in a call, for the host, which may look long after it; in memory that both reach.
// One at a time: while one is there, later ones are dropped.
struct mishap_record {
  u64 claimed;  // 0: free; 2: complete, stored last; 1: being read. Only the host frees it
  u64 call;     // of which the plan is
  plan what;
};
inline constexpr u64 mishap_of_dispatch = 1;
inline constexpr u64 mishap_of_combine = 2;

inline constexpr u32 flows_weights = 1;
inline constexpr u32 flows_scales = 2;

// Division of numbers below 2^31 by one that is known before, without a division: multiplier =
// floor(2^(31 + shift) / divisor) + 1 with the least shift such that divisor <= 2^shift is exact.
struct divisor {
  u32 multiplier;
  u32 shift;
};

MORI_HOT constexpr divisor divisor_of(u32 value) {
  u32 shift = 0;
  while (u64{1} << shift < value) ++shift;
  return {static_cast<u32>((u64{1} << (31 + shift)) / value + 1), shift};
}
MORI_HOT constexpr u32 quotient(u32 number, const divisor& by) {
  return static_cast<u32>(u64{number} * by.multiplier >> 31 >> by.shift);
}

// An operator's memory, and the numbers that do not change from call to call.
struct places {
  mori_shmem_device_state_v1 state;
  // Symmetric addresses on this rank.
  u64 counts;  // [2][W][count_row_words] u64
  u64 flags;   // [W] flag_line
  u64 tokens;
  u64 indices;
  u64 weights;
  u64 scales;
  u64 source_tokens;
  u64 combine_weights;
  u64 registered;  // 0: not allocated
  // Private addresses.
  u64 plan;
  u64 send_begin;     // [W] u32
  u64 source_begin;   // [W + 1] u32
  u64 block_counts;   // [grid_limit][W] u32
  u64 block_reports;  // [grid_limit] block_report
  u64 routes;         // [M][fan_out] route
  u64 local_expert_count;
  u64 out;
  u64 out_weights;
  u64 mishap;  // address of mishap_record

  u64 count_row_words;
  u64 recv_capacity;
  u64 wait_budget_ns;  // of one launch
  u32 rank;
  u32 rank_count;
  u32 experts_per_rank;
  divisor by_experts_per_rank;
  u32 top_k;
  u32 fan_out;
  u32 drop_invalid_experts;
};

struct dispatch_args {
  places at;
  u64 input;
  u64 weights;  // 0: none
  u64 scales;   // 0: none
  u64 indices;
  u64 row_bytes;
  u64 scale_row_bytes;
  u32 token_count;
  u32 fingerprint;
  u32 count_local_experts;
};

struct combine_args {
  places at;
  u64 input;          // 0: the rows are already in the buffer that `reads_registered` names
  u64 input_weights;  // 0: none
  u64 indices;
  u64 input_row_count;  // rows that input and input_weights have
  u64 row_bytes;
  u32 token_count;
  u32 fingerprint;      // as if rows had been received; see without_rows()
  u32 needs_rows;       // input or input_weights are to be copied
  u32 releases_at_end;  // the caller may write to the buffer after the call: wait for the readers
};

// A word that says by itself for which call it is: data and flag travel together.
MORI_HOT u64 tagged(u64 epoch, u32 value) { return epoch << 32 | value; }
MORI_HOT bool has_tag(u64 word, u64 epoch) {
  return static_cast<u32>(word >> 32) == static_cast<u32>(epoch);
}
MORI_HOT u32 untagged(u64 word) { return static_cast<u32>(word); }

// What all ranks must agree on, exact, in 32 bits: dtype 3, weights 2, scales 2,
// registered 1 (this one may differ), H 21 (at most 2^20).
enum class presence : u32 { none = 0, given = 1, no_rows = 2 };  // no_rows agrees with both

struct fingerprint {
  i32 dtype;
  u32 hidden_dim;
  presence weights;
  presence scales;
  bool reads_registered;
};

MORI_HOT u32 pack(const fingerprint& f) {
  return static_cast<u32>(f.dtype) | static_cast<u32>(f.weights) << 3 |
         static_cast<u32>(f.scales) << 5 | (f.reads_registered ? 1u : 0u) << 7 | f.hidden_dim << 8;
}

MORI_HOT fingerprint unpack(u32 word) {
  return {static_cast<i32>(word & 7), word >> 8, static_cast<presence>(word >> 3 & 3),
          static_cast<presence>(word >> 5 & 3), (word >> 7 & 1) != 0};
}

// The word of a rank that has received nothing: only the device knows that.
MORI_HOT u32 without_rows(u32 word) {
  return (word & ~(3u << 3)) | static_cast<u32>(presence::no_rows) << 3;
}

// Part of one (slot, id) in the routing hash, which is the sum of all parts.
MORI_HOT u64 hash_part(u64 slot, i32 id) {
  u64 x = slot * 0x9E37'79B9'7F4A'7C15u + static_cast<u32>(id) + 1;
  x = (x ^ x >> 30) * 0xBF58'476D'1CE4'E5B9u;
  x = (x ^ x >> 27) * 0x94D0'49BB'1331'11EBu;
  return x ^ x >> 31;
}

}  // namespace mori::ep_core
