// shmem_kernels.cpp - entry points of shmem's kernels, compiled once for each
// processor and instruction set.
#include "barrier.hpp"

MORI_KERNEL(mori_shmem_barrier, mori::shmem_core::barrier_args, mori::shmem_core::barrier);
