// launch.hpp - plain structs that the runtime hands to every kernel. They are in
// the global namespace and have one layout in all languages, so that the
// host runtime can talk to code compiled for another instruction set or processor.
// Used by grid.hpp and kernel.hpp on one side, runtime.hpp on the other.
#pragma once

extern "C" {

// Words of a grid barrier, on a cache line of their own. Zero at the start of each launch
// (a barrier that was given up leaves a partial count behind).
struct mori_device_grid_barrier {
  unsigned arrived;
  unsigned generation;
  unsigned doorbell;
  unsigned waiter_count;
  unsigned reserved[12];
};

// What a kernel gets besides its own arguments.
struct mori_device_launch {
  unsigned long struct_size;
  unsigned block_count;      // 0: a launch that does nothing, so that later ones are not the first
  int pe;                    // whom a fault of the grid barrier names: this PE
  unsigned long barrier;     // address of mori_device_grid_barrier
  unsigned long abort_word;  // as in mori_shmem_device_state_v1
  unsigned long fault;
  unsigned long wait_budget_ns;
  unsigned long spin_count;
};

// One host variant of a kernel, as MORI_KERNEL defines it.
struct mori_device_host_kernel {
  const char* name;
  unsigned long args_bytes;
  void (*run)(const void* args, const mori_device_launch* launch, unsigned block_index);
};

}  // extern "C"
