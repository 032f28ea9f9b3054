// verdict.cpp - see verdict.hpp.
#include "operator/verdict.hpp"

#include "layout/dtype.hpp"

namespace mori::ep_core {
namespace {

using base::fail;
using base::status;

const char* name_of(int32_t dtype) {
  const dtype_facts* facts = facts_of_dtype(dtype);
  return facts == nullptr ? "unknown" : facts->name;
}

const char* name_of(presence what) { return what == presence::given ? "given" : "not given"; }

status explain_mismatch(const plan& p) {
  const fingerprint one = unpack(static_cast<u32>(p.verdict_word));
  const fingerprint other = unpack(static_cast<u32>(p.verdict_limit));
  const auto disagree = [&](const char* what, const auto& a, const auto& b) {
    return fail(MORI_E_MISMATCH, "ranks {} and {} disagree on {}: {} and {}", p.verdict_rank,
                p.verdict_other, what, a, b);
  };
  if (one.dtype != other.dtype) return disagree("dtype", name_of(one.dtype), name_of(other.dtype));
  if (one.hidden_dim != other.hidden_dim)
    return disagree("hidden_dim", one.hidden_dim, other.hidden_dim);
  // Ranks without rows agree with both, so these two are "given" and "not given".
  if (one.weights != other.weights && one.weights != presence::no_rows &&
      other.weights != presence::no_rows)
    return disagree("weights", name_of(one.weights), name_of(other.weights));
  return disagree("scales", name_of(one.scales), name_of(other.scales));
}

status explain_verdict(const plan& p) {
  if (p.verdict == MORI_E_MISMATCH) return explain_mismatch(p);
  return fail(MORI_E_OVERFLOW,
              "rank {} would receive {} tokens, the capacity is {} "
              "(max_total_recv_token_count); nothing was sent",
              p.verdict_rank, p.verdict_word, p.verdict_limit);
}

status explain_bad_id(const settings& s, const plan& p) {
  return fail(MORI_E_INVALID,
              "expert id {} of token {}, slot {} is not below {} ({} ranks * {} experts); "
              "drop_invalid_experts = 1 would ignore it",
              p.bad_id, p.bad_slot / s.expert_per_token_count,
              p.bad_slot % s.expert_per_token_count, s.expert_count(), s.rank_count,
              s.expert_per_rank_count);
}

}  // namespace

status explain(const settings& s, const mishap_record& what) {
  const plan& p = what.what;
  if (p.verdict != MORI_OK) return explain_verdict(p);
  if (what.call == mishap_of_dispatch) return explain_bad_id(s, p);
  if (p.given_rows != no_slot)
    return fail(MORI_E_INVALID, "input_row_count is {}, but {} tokens were received", p.given_rows,
                p.recv_count);
  return fail(MORI_E_INVALID,
              "indices are not the routing of the last dispatch: hash {:#x}, dispatch had {:#x}",
              p.foreign_hash, p.routing_hash);
}

}  // namespace mori::ep_core
