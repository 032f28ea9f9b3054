; ring_amd.ll - the kernel of ring.cpp as LLVM IR for AMD GPUs.
target triple = "amdgcn-amd-amdhsa"

declare i32 @mori_shmem_my_pe()
declare i32 @mori_shmem_n_pes()
declare i32 @mori_shmem_program_putmem_nbi_signal_block(i64, i64, i64, i64, i64, i32, i32, i32) convergent
declare i32 @mori_shmem_program_uint64_wait_until_equals(i64, i64) convergent

define amdgpu_kernel void @ring(i64 %inbox, i64 %outbox, i64 %bytes, i64 %signal, i64 %round) #0 {
  %me = call i32 @mori_shmem_my_pe()
  %count = call i32 @mori_shmem_n_pes()
  %next = add i32 %me, 1
  %right = srem i32 %next, %count
  %put = call i32 @mori_shmem_program_putmem_nbi_signal_block(i64 %inbox, i64 %outbox, i64 %bytes, i64 %signal, i64 %round, i32 9, i32 %right, i32 0) convergent
  %met = call i32 @mori_shmem_program_uint64_wait_until_equals(i64 %signal, i64 %round) convergent
  ret void
}

attributes #0 = { convergent "amdgpu-flat-work-group-size"="1,1024" "uniform-work-group-size"="true" }

!llvm.module.flags = !{!0}
!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}
