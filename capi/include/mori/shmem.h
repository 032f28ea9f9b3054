/* mori/shmem.h - OpenSHMEM-style symmetric memory: one-sided puts, gets,
 * signals and atomics on memory that every PE of a group allocates alike.
 *
 * Read in this order: mori_shmem_unique_id_create, mori_shmem_options,
 * mori_shmem_create, mori_shmem_malloc, mori_shmem_put.
 *
 * A context is one PE's membership of one group. A process may hold many: PEs
 * may be processes or threads, and several groups may live side by side.
 * A fault (a dead PE, a deadline that passed, an abort) is sticky: it is
 * recorded once, every later call that communicates returns it, device
 * operations become no-ops, and queries, free and mori_shmem_destroy go on
 * working; a new context may be created at once. The PE that finds the fault
 * has its status, the others get that or MORI_E_ABORTED with the same text.
 * Conventions: see mori/base.h. Kernels: see mori/shmem_device.h.
 */
#ifndef MORI_SHMEM_H
#define MORI_SHMEM_H

#include <mori/base.h>
#include <mori/shmem_device.h>
#include <mori/shmem_heap.h>
#include <mori/shmem_teams.h>
#include <mori/shmem_types.h>

#define MORI_SHMEM_VERSION_MAJOR 0
#define MORI_SHMEM_VERSION_MINOR 3
#define MORI_SHMEM_VERSION_PATCH 0

#define MORI_SHMEM_UNIQUE_ID_BYTES 128

