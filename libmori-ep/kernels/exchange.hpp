// exchange.hpp - how ranks tell each other small things: addresses in a peer's
// memory, words stored there with a wake-up, and waits that name the rank they
// wait for and share one budget per launch. Read dispatch.hpp next.
//
// Words are self-tagged with an epoch, so nothing is ever reset; why a word is
// never overwritten before it was read is argued at each word's user.
#pragma once

#include "kernels/plan.hpp"

#include <mori/device/kernel.hpp>
#include <mori/device_api/state.hpp>

namespace mori::ep_core {

using device::grid;
using device::order;
using device::pointer;
using device::scope;

template <class T>
MORI_HOT T* own(u64 address, u64 index = 0) {
  return pointer<T>(address) + index;
}

// What rank `peer` has at the symmetric address.
template <class T>
MORI_HOT T* at_peer(const places& at, u32 peer, u64 address, u64 index = 0) {
  const u64 base = pointer<const u64>(at.state.peer_bases)[peer];
  return pointer<T>(base + (address - at.state.heap_base)) + index;
}

// Wakes the peer if it sleeps; the caller's stores come first.
MORI_HOT void wake(const places& at, u32 peer) {
  device::fence<scope::system, order::seq_cst>();
  device::ring_doorbell(
      device_api::doorbell_of(device_api::peer_sync(at.state, static_cast<i32>(peer))));
}

// One call's waits: they end together, budget_ns after `start`.
class patience {
 public:
  MORI_DEVICE explicit patience(const places& at) : at_(&at), start_ns_(device::pause::now_ns()) {}

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

// All lanes: did any lane fail?
MORI_DEVICE bool all_succeeded(const device::block& block, bool mine) {
  return block.reduce_add(mine ? 0u : 1u) == 0;
}

// Whether the words of two ranks may meet in one call.
MORI_HOT bool agree(const fingerprint& a, const fingerprint& b) {
  const auto fits = [](presence x, presence y) {
    return x == y || x == presence::no_rows || y == presence::no_rows;
  };
  return a.dtype == b.dtype && a.hidden_dim == b.hidden_dim && fits(a.weights, b.weights) &&
         fits(a.scales, b.scales);
}

// One lane, after the ranks' fingerprints have come: word(s) is that of rank s. The first pair
// that disagrees goes to the plan, the same one on every rank; returns whether there is none.
template <class Word>
MORI_DEVICE bool check_agreement(const places& at, plan& p, Word word) {
  u32 flows = 0;
  // The last ranks seen whose weights, whose scales, say something.
  u32 speaks_weights = 0, speaks_scales = 0;
  for (u32 s = 0; s < at.rank_count; ++s) {
    const fingerprint now = unpack(word(s));
    const u32 earlier[] = {speaks_weights, speaks_scales};
    for (const u32 other : earlier) {
      if (agree(now, unpack(word(other)))) continue;
      p.verdict = MORI_E_MISMATCH;
      p.verdict_rank = static_cast<i32>(s);
      p.verdict_other = static_cast<i32>(other);
      p.verdict_word = word(s);
      p.verdict_limit = word(other);
      return false;
    }
    if (now.weights != presence::no_rows) speaks_weights = s;
    if (now.scales != presence::no_rows) speaks_scales = s;
    if (now.weights == presence::given) flows |= flows_weights;
    if (now.scales == presence::given) flows |= flows_scales;
  }
  p.flows = flows;
  return true;
}

}  // namespace mori::ep_core
