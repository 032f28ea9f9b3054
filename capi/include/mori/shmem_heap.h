/* mori/shmem_heap.h - the symmetric heap beyond mori_shmem_malloc: its modes,
 * its statistics, and allocation with flags. Part of mori/shmem.h, which
 * includes it; read that first.
 *
 * Modes (MORI_SHMEM_HEAP_*; option heap_mode, else env MORI_SHMEM_MODE). In all
 * of them the heap is one range of addresses, the same offsets on all PEs, so
 * kernels, mori_shmem_ptr_p2p and all operations work alike.
 *   static     a heap of heap_bytes. On a GPU its memory is taken at create,
 *              on the host page by page by the allocations.
 *   vmm        heap_bytes are only addresses (default 16 GiB): memory is taken
 *              as allocations need it, in chunks of MORI_SHMEM_VMM_CHUNK_SIZE
 *              (default 64 MiB), and given back with the last allocation of a
 *              chunk. Host only in this release.
 *   isolation  each allocation has its own pages and a page behind it that
 *              nobody may touch: on the host a store past its end, or to a
 *              block whose memory was given back, is a SIGSEGV at once and
 *              harms no other allocation. Host only in this release.
 */
#ifndef MORI_SHMEM_HEAP_H
#define MORI_SHMEM_HEAP_H

#include <mori/shmem_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cdef: begin */

/* Kinds of memory that mori_shmem_malloc_with_flags knows; the values are
 * those of HIP. The heap's memory is all of these at once: what a PE has
 * written is seen by the others after a fence or quiet, whatever the kind. */
enum {
  MORI_SHMEM_MALLOC_DEFAULT = 0,
  MORI_SHMEM_MALLOC_FINE_GRAINED = 1,
  MORI_SHMEM_MALLOC_UNCACHED = 3
};

/* Report of mori_shmem_heap_stats, of this PE's heap. */
typedef struct mori_shmem_heap_report {
  uint64_t struct_size;
  uint64_t size_bytes;         /* can be allocated, taken or not             */
  uint64_t used_bytes;         /* allocated, with rounding and guard pages   */
  uint64_t peak_bytes;         /* largest used_bytes so far                  */
  uint64_t free_bytes;         /* size_bytes - used_bytes                    */
  uint64_t largest_free_bytes; /* largest allocation that would succeed      */
  uint64_t committed_bytes;    /* memory behind the heap now; what was freed
                                  counts until the next malloc               */
  uint64_t allocation_count;   /* live ones                                  */
  uint64_t free_block_count;   /* pieces that the free bytes are in          */
  uint64_t step_bytes;         /* memory is taken in steps of so much        */
  int32_t heap_mode;           /* MORI_SHMEM_HEAP_*                          */
  int32_t reserved;            /* 0                                          */
} mori_shmem_heap_report;

/* Statistics of the heap. any-thread. Never blocks.
 * Fails with MORI_E_STATE, MORI_E_INVALID. */
MORI_API mori_status
mori_shmem_heap_stats(const mori_shmem *in_shmem,
                      mori_shmem_heap_report *out_report, mori_error *error);

/* As mori_shmem_malloc, of a kind of memory: MORI_SHMEM_MALLOC_*, the same on
 * all PEs. any-thread, but all PEs must call in the same order. Blocks.
 * Fails with MORI_E_UNSUPPORTED (flags), and as mori_shmem_malloc does. */
MORI_API mori_status mori_shmem_malloc_with_flags(mori_shmem *in_shmem,
                                                  uint64_t size_bytes,
                                                  uint32_t flags,
                                                  void **out_pointer,
                                                  mori_error *error);

/* cdef: end */

#ifdef __cplusplus
}
#endif

#endif /* MORI_SHMEM_HEAP_H */
