// ring.cpp - a kernel of another compiler that speaks shmem: each PE sends a block to its right
// neighbour and waits for the left one's. Launched as one block. link.sh compiles it for an AMD or
// NVIDIA GPU and links it with the device bitcode; ring_amd.ll and ring_nvidia.ll are the same
// kernel for compilers that begin with LLVM IR.
#include <mori/shmem_functions.h>

using u64 = unsigned long long;

extern "C" __attribute__((global)) void ring(u64 inbox, u64 outbox, u64 bytes, u64 signal,
                                             u64 round) {
  const int right = (mori_shmem_my_pe() + 1) % mori_shmem_n_pes();
  const int set = 9;
  // Once for the block, whose lanes all call; they go on when the signal has come.
  mori_shmem_program_putmem_nbi_signal_block(inbox, outbox, bytes, signal, round, set, right, 0);
  mori_shmem_program_uint64_wait_until_equals(signal, round);
}
