// shmem_kernels.cpp - entry points of shmem's kernels, compiled once for each
// processor and instruction set.
#include "apply.hpp"
#include "barrier.hpp"
#include "host_call.hpp"

MORI_KERNEL(mori_shmem_barrier, mori::shmem_core::barrier_args, mori::shmem_core::barrier);
MORI_KERNEL(mori_shmem_host_call, mori::shmem_core::host_call_args, mori::shmem_core::host_call);
MORI_KERNEL(mori_shmem_apply, mori::shmem_core::apply_args, mori::shmem_core::apply);
