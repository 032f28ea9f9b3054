/* shmem_functions.h - the functions of libmori_shmem_device-ARCH.bc, for kernels in
 * C, C++, HIP or CUDA that are linked with it.
 * Generated from libmori-shmem/functions/declarations.py.
 *
 * mori_shmem_X is executed by the lanes of its group (one lane, those of a wave, those
 * of a block), all with the same arguments. mori_shmem_program_X is called by all
 * lanes of a block, acts once and gives its result to all of them; they meet before
 * and after it. The reference page, docs/device_functions.md, says what each does.
 *
 * The module that the kernel is in holds the state: mori_shmem_module_init() of
 * mori/shmem_module.h sets it. Without it, and after the context has ended, the
 * functions do nothing and return MORI_E_STATE (2), or what the page says.
 *
 * mori/shmem.h has host functions of the names mori_shmem_my_pe and
 * mori_shmem_ptr_p2p: include one of the two headers in a source for the host.
 */
#ifndef MORI_SHMEM_FUNCTIONS_H
#define MORI_SHMEM_FUNCTIONS_H

/* What a function that kernels call is marked with: HIP's and CUDA's compilers
 * take the attribute, a plain C compiler for a GPU needs none (define it empty). */
#if !defined(MORI_DEVICE_CALL)
#define MORI_DEVICE_CALL __attribute__((device))
#endif

#if !defined(MORI_DEVICE_NAME)
#define MORI_DEVICE_NAME(name) mori_shmem_##name
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define MORI_LOOKUP(result, name, parameters) \
  MORI_DEVICE_CALL result MORI_DEVICE_NAME(name) parameters;
#define MORI_FUNCTION(result, name, parameters) \
  MORI_LOOKUP(result, name, parameters)         \
  MORI_LOOKUP(result, program_##name, parameters)

/* clang-format off */
/* Queries */
MORI_LOOKUP(int, my_pe, (void))
MORI_LOOKUP(int, n_pes, (void))
MORI_LOOKUP(unsigned long long, ptr_p2p, (unsigned long long address, int from_pe, int pe))
MORI_LOOKUP(unsigned long long, ptr, (unsigned long long address, int pe))

/* Order and completion */
MORI_FUNCTION(int, quiet_thread, (void))
MORI_FUNCTION(int, quiet_thread_pe, (int pe))
MORI_FUNCTION(int, quiet_thread_pe_qp, (int pe, int qp))
MORI_FUNCTION(int, fence_thread, (void))
MORI_FUNCTION(int, fence_thread_pe, (int pe))
MORI_FUNCTION(int, fence_thread_pe_qp, (int pe, int qp))

/* Barriers */
MORI_FUNCTION(int, barrier_all_thread, (void))
MORI_FUNCTION(int, barrier_all_block, (void))

/* Puts */
MORI_FUNCTION(int, putmem_nbi_thread, (unsigned long long dest, unsigned long long source, unsigned
    long long bytes, int pe, int qp))
MORI_FUNCTION(int, put_uint32_nbi_thread, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))
MORI_FUNCTION(int, put_uint64_nbi_thread, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))
MORI_FUNCTION(int, put_float_nbi_thread, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))
MORI_FUNCTION(int, put_double_nbi_thread, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))
MORI_FUNCTION(int, putmem_nbi_warp, (unsigned long long dest, unsigned long long source, unsigned
    long long bytes, int pe, int qp))
MORI_FUNCTION(int, put_uint32_nbi_warp, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))
MORI_FUNCTION(int, put_uint64_nbi_warp, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))
MORI_FUNCTION(int, put_float_nbi_warp, (unsigned long long dest, unsigned long long source, unsigned
    long long count, int pe, int qp))
MORI_FUNCTION(int, put_double_nbi_warp, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))
MORI_FUNCTION(int, putmem_nbi_block, (unsigned long long dest, unsigned long long source, unsigned
    long long bytes, int pe, int qp))
MORI_FUNCTION(int, put_uint32_nbi_block, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))
MORI_FUNCTION(int, put_uint64_nbi_block, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))
MORI_FUNCTION(int, put_float_nbi_block, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))
MORI_FUNCTION(int, put_double_nbi_block, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))

/* Gets */
MORI_FUNCTION(int, getmem_nbi_thread, (unsigned long long dest, unsigned long long source, unsigned
    long long bytes, int pe, int qp))
