/* mori/io_types.h - the structs and values of mori/io.h, which includes it:
 * handles, options, requests, reports. Read mori/io.h first.
 */
#ifndef MORI_IO_TYPES_H
#define MORI_IO_TYPES_H

#include <mori/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cdef: begin */

/* An engine: listener, registered memory, peers and a progress thread. */
typedef struct mori_io mori_io;

/* One local and one remote region of an engine, and the way between them. */
typedef struct mori_io_session mori_io_session;

/* One submitted transfer. Owned by the caller until released. */
typedef struct mori_io_transfer mori_io_transfer;

/* Ways to move bytes, best first for one pair of memories: XGMI, RDMA, TCP. */
enum {
  MORI_IO_BACKEND_AUTO = 0,
  MORI_IO_BACKEND_XGMI = 1,    /* same node: shared or attached host memory,
                                  GPU memory by IPC                          */
  MORI_IO_BACKEND_RDMA = 2,    /* verbs                                      */
  MORI_IO_BACKEND_TCP = 3,
  MORI_IO_BACKEND_FABRIC = 4   /* known, refused with MORI_E_UNSUPPORTED     */
};

enum {
  MORI_IO_LOCATION_DETECT = 0, /* ask the GPU driver, where there is one     */
  MORI_IO_LOCATION_CPU = 1,
  MORI_IO_LOCATION_GPU = 2
};

enum { MORI_IO_READ = 1, MORI_IO_WRITE = 2 };

/* What peers may do with a region; 0 means both. */
enum { MORI_IO_ACCESS_READ = 1, MORI_IO_ACCESS_WRITE = 2 };

/* Latency transfers are served first, bulk ones last; no one is starved. */
enum {
  MORI_IO_PRIORITY_NORMAL = 0,
  MORI_IO_PRIORITY_LATENCY = 1,
  MORI_IO_PRIORITY_BULK = 2
};

/* Who makes transfers progress. */
enum {
  MORI_IO_PROGRESS_THREAD = 0, /* one thread of the engine                   */
  MORI_IO_PROGRESS_CALLER = 1  /* callers of mori_io_progress and waits      */
};

/* Protection of bulk data; control messages always carry a MAC. */
enum {
  MORI_IO_SECURITY_DEFAULT = 0, /* env MORI_IO_SECURITY ("mac", "encrypt",
                                   "trusted"), else mac                      */
  MORI_IO_SECURITY_MAC = 1,
  MORI_IO_SECURITY_ENCRYPT = 2,
  MORI_IO_SECURITY_TRUSTED = 3  /* bulk data bare; both sides must agree     */
};

/* Options of mori_io_create. */
typedef struct mori_io_options {
  uint64_t struct_size;
  const char *in_key;            /* required: name of this engine, 1 .. 128
                                    bytes, unique among its peers            */
  const char *in_host;           /* address to listen on and to tell peers;
                                    default: all; told: MORI_SOCKET_IFNAME's
                                    or the first that is not loopback        */
  int32_t port;                  /* default: one that is free                */
  int32_t progress;              /* MORI_IO_PROGRESS_*                       */
  int32_t security;              /* MORI_IO_SECURITY_*                       */
  int32_t require_known_peers;   /* 1: only engines given to
                                    mori_io_remote_register may connect. In
                                    any case at most MORI_IO_GUEST_COUNT at
                                    once, else 4096                          */
  uint64_t control_timeout_ns;   /* connecting and handshakes; default
                                    MORI_IO_CP_TIMEOUT_MS, else 30 s         */
  uint64_t peer_timeout_ns;      /* silence after which a peer counts as dead
                                    and its transfers fail; default
                                    MORI_IO_PEER_TIMEOUT_MS, else 10 s       */
  uint64_t spin_ns;              /* progress polls that long before it
                                    sleeps; default 0                        */
  uint32_t transfer_count;       /* at once, over all sessions; more are
                                    back-pressure; default 65536             */
  uint32_t inbound_count;        /* notifications kept; default 1048576. More:
                                    the oldest is dropped, logged, counted   */
} mori_io_options;

/* Options of mori_io_backend_create; each field names the backends that read
 * it, the others ignore it. Environment variables override (MORI_IO_...). */
typedef struct mori_io_backend_options {
  uint64_t struct_size;
  int32_t stream_count;          /* TCP: connections per peer, default 2.
                                    XGMI: GPU streams, default 64            */
  int32_t event_count;           /* XGMI: default 64                         */
  int32_t disable_notification;  /* 1: transfers notify no peer              */
  int32_t poll_mode;             /* RDMA: 0 polling, 1 events                */
  int32_t queue_pair_count;      /* RDMA: per transfer, default 1            */
  int32_t post_batch_count;      /* RDMA: default automatic                  */
  int32_t worker_count;          /* RDMA: default none                       */
  int32_t notification_count;    /* RDMA: per queue pair, default 1024       */
  int32_t nic_count;             /* RDMA: per transfer, default 1            */
  int32_t enable_chunking;       /* RDMA                                     */
  int32_t max_chunk_count;       /* RDMA: per transfer, default 64           */
  int32_t max_send_count;        /* RDMA: send queue, default 8192           */
  int32_t max_completion_count;  /* RDMA: completion queue, default 16384    */
  int32_t max_piece_count;       /* RDMA: scatter-gather, default 4          */
  uint64_t chunk_bytes;          /* RDMA: default 65536, at least 4096.
                                    TCP: slice of a large transfer, default
                                    1 MiB, 64 KiB .. 64 MiB                  */
  uint64_t staging_bytes;        /* TCP: pinned, for GPU memory; default
                                    16 MiB                                   */
} mori_io_backend_options;

