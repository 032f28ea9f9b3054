// agreement.cpp - see agreement.hpp.
#include "operator/agreement.hpp"

#include "operator/shmem_call.hpp"

#include <mori/base/boundary.hpp>

#include <span>
#include <vector>

namespace mori::ep_core {
namespace {

using base::fail;
using base::status;

// What a rank shows: one entry of a table that every rank has.
struct card {
  uint64_t status;
  settings config;
};

bool is_about_config(uint64_t status) {
  return status == MORI_E_INVALID || status == MORI_E_UNSUPPORTED || status == MORI_E_VERSION;
}

status decide(std::span<const card> cards, const base::result<settings>& own) {
  if (!own) return own.error();
  for (size_t rank = 0; rank < cards.size(); ++rank) {
    if (cards[rank].status == MORI_OK) continue;
    const auto theirs = static_cast<mori_status>(cards[rank].status);
    if (is_about_config(cards[rank].status))
      return fail(MORI_E_MISMATCH, "rank {} refused its config ({}), this rank did not", rank,
                  base::status_name(theirs));
    return fail(theirs, "rank {} could not create its part of the operator", rank);
  }
  for (size_t rank = 0; rank < cards.size(); ++rank)
    MORI_CHECK(compare_settings(*own, cards[rank].config, rank));
  return {};
}

// Every rank meets the others, whatever went wrong here: they would wait for it.
status meet(mori_shmem* shmem, status so_far) {
  MORI_CHECK(shmem_call(mori_shmem_quiet, shmem));
  MORI_CHECK(shmem_call(mori_shmem_barrier_all, shmem));
  return so_far;
}

// Whom a rank cannot reach it cannot show its card: until it does, the table says that it has none.
status clear(mori_shmem* shmem, const group_place& place, card* table) {
  card none{};
  none.status = MORI_E_UNAVAILABLE;
  const std::vector<card> nothing(static_cast<size_t>(place.pe_count), none);
  return meet(shmem, shmem_call(mori_shmem_put, shmem, table, nothing.data(),
                                nothing.size() * sizeof none, place.pe));
}

status show(mori_shmem* shmem, const group_place& place, const base::result<settings>& own,
            card* table) {
  card mine{};
  mine.status = own ? uint64_t{MORI_OK} : static_cast<uint64_t>(own.error().status);
  if (own) mine.config = *own;
  status outcome;
  for (int32_t peer = 0; peer < place.pe_count; ++peer) {
    auto shown = shmem_call(mori_shmem_put, shmem, table + place.pe, &mine, sizeof mine, peer);
    if (!shown && outcome) outcome = std::move(shown);
  }
  return meet(shmem, std::move(outcome));
}

// The heap may be in a GPU's memory, where host code must not look.
base::result<std::vector<card>> read(mori_shmem* shmem, const group_place& place,
                                     const card* table) {
  std::vector<card> cards(static_cast<size_t>(place.pe_count));
  MORI_CHECK(shmem_call(mori_shmem_get, shmem, static_cast<void*>(cards.data()),
                        static_cast<const void*>(table), cards.size() * sizeof(card), place.pe));
  return cards;
}

}  // namespace

status agree_on_settings(mori_shmem* shmem, const group_place& place,
                         const base::result<settings>& own) {
  const auto count = static_cast<size_t>(place.pe_count);
  void* memory = nullptr;
  status outcome = shmem_call(mori_shmem_malloc, shmem, count * sizeof(card), &memory);
  if (!outcome) return own ? std::move(outcome) : status(own.error());
  auto* table = static_cast<card*>(memory);
  outcome = clear(shmem, place, table);
  if (auto shown = show(shmem, place, own, table); outcome) outcome = std::move(shown);
  auto cards =
      outcome ? read(shmem, place, table) : base::result<std::vector<card>>(outcome.error());
  if (cards)
    outcome = decide(*cards, own);
  else
    // An own error says more: ranks that cannot be reached cannot be shown anything.
    outcome = own ? cards.error() : own.error();
  // All but this rank believe that it has what it showed.
  if (!cards && own) (void)shmem_call(mori_shmem_abort, shmem);
  // Nobody writes here again before the next collective allocation, which comes after this.
  (void)shmem_call(mori_shmem_free, shmem, memory);
  return outcome;
}

}  // namespace mori::ep_core