MORI_FUNCTION(int, get_uint32_nbi_thread, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))
MORI_FUNCTION(int, get_uint64_nbi_thread, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))
MORI_FUNCTION(int, get_float_nbi_thread, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))
MORI_FUNCTION(int, get_double_nbi_thread, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))
MORI_FUNCTION(int, getmem_nbi_warp, (unsigned long long dest, unsigned long long source, unsigned
    long long bytes, int pe, int qp))
MORI_FUNCTION(int, get_uint32_nbi_warp, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))
MORI_FUNCTION(int, get_uint64_nbi_warp, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))
MORI_FUNCTION(int, get_float_nbi_warp, (unsigned long long dest, unsigned long long source, unsigned
    long long count, int pe, int qp))
MORI_FUNCTION(int, get_double_nbi_warp, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))
MORI_FUNCTION(int, getmem_nbi_block, (unsigned long long dest, unsigned long long source, unsigned
    long long bytes, int pe, int qp))
MORI_FUNCTION(int, get_uint32_nbi_block, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))
MORI_FUNCTION(int, get_uint64_nbi_block, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))
MORI_FUNCTION(int, get_float_nbi_block, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))
MORI_FUNCTION(int, get_double_nbi_block, (unsigned long long dest, unsigned long long source,
    unsigned long long count, int pe, int qp))
MORI_FUNCTION(int, getmem_thread, (unsigned long long dest, unsigned long long source, unsigned long
    long bytes, int pe, int qp))
MORI_FUNCTION(int, get_uint32_thread, (unsigned long long dest, unsigned long long source, unsigned
    long long count, int pe, int qp))
MORI_FUNCTION(int, get_uint64_thread, (unsigned long long dest, unsigned long long source, unsigned
    long long count, int pe, int qp))
MORI_FUNCTION(int, get_float_thread, (unsigned long long dest, unsigned long long source, unsigned
    long long count, int pe, int qp))
MORI_FUNCTION(int, get_double_thread, (unsigned long long dest, unsigned long long source, unsigned
    long long count, int pe, int qp))
MORI_FUNCTION(int, getmem_warp, (unsigned long long dest, unsigned long long source, unsigned long
    long bytes, int pe, int qp))
MORI_FUNCTION(int, get_uint32_warp, (unsigned long long dest, unsigned long long source, unsigned
    long long count, int pe, int qp))
MORI_FUNCTION(int, get_uint64_warp, (unsigned long long dest, unsigned long long source, unsigned
    long long count, int pe, int qp))
MORI_FUNCTION(int, get_float_warp, (unsigned long long dest, unsigned long long source, unsigned
    long long count, int pe, int qp))
MORI_FUNCTION(int, get_double_warp, (unsigned long long dest, unsigned long long source, unsigned
    long long count, int pe, int qp))
MORI_FUNCTION(int, getmem_block, (unsigned long long dest, unsigned long long source, unsigned long
    long bytes, int pe, int qp))
MORI_FUNCTION(int, get_uint32_block, (unsigned long long dest, unsigned long long source, unsigned
    long long count, int pe, int qp))
MORI_FUNCTION(int, get_uint64_block, (unsigned long long dest, unsigned long long source, unsigned
    long long count, int pe, int qp))
MORI_FUNCTION(int, get_float_block, (unsigned long long dest, unsigned long long source, unsigned
    long long count, int pe, int qp))
MORI_FUNCTION(int, get_double_block, (unsigned long long dest, unsigned long long source, unsigned
    long long count, int pe, int qp))

/* Puts with a signal */
MORI_FUNCTION(int, putmem_nbi_signal_thread, (unsigned long long dest, unsigned long long source,
    unsigned long long bytes, unsigned long long signal, unsigned long long signal_value, int
    signal_op, int pe, int qp))
MORI_FUNCTION(int, putmem_nbi_signal_warp, (unsigned long long dest, unsigned long long source,
    unsigned long long bytes, unsigned long long signal, unsigned long long signal_value, int
    signal_op, int pe, int qp))
MORI_FUNCTION(int, putmem_nbi_signal_block, (unsigned long long dest, unsigned long long source,
    unsigned long long bytes, unsigned long long signal, unsigned long long signal_value, int
    signal_op, int pe, int qp))

/* Puts of one value */
MORI_FUNCTION(int, put_size_imm_nbi_thread, (unsigned long long dest, unsigned long long
    value_address, unsigned long long bytes, int pe, int qp))
