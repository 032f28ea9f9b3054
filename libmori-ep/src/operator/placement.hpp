// placement.hpp - all addresses and numbers that kernels are given with each call, from
// the layouts and the two blocks of memory. Pure arithmetic. Read operator.hpp next.
#pragma once

#include "kernels/plan.hpp"
#include "layout/buffers.hpp"
#include "layout/settings.hpp"

namespace mori::ep_core {

struct placement {
  const settings& config;
  const symmetric_layout& symmetric;
  const private_layout& own;
};

struct addresses {
  uint64_t symmetric;
  uint64_t own;
  uint64_t mishap;
  uint32_t rank;
};

places place(const placement& of, const addresses& here, const mori_shmem_device_state_v1& state);

}  // namespace mori::ep_core
