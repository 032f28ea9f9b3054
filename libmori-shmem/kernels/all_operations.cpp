// all_operations.cpp - entry point of the compile check of the device API; not
// part of the library.
#include "all_operations.hpp"

MORI_KERNEL(mori_shmem_all_operations, mori::shmem_core::all_operations_args,
            mori::shmem_core::all_operations);
