// exchange.hpp - how ranks tell each other small things: addresses in a peer's
// memory, words stored there with a wake-up, waits that name the rank they wait
// for and share one budget per launch, and what all have to agree on. One block
// of a launch does this, a lane for each word. Read routing.hpp next.
//
// Words are self-tagged with an epoch, so nothing is ever reset; why a word is
// never overwritten before it was read is argued at each word's user.
#pragma once

#include "kernels/plan.hpp"

#include <mori/device/kernel.hpp>
#include <mori/device_api/state.hpp>

namespace mori::ep_core {

using device::block;
using device::grid;
using device::order;
using device::pointer;
using device::scope;
using device::wave;

template <class T>
MORI_HOT T* own(u64 address, u64 index = 0) {
  return pointer<T>(address) + index;
}

// What rank `peer` has at the symmetric address 0: add to an own one to get the peer's.
MORI_HOT u64 displacement(const places& at, u32 peer) {
  return device::load_constant(pointer<const u64>(at.state.peer_bases) + peer) - at.state.heap_base;
}

// What rank `peer` has at the symmetric address.
template <class T>
MORI_HOT T* at_peer(const places& at, u32 peer, u64 address, u64 index = 0) {
  return pointer<T>(displacement(at, peer) + address) + index;
}

// Everybody begins with the next rank, not all with rank 0.
MORI_HOT u32 peer_in_turn(const places& at, u32 i) { return (at.rank + 1 + i) % at.rank_count; }

// Wakes the peers that sleep, after the block's stores; nobody does on GPUs.
MORI_HOT void wake_peers(const places& at) {
  if constexpr (wave::single) {
    device::fence<scope::system, order::seq_cst>();
    for (u32 i = 0; i < at.rank_count; ++i)
      device::ring_doorbell(device_api::doorbell_of(
          device_api::peer_sync(at.state, static_cast<i32>(peer_in_turn(at, i)))));
  }
}

// One call's waits: they end together, budget_ns after `start`.
class patience {
 public:
  MORI_DEVICE explicit patience(const places& at) : at_(&at), start_ns_(device::pause::now_ns()) {}

  // The context has been aborted or has faulted.
  MORI_HOT bool is_over() const { return device::is_ended(device_api::limits_of(at_->state)); }

  // One lane waits until met(*word); false when the call has to end.
  template <class Met>
  MORI_DEVICE bool wait_for(const u64* word, Met met, const device::wait_subject& subject) const {
    if (met(device::load<scope::system, order::acquire>(word))) return true;
    return device::wait_until(word, met, limits(), subject,
                              device_api::doorbell_of(device_api::own_sync(at_->state)))
        .met;
  }

 private:
  MORI_DEVICE device::wait_limits limits() const {
    const u64 spent_ns = device::pause::now_ns() - start_ns_;
    device::wait_limits bounds = device_api::limits_of(at_->state);
    bounds.budget_ns = at_->wait_budget_ns > spent_ns ? at_->wait_budget_ns - spent_ns : 0;
    return bounds;
  }

