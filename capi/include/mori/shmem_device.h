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

#define MORI_SHMEM_DEVICE_LEVEL 2u

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

/* Level 2: peers that are not mapped. Kernels and host calls write commands to
 * a ring; a thread of the library, the proxy, sends them to their targets.
 *
 * Whoever adds a command to a ring
 *   1. adds 1 to posted[pe], then takes an index: the tail before it adds 1;
 *   2. waits until index < taken + capacity_count;
 *   3. if it wants an answer, waits until busy[index % capacity_count] is 0 and
 *      stores index + 1 there;
 *   4. writes commands[index % capacity_count] and, last and with release, its
 *      turn.
 * The proxy takes commands in the order of their indices. A command with an
 * index below done is complete at its target (that of a get: here); so are the
 * first completed[pe] commands to pe. Whoever waits for an answer finds turn ==
 * index + 1 in answers[index % capacity_count], reads the value and sets busy
 * back to 0. Puts, signals and atomics of one ring to one PE take effect in
 * their order. All counters only grow. When the context ends, commands are lost
 * and waits end. */
enum {
  MORI_SHMEM_COMMAND_PUT = 1,    /* from memory of this PE                   */
  MORI_SHMEM_COMMAND_INLINE = 2, /* put of up to 16 bytes: local, compare    */
  MORI_SHMEM_COMMAND_GET = 3,
  MORI_SHMEM_COMMAND_ATOMIC = 4
};

typedef struct mori_shmem_command_v1 {
  uint64_t turn;      /* index + 1, stored last                              */
  int32_t pe;         /* target                                              */
  uint16_t kind;      /* MORI_SHMEM_COMMAND_*                                */
  uint16_t operation; /* of a put: 0 or MORI_SHMEM_SIGNAL_*; an atomic's
                         MORI_SHMEM_AMO_*                                    */
  uint64_t remote;    /* offset in the heap of pe                            */
  uint64_t local;     /* address of source or target, or the first 8 bytes   */
  uint64_t bytes;     /* of the data; an atomic's word: 4 or 8               */
  uint64_t signal;    /* put: offset of the signal; atomic: 1 for an answer  */
  uint64_t value;     /* of the signal; operand of an atomic                 */
  uint64_t compare;   /* of an atomic; bytes 8 .. 15 of an inline put        */
} mori_shmem_command_v1;

typedef struct mori_shmem_answer_v1 {
  uint64_t turn;  /* index + 1, stored last                                  */
  uint64_t value; /* of the word before the atomic                           */
} mori_shmem_answer_v1;

/* Host only: a thread that waits may do the proxy's work meanwhile, one at a
 * time, which spares two changes of threads a command. */
enum {
  MORI_SHMEM_DRIVE_BEGIN = 1, /* 0: the seat is taken, or nobody needs help  */
  MORI_SHMEM_DRIVE_STEP = 2,  /* does what there is to do, does not wait     */
  MORI_SHMEM_DRIVE_SLEEP = 3, /* the same; if there is nothing, waits up to
                                 1 ms for it                                 */
  MORI_SHMEM_DRIVE_END = 4
};

typedef struct mori_shmem_driver_v1 {
  uint64_t call;     /* address of int32_t (*)(uint64_t self, int32_t what);
                        what: MORI_SHMEM_DRIVE_*                             */
  uint64_t self;
  int32_t hears_all; /* 1: words of the heap change by the network alone, so
                        who waits for one may sleep here                     */
  int32_t reserved;
} mori_shmem_driver_v1;

/* One ring; addresses. Words of producers are in memory of the processor that
 * adds commands, all others in memory that it and the host reach. */
typedef struct mori_shmem_ring_v1 {
  uint64_t capacity_count; /* a power of two                                 */
  uint64_t commands;  /* mori_shmem_command_v1[capacity_count]               */
  uint64_t answers;   /* proxy: mori_shmem_answer_v1[capacity_count]         */
  uint64_t taken;     /* proxy: uint64_t, commands that were read            */
  uint64_t done;      /* proxy: uint64_t, leading commands that are complete */
  uint64_t completed; /* proxy: uint64_t[pe_count]                           */
  uint64_t tail;      /* producers: uint64_t, indices handed out             */
  uint64_t posted;    /* producers: uint64_t[pe_count]                       */
  uint64_t busy;      /* producers: uint64_t[capacity_count]                 */
  uint64_t seen;      /* producers: uint64_t[2], taken and done as last seen */
  uint64_t doorbell;  /* host: uint32_t[2], futex word and its sleepers; the
                         proxy rings it                                      */
  uint64_t asleep;    /* host: uint32_t, non-zero: the proxy sleeps and wants
                         8 bytes written to wake_fd                          */
  int32_t wake_fd;
  int32_t reserved;
  uint64_t driver;    /* host: address of mori_shmem_driver_v1, or 0         */
} mori_shmem_ring_v1;

/* State of one PE, level 2: the fields of level 1, then more. */
typedef struct mori_shmem_device_state_v2 {
  uint64_t struct_size;
  uint32_t level;          /* 2                                              */
  int32_t backend;
  int32_t my_pe;
  int32_t pe_count;
  uint64_t heap_base;
  uint64_t heap_bytes;
  uint64_t peer_bases;
  uint64_t transports;
  uint64_t fault;
  uint64_t abort_word;
  uint64_t wait_budget_ns;
  uint64_t spin_count;
  uint64_t peer_left;
  uint64_t peer_stride;    /* the heap of PE p is mapped at heap_base +
                              (p - my_pe) * peer_stride if p is one of       */
  int32_t strided_first;   /* the strided_count PEs from strided_first on;
                              peer_bases holds for all                       */
  uint32_t strided_count;
  uint64_t rings;          /* address of mori_shmem_ring_v1[ring_count]; the
                              queue pair of an operation selects one         */
  uint32_t ring_count;     /* 0: no PE is reached by a network               */
  uint32_t all_mapped;     /* 1: every PE has every PE mapped                */
} mori_shmem_device_state_v2;

/* cdef: end */

#ifdef __cplusplus
}
#endif

#endif /* MORI_SHMEM_DEVICE_H */
