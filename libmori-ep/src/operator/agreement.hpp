// agreement.hpp - the collective part of create that comes before any large
// allocation: every rank shows its checked config, or that it has none, and all
// come to the same decision. A rank whose own preparation failed takes
// part, so nobody waits for it until a deadline. Read operator.hpp next.
#pragma once

#include "layout/settings.hpp"

#include <mori/shmem.h>

namespace mori::ep_core {

struct group_place {
  int32_t pe = 0;
  int32_t pe_count = 0;
};

// `own`: settings, or why this rank cannot go on. Returns MORI_OK on all ranks
// or a failure on all: the own one; else the status of a rank that failed
// (MORI_E_MISMATCH if its config was refused); else MORI_E_MISMATCH.
base::status agree_on_settings(mori_shmem* shmem, const group_place& place,
                               const base::result<settings>& own);

}  // namespace mori::ep_core