  const places* at_;
  u64 start_ns_;
};

// All lanes meet: did none of them fail?
MORI_DEVICE bool all_succeeded(const block& b, bool mine) {
  return b.reduce_add(mine ? 0u : 1u) == 0;
}

// The block stores one word in this rank's line at each peer, a lane for each. What any lane of
// the grid stored before, published and met, comes before it.
MORI_DEVICE void tell_peers(const places& at, const block& b, u64 flag_line::* word, u64 value) {
  for (u32 i = b.rank(); i < at.rank_count; i += b.size()) {
    flag_line* line = at_peer<flag_line>(at, peer_in_turn(at, i), at.flags, at.rank);
    device::store<scope::system, order::release>(&(line->*word), value);
  }
  wake_peers(at);
}

// The block waits for the word of each rank, a lane for each; whether this lane's have come.
template <class Met>
MORI_DEVICE bool wait_for_peers(const places& at, const block& b, const patience& waits,
                                u64 flag_line::* word, Met met,
                                const device::wait_subject& subject) {
  bool have_all = true;
  for (u32 source = b.rank(); have_all && source < at.rank_count; source += b.size())
    have_all = waits.wait_for(&(own<const flag_line>(at.flags, source)->*word), met,
                              {subject.operation, static_cast<i32>(source), subject.awaited});
  return have_all;
}

// One lane of the last block, when the plan is complete.
MORI_DEVICE void report_mishap(const places& at, u64 call, const plan& p) {
  auto* record = own<mishap_record>(at.mishap);
  if (device::load<scope::system, order::acquire>(&record->claimed) != 0) return;
  record->call = call;
  record->what = p;
  device::store<scope::system, order::release>(&record->claimed, u64{2});
}

// --- What all ranks must agree on ---------------------------------------------------------------

// Whether the words of two ranks may meet in one call.
MORI_HOT bool agree(const fingerprint& a, const fingerprint& b) {
  const auto fits = [](presence x, presence y) {
    return x == y || x == presence::no_rows || y == presence::no_rows;
  };
  return a.dtype == b.dtype && a.hidden_dim == b.hidden_dim && fits(a.weights, b.weights) &&
         fits(a.scales, b.scales);
}

// What ranks say, counted: five numbers of 12 bits (at most 2 * 1024) in one word, so that a
// block adds them all up at once.
namespace opinion {
inline constexpr u64 trouble = 1;                // another shape than rank 0's; or too many rows
inline constexpr u32 weights = 12, scales = 36;  // given; 12 bits higher: none
inline constexpr u64 field = 0xfff;

MORI_HOT u64 of(presence what, u32 shift) {
  return what == presence::given  ? u64{1} << shift
         : what == presence::none ? u64{1} << (shift + 12)
                                  : 0;
}
MORI_HOT u64 of_word(u32 word, u32 word_of_rank_0) {
  const fingerprint f = unpack(word), first = unpack(word_of_rank_0);
  const bool same = f.dtype == first.dtype && f.hidden_dim == first.hidden_dim;
  return (same ? 0 : trouble) + of(f.weights, weights) + of(f.scales, scales);
}
MORI_HOT bool both(u64 sum, u32 shift) {
  return (sum >> shift & field) != 0 && (sum >> (shift + 12) & field) != 0;
}
MORI_HOT bool is_mixed(u64 sum) {
  return (sum & field) != 0 || both(sum, weights) || both(sum, scales);
}
MORI_HOT u32 flows(u64 sum) {
  return ((sum >> weights & field) != 0 ? flows_weights : 0) |
         ((sum >> scales & field) != 0 ? flows_scales : 0);
}
}  // namespace opinion

// One lane, when opinions are mixed: word(s) is the fingerprint of rank s. The first pair that
// disagrees goes to the plan, the same one on every rank; returns whether there is none.
template <class Word>
MORI_DEVICE bool check_agreement(const places& at, plan& p, Word word) {
  // The last ranks seen whose weights, whose scales, say something.
  u32 speaks_weights = 0, speaks_scales = 0;
  for (u32 s = 0; s < at.rank_count; ++s) {
    const fingerprint now = unpack(word(s));
    const bool weights_fit = agree(now, unpack(word(speaks_weights)));
    if (!weights_fit || !agree(now, unpack(word(speaks_scales)))) {
      const u32 other = weights_fit ? speaks_scales : speaks_weights;
      p.verdict = MORI_E_MISMATCH;
      p.verdict_rank = static_cast<i32>(s);
      p.verdict_other = static_cast<i32>(other);
      p.verdict_word = word(s);
      p.verdict_limit = word(other);
      return false;
    }
    if (now.weights != presence::no_rows) speaks_weights = s;
    if (now.scales != presence::no_rows) speaks_scales = s;
  }
  return true;
}

}  // namespace mori::ep_core