#ifdef __cplusplus
extern "C" {
#endif

/* cdef: begin */

/* Keeps the memory of a context mapped while something built on it (a device
 * state, raw peer pointers) is in use. */
typedef struct mori_shmem_lease mori_shmem_lease;

/* Rendezvous of a group: addresses and port of the process that made it, and
 * a 256-bit random secret. Whoever holds it may join; keep it private. */
typedef struct mori_shmem_unique_id {
  uint8_t bytes[128];
} mori_shmem_unique_id;

/* How the heap is built; mori/shmem_heap.h says what each mode means. */
enum {
  MORI_SHMEM_HEAP_DEFAULT = 0,   /* MORI_SHMEM_MODE, else static             */
  MORI_SHMEM_HEAP_STATIC = 1,    /* one reservation, made at create          */
  MORI_SHMEM_HEAP_VMM = 2,       /* grows on demand                          */
  MORI_SHMEM_HEAP_ISOLATION = 3  /* each allocation on its own               */
};

/* Signal operations of put-with-signal. */
enum { MORI_SHMEM_SIGNAL_SET = 9, MORI_SHMEM_SIGNAL_ADD = 10 };

/* Atomic operations; FETCH ones return the value before. */
enum {
  MORI_SHMEM_AMO_INC = 2,
  MORI_SHMEM_AMO_SET = 3,
  MORI_SHMEM_AMO_ADD = 4,
  MORI_SHMEM_AMO_AND = 5,
  MORI_SHMEM_AMO_OR = 6,
  MORI_SHMEM_AMO_XOR = 7,
  MORI_SHMEM_AMO_FETCH = 12,
  MORI_SHMEM_AMO_FETCH_INC = 13,
  MORI_SHMEM_AMO_FETCH_ADD = 14,
  MORI_SHMEM_AMO_FETCH_AND = 15,
  MORI_SHMEM_AMO_FETCH_OR = 16,
  MORI_SHMEM_AMO_FETCH_XOR = 17,
  MORI_SHMEM_AMO_SWAP = 18,
  MORI_SHMEM_AMO_COMPARE_SWAP = 19
};

/* Comparisons of mori_shmem_wait_until; unsigned. */
enum {
  MORI_SHMEM_CMP_EQ = 1,
  MORI_SHMEM_CMP_NE = 2,
  MORI_SHMEM_CMP_GT = 3,
  MORI_SHMEM_CMP_GE = 4,
  MORI_SHMEM_CMP_LT = 5,
  MORI_SHMEM_CMP_LE = 6
};

/* Options of mori_shmem_create. pe and pe_count are required. */
typedef struct mori_shmem_options {
  uint64_t struct_size;
  int32_t pe;                    /* 0 .. pe_count - 1                        */
  int32_t pe_count;              /* 1 .. 4096, the same on all PEs           */
  int32_t backend;               /* MORI_BACKEND_*; auto: env MORI_BACKEND,
                                    else host. GPU: thread's current device  */
  int32_t heap_mode;             /* MORI_SHMEM_HEAP_*                        */
  uint64_t heap_bytes;           /* per PE, same on all; default: env
                                    MORI_SHMEM_HEAP_SIZE ("6G", "512MiB"),
                                    else 4 GiB, for vmm 16 GiB. On the host
                                    pages are taken when allocated           */
  uint64_t bootstrap_timeout_ns; /* default MORI_BOOTSTRAP_TIMEOUT (seconds),
                                    else 300 s                               */
  uint64_t wait_timeout_ns;      /* collectives and device waits; default
                                    MORI_TIMEOUT_MS, else 300 s              */
  uint64_t heartbeat_timeout_ns; /* silence after which a PE counts as dead;
                                    default MORI_HEARTBEAT_TIMEOUT_MS, else
                                    10 s; at least 100 ms                    */
  int32_t disable_p2p;           /* 1: map no peer; default MORI_DISABLE_P2P */
  int32_t worker_count;          /* host: threads that run kernels; default:
                                    cores / PEs on this node, at least 1     */
} mori_shmem_options;

/* Report of mori_shmem_info. */
typedef struct mori_shmem_report {
  uint64_t struct_size;
  int32_t pe;
  int32_t pe_count;
  int32_t node;               /* index of this PE's node, by first PE        */
  int32_t node_count;
  int32_t local_pe;           /* index of this PE within its node            */
  int32_t local_pe_count;
  int32_t backend;            /* MORI_BACKEND_*                              */
  int32_t heap_mode;          /* MORI_SHMEM_HEAP_*                           */
  uint64_t heap_bytes;        /* size, the library's own first bytes too     */
  uint64_t used_bytes;        /* allocated now, alignment included           */
  uint64_t peak_bytes;
  uint64_t largest_free_bytes;
  int32_t queue_pair_per_pe_count;
  int32_t worker_count;
  uint64_t wait_timeout_ns;
  int32_t gpu_ordinal;        /* as the driver numbers it; -1: host          */
  int32_t gpu_sharer_count;   /* PEs that share this GPU (MORI_GPU_SHARERS
                                 overrides); 0: host                         */
} mori_shmem_report;

/* Report of mori_shmem_peer_info. */
typedef struct mori_shmem_peer_report {
  uint64_t struct_size;
  int32_t pe;
  int32_t node;
  int32_t transport;          /* MORI_SHMEM_TRANSPORT_*                      */
  int32_t os_process_id;
  char reason[224];           /* why this transport and not a better one     */
} mori_shmem_peer_report;

/* Version of the loaded library, packed as MORI_VERSION_PACK.
 * any-thread. Never blocks. */
MORI_API uint32_t mori_shmem_version(void);

/* Goes up by one whenever a symbol or a struct field is added.
 * any-thread. Never blocks. */
MORI_API uint32_t mori_shmem_abi_level(void);

/* Name of a status, "MORI_E_TIMEOUT"; "MORI_E_?" for an unknown value. The
 * string is static. any-thread. Never blocks. */
MORI_API const char *mori_shmem_status_name(mori_status status);

/* Sets what is logged to stderr and to the queue: MORI_LOG_*. The environment
 * variable MORI_LOG_LEVEL sets the first value. any-thread. Never blocks.
 * Fails with MORI_E_INVALID. */
MORI_API mori_status mori_shmem_log_set_level(int32_t level,
                                              mori_error *error);

/* Takes the oldest record from the log queue (1024 records; when full the
 * oldest are dropped and counted). any-thread. Never blocks. Fails with
 * MORI_E_AGAIN (queue empty), MORI_E_INVALID. */
MORI_API mori_status mori_shmem_log_next(mori_log_record *out_record,
                                         mori_error *error);

/* Makes the id of a new group and opens its rendezvous in this process, which
 * must then create one of the group's contexts (any PE). Hand the bytes to the
 * other PEs by any private means. The address is the one of MORI_SOCKET_IFNAME
 * if set, else every address of this host is offered, loopback last.
 * any-thread. Does not block. At most 64 ids may wait unused; the oldest is
 * then closed. Fails with MORI_E_OS, MORI_E_NOT_FOUND (no such interface),
 * MORI_E_UNAVAILABLE (no interface at all). */
MORI_API mori_status mori_shmem_unique_id_create(mori_shmem_unique_id *out_id,
                                                 mori_error *error);

/* Joins the group. Collective: returns on every PE or fails on every PE.
 * The caller owns *out_shmem. any-thread. Blocks until all PEs have joined, at
 * most bootstrap_timeout_ns. Fails with MORI_E_INVALID, MORI_E_VERSION,
 * MORI_E_MISMATCH (PEs disagree on size or options), MORI_E_TIMEOUT,
 * MORI_E_AUTH, MORI_E_NOT_FOUND (nobody listens: an id of another run),
 * MORI_E_PEER_DEAD, MORI_E_NO_MEMORY, MORI_E_UNAVAILABLE, MORI_E_OS. */
MORI_API mori_status mori_shmem_create(const mori_shmem_unique_id *in_id,
                                       const mori_shmem_options *in_options,
                                       mori_shmem **out_shmem,
                                       mori_error *error);

/* Leaves the group and frees the heap. Accepts NULL and dead handles; never
 * fails. Not a barrier: peers keep their mapping, but a wait for this PE then
 * fails; waits of other threads end with MORI_E_ABORTED. any-thread. Blocks at
 * most a second; on a GPU until its kernels end: synchronise streams first. */
MORI_API void mori_shmem_destroy(mori_shmem *take_shmem);

/* While the lease lives, addresses and device state of the context stay valid
 * even after mori_shmem_destroy: whoever uses them meanwhile sees a context
 * that has ended, not unmapped memory. The caller owns *out_lease.
 * any-thread. Never blocks. Fails with MORI_E_STATE, MORI_E_NO_MEMORY. */
MORI_API mori_status mori_shmem_lease_create(const mori_shmem *in_shmem,
                                             mori_shmem_lease **out_lease,
                                             mori_error *error);

/* Accepts NULL and dead handles; never fails. Unmaps the memory if the context
 * has been destroyed and no other lease is left. any-thread. Never blocks. */
MORI_API void mori_shmem_lease_destroy(mori_shmem_lease *take_lease);

/* Own PE number and number of PEs. any-thread. Never blocks.
 * Fails with MORI_E_STATE. */
MORI_API mori_status mori_shmem_my_pe(const mori_shmem *in_shmem,
                                      int32_t *out_pe, mori_error *error);
MORI_API mori_status mori_shmem_pe_count(const mori_shmem *in_shmem,
                                         int32_t *out_pe_count,
                                         mori_error *error);

/* Facts and heap statistics of this PE. any-thread. Never blocks.
 * Fails with MORI_E_STATE, MORI_E_INVALID. */
MORI_API mori_status mori_shmem_info(const mori_shmem *in_shmem,
                                     mori_shmem_report *out_report,
                                     mori_error *error);

/* How PE `pe` is reached and why. any-thread. Never blocks.
 * Fails with MORI_E_STATE, MORI_E_INVALID. */
MORI_API mori_status mori_shmem_peer_info(const mori_shmem *in_shmem,
                                          int32_t pe,
                                          mori_shmem_peer_report *out_report,
                                          mori_error *error);

/* Returns the context's sticky fault, MORI_OK when there is none.
 * any-thread. Never blocks. Fails with MORI_E_STATE and the fault's status. */
MORI_API mori_status mori_shmem_check(const mori_shmem *in_shmem,
                                      mori_error *error);

/* Ends every wait of this context, on all PEs, with MORI_E_ABORTED; the
 * message names this PE. any-thread. Never blocks. Fails with MORI_E_STATE. */
MORI_API mori_status mori_shmem_abort(mori_shmem *in_shmem, mori_error *error);

/* Allocates size_bytes of the heap at the same offset on every PE, aligned to
 * 256 bytes. Collective and verified: PEs that disagree on size, alignment or
 * order all get MORI_E_MISMATCH, and nothing is allocated. The memory is
 * reserved (a later store cannot fault for lack of memory) and zero the first
 * time it is handed out. size 0 gives NULL (still collective).
 * any-thread, but all PEs must call in the same order. Blocks.
 * Fails with MORI_E_STATE, MORI_E_MISMATCH, MORI_E_NO_MEMORY (on all PEs),
 * MORI_E_TIMEOUT, MORI_E_PEER_DEAD, MORI_E_ABORTED. */
MORI_API mori_status mori_shmem_malloc(mori_shmem *in_shmem,
                                       uint64_t size_bytes, void **out_pointer,
                                       mori_error *error);

/* As mori_shmem_malloc with an alignment: a power of two up to 1 GiB.
 * any-thread, but all PEs must call in the same order. Blocks. Fails with
 * MORI_E_INVALID, MORI_E_UNAVAILABLE (this GPU cannot), and as malloc does. */
MORI_API mori_status mori_shmem_malloc_align(mori_shmem *in_shmem,
                                             uint64_t alignment_bytes,
                                             uint64_t size_bytes,
                                             void **out_pointer,
                                             mori_error *error);

/* Returns memory to the heap; NULL is accepted. Local: but all PEs must free
 * the same blocks before the next malloc, which verifies it. any-thread.
 * Never blocks. Fails with MORI_E_STATE, MORI_E_NOT_FOUND (not the start of a
 * live allocation: foreign pointer or double free). */
MORI_API mori_status mori_shmem_free(mori_shmem *in_shmem, void *take_pointer,
                                     mori_error *error);

/* Address at which this PE can load and store the memory of PE `pe` that
 * corresponds to in_pointer (anywhere in the own heap). *out_pointer is NULL
 * when that PE is not mapped here. any-thread. Never blocks.
 * Fails with MORI_E_STATE, MORI_E_INVALID (pe), MORI_E_NOT_FOUND (pointer
 * outside the heap). */
MORI_API mori_status mori_shmem_ptr_p2p(const mori_shmem *in_shmem,
                                        const void *in_pointer, int32_t pe,
                                        void **out_pointer, mori_error *error);

/* Makes a private buffer a legal source of puts and target of gets on every
 * transport. Registered ranges may not overlap. any-thread. Never blocks.
 * Fails with MORI_E_STATE, MORI_E_INVALID, MORI_E_NOT_FOUND (deregister of a
 * range that is not registered exactly so). */
MORI_API mori_status mori_shmem_buffer_register(mori_shmem *in_shmem,
                                                void *in_pointer,
                                                uint64_t size_bytes,
                                                mori_error *error);
MORI_API mori_status mori_shmem_buffer_deregister(mori_shmem *in_shmem,
                                                  void *in_pointer,
                                                  uint64_t size_bytes,
                                                  mori_error *error);

/* All PEs wait for all PEs. Puts issued before it by host calls and by
 * finished kernels are complete at their targets. Does not synchronise
 * streams. one-thread-per-handle. Blocks, at most wait_timeout_ns.
 * Fails with MORI_E_STATE, MORI_E_TIMEOUT, MORI_E_PEER_DEAD,
 * MORI_E_ABORTED. */
MORI_API mori_status mori_shmem_barrier_all(mori_shmem *in_shmem,
                                            mori_error *error);

/* The same, enqueued on a stream of the context's backend (PEs of one process
 * need a stream each: on NULL they wait for each other). The host backend has
 * no streams: in_stream must be NULL, the call blocks. one-thread-per-handle.
 * Fails with MORI_E_INVALID (in_stream) and as mori_shmem_barrier_all. */
MORI_API mori_status mori_shmem_barrier_on_stream(mori_shmem *in_shmem,
                                                  void *in_stream,
                                                  mori_error *error);

/* Host calls of the device operations. in_/out_ addresses on PE `pe` are given
 * as the symmetric address in the own heap; [address, address + size) must lie
 * in the heap. A put is complete at its target after mori_shmem_quiet, a get
 * when the call returns. any-thread. May block on a network transport, at most
 * wait_timeout_ns. Fail with MORI_E_STATE, MORI_E_INVALID, MORI_E_NOT_FOUND
 * (outside the heap), MORI_E_UNAVAILABLE (PE not reachable) and the context's
 * fault. */
MORI_API mori_status mori_shmem_put(mori_shmem *in_shmem, void *in_target,
                                    const void *in_source, uint64_t size_bytes,
                                    int32_t pe, mori_error *error);
MORI_API mori_status mori_shmem_get(mori_shmem *in_shmem, void *out_target,
                                    const void *in_source, uint64_t size_bytes,
                                    int32_t pe, mori_error *error);

/* One put-with-signal: after the data has arrived (0 bytes are fine), the
 * 8-byte aligned word at in_signal on the target becomes signal_value
 * (MORI_SHMEM_SIGNAL_SET) or grows by it (MORI_SHMEM_SIGNAL_ADD). */
typedef struct mori_shmem_put_signal_args {
  uint64_t struct_size;
  void *target;            /* symmetric address                              */
  const void *source;      /* any address of this process                    */
  uint64_t size_bytes;
  uint64_t *signal;        /* symmetric address                              */
  uint64_t signal_value;
  int32_t signal_op;       /* MORI_SHMEM_SIGNAL_SET or _ADD                  */
  int32_t pe;
} mori_shmem_put_signal_args;

/* any-thread. May block and fails as mori_shmem_put does; fails with
 * MORI_E_INVALID also for an unknown signal_op or a misaligned signal. */
MORI_API mori_status
mori_shmem_put_signal(mori_shmem *in_shmem,
                      const mori_shmem_put_signal_args *in_args,
                      mori_error *error);

/* One atomic on a naturally aligned word of 4 or 8 bytes of PE `pe`. */
typedef struct mori_shmem_atomic_args {
  uint64_t struct_size;
  void *target;            /* symmetric address                              */
  uint64_t value;          /* operand; low 4 bytes for a 4-byte word         */
  uint64_t compare;        /* MORI_SHMEM_AMO_COMPARE_SWAP: expected value    */
  int32_t op;              /* MORI_SHMEM_AMO_*                               */
  int32_t pe;
  uint64_t size_bytes;     /* 4 or 8                                         */
} mori_shmem_atomic_args;

/* *out_before receives the value before the operation; may be NULL.
 * any-thread. May block and fails as mori_shmem_put does; fails with
 * MORI_E_INVALID also for an unknown op or a misaligned target. */
MORI_API mori_status mori_shmem_atomic(mori_shmem *in_shmem,
                                       const mori_shmem_atomic_args *in_args,
                                       uint64_t *out_before,
                                       mori_error *error);

/* Waits until the own word compares true, then acquires what its writer had
 * released. timeout_ns 0 is the context's wait timeout. */
typedef struct mori_shmem_wait_args {
  uint64_t struct_size;
  const void *address;     /* in the own heap, naturally aligned             */
  uint64_t size_bytes;     /* 4 or 8                                         */
  uint64_t value;
  int32_t compare;         /* MORI_SHMEM_CMP_*                               */
  int32_t pe;              /* whom the message of a timeout names; -1: none  */
  uint64_t timeout_ns;
} mori_shmem_wait_args;

/* *out_seen receives the value that ended the wait; may be NULL. A timeout of
 * the call's own timeout_ns is not sticky. any-thread. Blocks. Fails with
 * MORI_E_TIMEOUT besides what the puts fail with. */
MORI_API mori_status mori_shmem_wait_until(mori_shmem *in_shmem,
                                           const mori_shmem_wait_args *in_args,
                                           uint64_t *out_seen,
                                           mori_error *error);

/* quiet: all puts and atomics issued before on this context are complete at
 * their targets. fence: they are ordered before later ones to the same PE.
 * any-thread. May block. Fail with MORI_E_STATE and the context's fault. */
MORI_API mori_status mori_shmem_quiet(mori_shmem *in_shmem, mori_error *error);
MORI_API mori_status mori_shmem_fence(mori_shmem *in_shmem, mori_error *error);

/* Copies the state that kernels need, of the device protocol's level `level`
 * (1 .. MORI_SHMEM_DEVICE_LEVEL), to out_state; state_bytes must be the size
 * of that level's struct. Valid until the context is destroyed or, if there
 * are leases, until the last of them is. any-thread.
 * Never blocks. Fails with MORI_E_STATE, MORI_E_VERSION, MORI_E_INVALID. */
MORI_API mori_status mori_shmem_device_state(const mori_shmem *in_shmem,
                                             uint32_t level, void *out_state,
                                             uint64_t state_bytes,
                                             mori_error *error);

/* cdef: end */

#ifdef __cplusplus
}
#endif

#endif /* MORI_SHMEM_H */
