; ring_nvidia.ll - the kernel of ring.cpp as LLVM IR for NVIDIA GPUs.
target triple = "nvptx64-nvidia-cuda"

declare i32 @mori_shmem_my_pe()
declare i32 @mori_shmem_n_pes()
declare i32 @mori_shmem_program_putmem_nbi_signal_block(i64, i64, i64, i64, i64, i32, i32, i32) convergent
declare i32 @mori_shmem_program_uint64_wait_until_equals(i64, i64) convergent

define ptx_kernel void @ring(i64 %inbox, i64 %outbox, i64 %bytes, i64 %signal, i64 %round) convergent {
  %me = call i32 @mori_shmem_my_pe()
  %count = call i32 @mori_shmem_n_pes()
  %next = add i32 %me, 1
  %right = srem i32 %next, %count
  %put = call i32 @mori_shmem_program_putmem_nbi_signal_block(i64 %inbox, i64 %outbox, i64 %bytes, i64 %signal, i64 %round, i32 9, i32 %right, i32 0) convergent
  %met = call i32 @mori_shmem_program_uint64_wait_until_equals(i64 %signal, i64 %round) convergent
  ret void
}