MORI_FUNCTION(int, int32_p, (unsigned long long dest, int value, int pe, int qp))
MORI_FUNCTION(int, int64_p, (unsigned long long dest, long long value, int pe, int qp))
MORI_FUNCTION(int, uint32_p, (unsigned long long dest, unsigned int value, int pe, int qp))
MORI_FUNCTION(int, uint64_p, (unsigned long long dest, unsigned long long value, int pe, int qp))
MORI_FUNCTION(int, int_p, (unsigned long long dest, int value, int pe, int qp))
MORI_FUNCTION(int, float_p, (unsigned long long dest, float value, int pe, int qp))
MORI_FUNCTION(int, double_p, (unsigned long long dest, double value, int pe, int qp))
MORI_FUNCTION(int, long_p, (unsigned long long dest, long long value, int pe, int qp))
MORI_FUNCTION(int, longlong_p, (unsigned long long dest, long long value, int pe, int qp))
MORI_FUNCTION(int, char_p, (unsigned long long dest, signed char value, int pe, int qp))
MORI_FUNCTION(int, short_p, (unsigned long long dest, short value, int pe, int qp))
MORI_FUNCTION(int, uint_p, (unsigned long long dest, unsigned int value, int pe, int qp))
MORI_FUNCTION(int, ulong_p, (unsigned long long dest, unsigned long long value, int pe, int qp))
MORI_FUNCTION(int, ulonglong_p, (unsigned long long dest, unsigned long long value, int pe, int qp))
MORI_FUNCTION(int, uchar_p, (unsigned long long dest, unsigned char value, int pe, int qp))
MORI_FUNCTION(int, ushort_p, (unsigned long long dest, unsigned short value, int pe, int qp))

/* Atomics */
MORI_FUNCTION(int, atomic_size_nonfetch_thread, (unsigned long long dest, unsigned long long
    value_address, unsigned long long bytes, int op, int pe, int qp))
MORI_FUNCTION(int, atomic_uint32_nonfetch_thread, (unsigned long long dest, unsigned int value, int
    op, int pe, int qp))
MORI_FUNCTION(int, atomic_uint64_nonfetch_thread, (unsigned long long dest, unsigned long long
    value, int op, int pe, int qp))
MORI_FUNCTION(int, atomic_int64_nonfetch_thread, (unsigned long long dest, long long value, int op,
    int pe, int qp))
MORI_FUNCTION(unsigned int, atomic_uint32_fetch_thread, (unsigned long long dest, unsigned int
    value, unsigned int compare, int op, int pe, int qp))
MORI_FUNCTION(unsigned long long, atomic_uint64_fetch_thread, (unsigned long long dest, unsigned
    long long value, unsigned long long compare, int op, int pe, int qp))
MORI_FUNCTION(long long, atomic_int64_fetch_thread, (unsigned long long dest, long long value, long
    long compare, int op, int pe, int qp))
MORI_FUNCTION(int, uint32_atomic_add_thread, (unsigned long long dest, unsigned int value, int pe,
    int qp))
MORI_FUNCTION(unsigned int, uint32_atomic_fetch_add_thread, (unsigned long long dest, unsigned int
    value, int pe, int qp))
MORI_FUNCTION(int, uint64_atomic_add_thread, (unsigned long long dest, unsigned long long value, int
    pe, int qp))
MORI_FUNCTION(unsigned long long, uint64_atomic_fetch_add_thread, (unsigned long long dest, unsigned
    long long value, int pe, int qp))
MORI_FUNCTION(int, int64_atomic_add_thread, (unsigned long long dest, long long value, int pe, int
    qp))
MORI_FUNCTION(long long, int64_atomic_fetch_add_thread, (unsigned long long dest, long long value,
    int pe, int qp))

/* Waits */
MORI_FUNCTION(unsigned int, uint32_wait_until_greater_than, (unsigned long long address, unsigned
    int value))
MORI_FUNCTION(int, uint32_wait_until_equals, (unsigned long long address, unsigned int value))
MORI_FUNCTION(unsigned long long, uint64_wait_until_greater_than, (unsigned long long address,
    unsigned long long value))
MORI_FUNCTION(int, uint64_wait_until_equals, (unsigned long long address, unsigned long long value))
MORI_FUNCTION(int, int32_wait_until_greater_than, (unsigned long long address, int value))
MORI_FUNCTION(int, int32_wait_until_equals, (unsigned long long address, int value))
MORI_FUNCTION(long long, int64_wait_until_greater_than, (unsigned long long address, long long
    value))
MORI_FUNCTION(int, int64_wait_until_equals, (unsigned long long address, long long value))

/* clang-format on */
#undef MORI_FUNCTION
#undef MORI_LOOKUP

#ifdef __cplusplus
}
#endif

#endif /* MORI_SHMEM_FUNCTIONS_H */
