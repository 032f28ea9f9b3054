// barrier.hpp - barrier over all PEs as a kernel: what is enqueued on a stream.
// Puts of kernels that finished before it on the same stream are complete at
// their targets when it ends.
#pragma once

#include <mori/device/kernel.hpp>
#include <mori/device_api/barrier.hpp>

namespace mori::shmem_core {

struct barrier_args {
  mori_shmem_device_state_v2 state;
};

// Launched as one block; more blocks would be more callers than the barrier allows.
MORI_DEVICE void barrier(const device::grid& g, const barrier_args& args) {
  if (g.block_index() == 0) device_api::barrier_all(g.this_block(), args.state);
}

}  // namespace mori::shmem_core
