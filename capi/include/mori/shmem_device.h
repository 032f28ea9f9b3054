/* mori/shmem_device.h - the device protocol: what a kernel needs to know to
 * speak shmem. Plain data only; the inline code that speaks it is in
 * mori/device_api/shmem.hpp of libmori-shmem.
 *
 * The protocol has a level of its own and is append-only: code inlined into
 * kernels, bitcode or other libraries outlives a library upgrade, so
 * mori_shmem_device_state() serves every released level, and a struct of a
 * released level never changes. Addresses are uint64_t, valid on the device
 * that the context runs on; a symmetric address of this PE is turned into the
 * address of PE p by adding peer_bases[p] - heap_base.
 */
#ifndef MORI_SHMEM_DEVICE_H
#define MORI_SHMEM_DEVICE_H

#include <stdint.h>

#define MORI_SHMEM_DEVICE_LEVEL 1u

#ifdef __cplusplus
extern "C" {
#endif

/* cdef: begin */

/* How a peer is reached. */
enum {
  MORI_SHMEM_TRANSPORT_NONE = 0, /* not reachable: operations set the fault  */
  MORI_SHMEM_TRANSPORT_P2P = 1,  /* mapped: loads and stores                 */
  MORI_SHMEM_TRANSPORT_RDMA = 2,
  MORI_SHMEM_TRANSPORT_TCP = 3
};

/* What a device operation was doing when it faulted. */
enum {
  MORI_SHMEM_OP_NONE = 0,
  MORI_SHMEM_OP_PUT = 1,
  MORI_SHMEM_OP_GET = 2,
  MORI_SHMEM_OP_PUT_SIGNAL = 3,
  MORI_SHMEM_OP_ATOMIC = 4,
  MORI_SHMEM_OP_WAIT = 5,
  MORI_SHMEM_OP_QUIET = 6,
  MORI_SHMEM_OP_BARRIER = 7,
  MORI_SHMEM_OP_EP_COUNT = 8,    /* ep: exchange of token counts             */
  MORI_SHMEM_OP_EP_PAYLOAD = 9,  /* ep: arrival of dispatched rows           */
  MORI_SHMEM_OP_EP_COMBINE = 10, /* ep: arrival of expert outputs            */
  MORI_SHMEM_OP_EP_RELEASE = 11  /* ep: peers done reading our buffers       */
};

/* First fault of a context; later ones are dropped. claimed: 0 free, 1 being
 * written, 2 complete (stored with release after the other fields). */
typedef struct mori_shmem_fault {
  uint64_t claimed;
  int32_t status;    /* mori_status                                          */
  int32_t operation; /* MORI_SHMEM_OP_*                                      */
  int32_t pe;        /* whom it concerns, -1 for none                        */
  int32_t reserved;  /* 0                                                    */
  uint64_t awaited;  /* the value waited for, or the offending argument      */
  uint64_t seen;     /* the value last seen, or the limit                    */
} mori_shmem_fault;

/* Words of one PE that its peers write: the first bytes of its heap. Every
 * group of words that one peer polls or writes has its own 64-byte line.
 * Counters only grow, so nothing is ever reset. */
typedef struct mori_shmem_sync_v1 {
  uint64_t nonce;             /* proves that a mapping reaches this PE       */
  uint64_t reserved0[7];
  uint32_t doorbell;          /* host: futex word, bumped after a signal     */
  uint32_t waiter_count;      /* host: threads that sleep on doorbell        */
  uint64_t reserved1[7];
  uint64_t device_barrier[32][8]; /* [round][0]: epoch of the sender         */
  uint64_t host_barrier[32][8];   /* same, for host calls                    */
  uint64_t device_epoch;      /* own counter of device barriers              */
  uint64_t host_epoch;        /* own counter of host barriers                */
  uint64_t reserved2[6];
} mori_shmem_sync_v1;

/* State of one PE, level 1. Read-only for kernels. */
typedef struct mori_shmem_device_state_v1 {
  uint64_t struct_size;
  uint32_t level;          /* 1                                              */
  int32_t backend;         /* MORI_BACKEND_*                                 */
  int32_t my_pe;
  int32_t pe_count;
  uint64_t heap_base;      /* own heap; starts with mori_shmem_sync_v1       */
  uint64_t heap_bytes;
  uint64_t peer_bases;     /* address of uint64_t[pe_count]; 0: not P2P      */
  uint64_t transports;     /* address of int32_t[pe_count]                   */
  uint64_t fault;          /* address of the context's mori_shmem_fault      */
  uint64_t abort_word;     /* address of uint64_t; non-zero ends every wait  */
  uint64_t wait_budget_ns; /* longest wait of one operation, a duration      */
  uint64_t spin_count;     /* host: polls before a wait yields, then sleeps  */
  uint64_t peer_left;      /* address of uint32_t[pe_count], 0: unknown; non-
                              zero entry: that PE has left, a wait that names
                              it ends with MORI_E_PEER_DEAD                  */
} mori_shmem_device_state_v1;

/* cdef: end */

#ifdef __cplusplus
}
#endif

#endif /* MORI_SHMEM_DEVICE_H */