/* What an engine descriptor says; report of mori_io_desc_inspect. */
typedef struct mori_io_engine_report {
  uint64_t struct_size;
  char key[136];
  char node_id[72];
  char hostname[264];
  char host[264];                /* addresses, separated by commas           */
  int32_t port;
  int32_t os_process_id;
  uint8_t public_key[32];
} mori_io_engine_report;

/* What a memory descriptor says; report of mori_io_memory_inspect. The
 * capability in it is a secret and not shown. */
typedef struct mori_io_memory_report {
  uint64_t struct_size;
  char engine_key[136];
  uint64_t address;
  uint64_t size_bytes;
  uint32_t id;
  int32_t location;              /* MORI_IO_LOCATION_*                       */
  int32_t device;                /* as its driver numbers it; -1: host       */
  int32_t access;                /* MORI_IO_ACCESS_*                         */
  char device_bus_id[32];
  int32_t numa_node;             /* -1: unknown                              */
  uint32_t reserved;
} mori_io_memory_report;

/* Options of mori_io_session_create. */
typedef struct mori_io_session_options {
  uint64_t struct_size;
  int32_t backend;               /* MORI_IO_BACKEND_*: pinned; else the best
                                    that reaches, and the next when it fails */
  int32_t priority;              /* of its transfers: MORI_IO_PRIORITY_*     */
} mori_io_session_options;

/* One transfer of one piece or many. Piece i moves sizes_bytes[i] bytes between
 * local_offsets[i] and remote_offsets[i], offsets within the regions. A count
 * of 0, and sizes of 0, are legal. Pieces that overlap at their destination
 * land in no certain order. The arrays are borrowed for the call. */
typedef struct mori_io_request {
  uint64_t struct_size;
  int32_t operation;             /* MORI_IO_READ, MORI_IO_WRITE              */
  int32_t priority;              /* default: the session's                   */
  uint64_t piece_count;
  const uint64_t *in_local_offsets;
  const uint64_t *in_remote_offsets;
  const uint64_t *in_sizes_bytes;
  uint64_t uid;                  /* names the transfer to the target         */
  uint64_t timeout_ns;           /* the transfer fails after that; default:
                                    never, but for peer_timeout_ns           */
  const void *in_metadata;       /* goes with the notification; <= 1024 bytes */
  uint32_t metadata_bytes;
  int32_t disable_notification;  /* 1: the target is not told                */
  uint64_t tag;                  /* comes back with the completion           */
  int32_t enqueue_completion;    /* 1: also to mori_io_completion_next       */
  int32_t reserved;
} mori_io_request;

/* State of a transfer. */
typedef struct mori_io_transfer_report {
  uint64_t struct_size;
  int32_t is_done;
  mori_status status;            /* once done                                */
  int32_t backend;               /* that carried it, MORI_IO_BACKEND_*       */
  uint32_t retry_count;
  uint64_t uid;
  uint64_t size_bytes;
  uint64_t duration_ns;          /* from submission to now, or to its end    */
  char message[240];             /* why it failed                            */
} mori_io_transfer_report;

/* One entry of the completion queue. */
typedef struct mori_io_completion {
  uint64_t tag;
  uint64_t uid;
  uint64_t size_bytes;
  mori_status status;
  int32_t operation;
} mori_io_completion;

/* One inbound notification: a transfer of a peer with memory of this engine
 * has been delivered. */
typedef struct mori_io_inbound {
  uint64_t struct_size;
  char peer_key[136];
  uint64_t uid;
  uint64_t size_bytes;
  int32_t operation;             /* the peer's: MORI_IO_READ, MORI_IO_WRITE  */
  uint32_t memory_id;
  uint32_t metadata_bytes;
  uint32_t reserved;
  uint8_t metadata[1024];
} mori_io_inbound;

/* Counters of a session, or of a backend over all sessions and since it was
 * made. Latency: submission to completion, of successful transfers. */
typedef struct mori_io_stats {
  uint64_t struct_size;
  int32_t backend;               /* the session's at present                 */
  int32_t is_alive;
  uint64_t transfer_count;       /* submitted                                */
  uint64_t success_count;
  uint64_t failure_count;
  uint64_t cancel_count;
  uint64_t retry_count;
  uint64_t failover_count;
  uint64_t inbound_count;        /* notifications received of transfers that
                                    came this way; XGMI: of all that the
                                    peer moved itself                        */
  uint64_t inbound_dropped_count;
  uint64_t read_bytes;
  uint64_t written_bytes;
  uint64_t latency_p50_ns;       /* within 10 %                              */
  uint64_t latency_p90_ns;
  uint64_t latency_p99_ns;
  uint64_t latency_max_ns;
  char reason[240];              /* why this backend and not a better one    */
} mori_io_stats;

/* cdef: end */

#ifdef __cplusplus
}
#endif

#endif /* MORI_IO_TYPES_H */
