// world.hpp - what the tests of executed kernels stand on: PEs on plain memory that the
// host's kernels and the emulator use in turn, at the same addresses, so that even
// results that hold addresses are the same. C functions for Python; all layouts are
// the library's own. Read world.cpp next.
#pragma once

#include <cstdint>

extern "C" {

struct mori_amd_world;

// Where the things of one PE lie.
struct mori_amd_pe {
  uint64_t heap, heap_bytes;
  uint64_t user;  // behind the sync words, in the heap
  uint64_t private_memory, private_bytes;
  uint64_t state, state_bytes;  // mori_shmem_device_state_v2
  uint64_t fault, fault_bytes;  // mori_shmem_fault
  uint64_t abort_word;
  uint64_t left;                    // u32[pe_count]
  uint64_t peer_bases;              // u64[pe_count]
  uint64_t transports;              // i32[pe_count]
  uint64_t launch, launch_bytes;    // mori_device_launch, of make_launch
  uint64_t barrier, barrier_bytes;  // the grid's
  uint64_t device_barrier, device_barrier_bytes, device_epoch, doorbell;  // sync words
};

// One launch on the host: each block is a thread.
struct mori_amd_run {
  const char* kernel;
  const void* arguments;
  const void* launch;
};

// Null if there is not enough memory.
mori_amd_world* mori_amd_world_create(int32_t pe_count, uint64_t heap_bytes,
                                      uint64_t private_bytes);
void mori_amd_world_destroy(mori_amd_world* world);
// Returns the size of what it filled.
uint64_t mori_amd_world_pe(mori_amd_world* world, int32_t pe, mori_amd_pe* out);
// Fills the PE's launch for so many blocks.
void mori_amd_make_launch(mori_amd_world* world, int32_t pe, uint32_t block_count);
// The longest wait of one operation of the PE.
void mori_amd_set_wait_budget(mori_amd_world* world, int32_t pe, uint64_t ns);
// Runs the launches side by side; 0, or 1 if a kernel is unknown.
int32_t mori_amd_run_on_host(const mori_amd_run* runs, uint64_t count);
}
