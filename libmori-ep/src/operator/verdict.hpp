// verdict.hpp - what the kernels found wrong, in words that name ranks, values
// and limits. Pure functions of the plan.
#pragma once

#include "kernels/plan.hpp"
#include "layout/settings.hpp"

#include <mori/base/result.hpp>

namespace mori::ep_core {

// MORI_E_OVERFLOW or MORI_E_MISMATCH of the last launch, the same on every rank.
base::status explain_verdict(const plan& p);

// An own expert id out of range, MORI_E_INVALID on this rank alone.
base::status explain_bad_id(const settings& s, const plan& p);

}  // namespace mori::ep_core
