// ep_calls.hpp - calls of ep's kernels on the PEs of a world: memory and arguments as the
// operator lays them out, by the same functions; random input and its expected
// results from ep's own tests. C functions for Python. Read ep_calls.cpp next.
#pragma once

#include "world.hpp"

#include <cstdint>

extern "C" {

struct mori_amd_ep;

// Fields of mori_ep_config, and the seed of all randomness.
struct mori_amd_ep_options {
  uint64_t seed;
  uint64_t hidden_dim, scale_dim, scale_elem_bytes;
  uint64_t max_input_token_count, max_total_recv_token_count;
  uint64_t expert_per_rank_count, expert_per_token_count;
  uint64_t registered_input, drop_invalid_experts;
  uint64_t call_count;  // of calls whose input lies in memory side by side
};

// One rank's part of a call: the kernel's name and arguments, and where combine leaves
// its numbers, which are not compared as bytes: NaN may have any payload.
struct mori_amd_ep_launch {
  const char* kernel;
  const void* arguments;
  uint64_t arguments_bytes;
  uint64_t numbers, numbers_bytes;
};

// Symmetric and private memory that each PE needs; 0 for options that ep refuses.
uint64_t mori_amd_ep_heap_bytes(const mori_amd_ep_options* options, int32_t pe_count);
uint64_t mori_amd_ep_private_bytes(const mori_amd_ep_options* options, int32_t pe_count);

// Null if ep refuses the options. The world must outlive it.
mori_amd_ep* mori_amd_ep_create(mori_amd_world* world, const mori_amd_ep_options* options,
                                int32_t pe_count);
void mori_amd_ep_destroy(mori_amd_ep* ep);

// Make input and arguments of the next call on all PEs, and return its number. The input of calls
// before stays in place until `clear`. Flags are MORI_AMD_EP_*.
enum {
  MORI_AMD_EP_WEIGHTS = 1,
  MORI_AMD_EP_SCALES = 2,
  MORI_AMD_EP_COUNT_EXPERTS = 4,
  MORI_AMD_EP_IN_PLACE = 8,     // combine: rows are in the buffer that dispatch filled
  MORI_AMD_EP_REGISTERED = 16,  // combine: in the registered buffer
  MORI_AMD_EP_BAD_IDS = 32,     // dispatch: some ids are out of range
  MORI_AMD_EP_FOREIGN = 64      // combine: PE 0 gives other indices than to dispatch
};
uint64_t mori_amd_ep_prepare_dispatch(mori_amd_ep* ep, int32_t dtype, uint32_t flags);
uint64_t mori_amd_ep_prepare_combine(mori_amd_ep* ep, int32_t dtype, uint32_t flags);
void mori_amd_ep_launch_of(mori_amd_ep* ep, uint64_t call, int32_t pe, mori_amd_ep_launch* out);
void mori_amd_ep_clear(mori_amd_ep* ep);

// Keeps what the PE has right after its part of the call: the next one may overwrite it.
void mori_amd_ep_keep(mori_amd_ep* ep, uint64_t call, int32_t pe);
// "" if what was kept of all PEs is what the reference says, else what differs. Valid until the
// next call.
const char* mori_amd_ep_check(mori_amd_ep* ep, uint64_t call);
// What the PE's last call found wrong: "" or what the operator would say. Clears it.
const char* mori_amd_ep_mishap(mori_amd_ep* ep, int32_t pe);
}
