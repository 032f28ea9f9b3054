// verdict.hpp - what the kernels found wrong, in words that name ranks, values
// and limits. A pure function of the record.
#pragma once

#include "kernels/plan.hpp"
#include "layout/settings.hpp"

#include <mori/base/result.hpp>

namespace mori::ep_core {

// A verdict (MORI_E_OVERFLOW, MORI_E_MISMATCH: the same on every rank), else this rank's own fault,
// MORI_E_INVALID: an expert id out of range, too few rows, foreign indices.
base::status explain(const settings& s, const mishap_record& what);

}  // namespace mori::ep_core
