// kernels.cpp - see kernels.hpp: the least of the host's instruction sets, which all give the same
// results.
#include "kernels.hpp"

extern "C" {
extern const mori_device_host_kernel mori_amd_lane_programs_base, mori_amd_wave_programs_base,
    mori_amd_block_programs_base, mori_shmem_barrier_base, mori_shmem_apply_base,
    mori_shmem_host_call_base, mori_shmem_all_operations_base, mori_test_lockstep_base,
    mori_test_collectives_base, mori_test_rows_base, mori_test_deserter_base,
    mori_ep_intra_node_dispatch_base, mori_ep_intra_node_combine_f32_base,
    mori_ep_intra_node_combine_bf16_base, mori_ep_intra_node_combine_f16_base,
    mori_ep_intra_node_combine_e4m3fn_base, mori_ep_intra_node_combine_e4m3fnuz_base;
}

namespace mori::amd_test {

std::span<const mori_device_host_kernel* const> host_kernels() {
  static const mori_device_host_kernel* const all[] = {
      &mori_amd_lane_programs_base,
      &mori_amd_wave_programs_base,
      &mori_amd_block_programs_base,
      &mori_shmem_barrier_base,
      &mori_shmem_apply_base,
      &mori_shmem_host_call_base,
      &mori_shmem_all_operations_base,
      &mori_test_lockstep_base,
      &mori_test_collectives_base,
      &mori_test_rows_base,
      &mori_test_deserter_base,
      &mori_ep_intra_node_dispatch_base,
      &mori_ep_intra_node_combine_f32_base,
      &mori_ep_intra_node_combine_bf16_base,
      &mori_ep_intra_node_combine_f16_base,
      &mori_ep_intra_node_combine_e4m3fn_base,
      &mori_ep_intra_node_combine_e4m3fnuz_base,
  };
  return all;
}

}  // namespace mori::amd_test
