/* mori/ep.h - expert-parallel dispatch and combine for mixture-of-experts
 * layers: sends each token to the ranks that own its experts and sums what
 * they give back.
 *
 * Read in this order: mori_ep_config, mori_ep_create, mori_ep_dispatch,
 * mori_ep_combine.
 *
 * A rank is a PE of the mori_shmem context that the operator is built on.
 * Letters in comments: W = ranks, T = tokens of this call on this rank,
 * M = max_input_token_count, K = expert_per_token_count, H = hidden_dim,
 * S = scale_dim, E = expert_per_rank_count, R = capacity in received tokens,
 * R = W * min(M, ceil(max_total_recv_token_count / W)), cap 0: R = W * M.
 * All ranks must call dispatch and combine in the same order, also with T = 0.
 * Conventions: see mori/base.h.
 */
#ifndef MORI_EP_H
#define MORI_EP_H

#include <mori/base.h>
#include <mori/shmem.h>

#define MORI_EP_VERSION_MAJOR 0
#define MORI_EP_VERSION_MINOR 1
#define MORI_EP_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* cdef: begin */

/* An operator: its buffers and its place in the sequence of calls. */
typedef struct mori_ep mori_ep;

/* Element types of tokens. */
enum {
  MORI_EP_F32 = 1,
  MORI_EP_BF16 = 2,
  MORI_EP_F16 = 3,
  MORI_EP_F8_E4M3FN = 4,   /* OCP: bias 7, max 448, no infinity              */
  MORI_EP_F8_E4M3FNUZ = 5, /* bias 8, max 240, 0x80 is NaN                   */
  MORI_EP_F8_E5M2 = 6,
  MORI_EP_F4_E2M1X2 = 7    /* two per byte; H counts bytes                   */
};

enum {
  MORI_EP_KERNEL_INTRA_NODE = 0,
  MORI_EP_KERNEL_INTER_NODE = 1,
  MORI_EP_KERNEL_INTER_NODE_V1 = 2,
  MORI_EP_KERNEL_INTER_NODE_V1LL = 3,
  MORI_EP_KERNEL_ASYNC_LL = 4,
  MORI_EP_KERNEL_INTRA_NODE_LL = 5
};

enum {
  MORI_EP_QUANT_NONE = 0,
  MORI_EP_QUANT_FP8_DIRECT_CAST = 1,
  MORI_EP_QUANT_FP8_BLOCKWISE = 2,
  MORI_EP_QUANT_FP4_BLOCKWISE = 3
};

/* Where combine finds the expert outputs. */
enum {
  MORI_EP_INPUT_CONFIG = 0,     /* what the config says                      */
  MORI_EP_INPUT_EXTERNAL = 1,   /* any buffer; copied to symmetric memory    */
  MORI_EP_INPUT_REGISTERED = 2  /* the buffer of mori_ep_combine_buffer      */
};

/* Same on all ranks (verified at create). Fields without a default are
 * required to be non-zero. */
typedef struct mori_ep_config {
  uint64_t struct_size;
  int32_t kernel_type;               /* MORI_EP_KERNEL_*                     */
  int32_t quant_type;                /* MORI_EP_QUANT_*                      */
  uint64_t hidden_dim;               /* largest H in elements; required      */
  uint64_t max_token_elem_bytes;     /* largest element size; default 4. One
                                        row takes H * this; both together a
                                        multiple of 16 and at most 1 MiB     */
  uint64_t scale_dim;                /* S; default 0: no scales              */
  uint64_t scale_elem_bytes;         /* size of one scale                    */
  uint64_t max_input_token_count;    /* M; required                          */
  uint64_t expert_per_rank_count;    /* E; required                          */
  uint64_t expert_per_token_count;   /* K; 1 .. 32; required                 */
  uint64_t max_total_recv_token_count; /* default: no cap beyond W * M       */
  int32_t registered_input;          /* 1: combine's default input is the
                                        registered buffer (which is then
                                        allocated at create)                 */
  int32_t drop_invalid_experts;      /* 1: ids >= W * E are not routed;
                                        default: they are an error           */
  int32_t gpu_per_node_count;        /* divides W; default: its largest
                                        divisor up to 8                      */
  int32_t block_count;               /* launch request; default 80           */
  int32_t warp_per_block_count;      /* default 8                            */
  int32_t rdma_block_count;          /* default 0; < block_count             */
  int32_t queue_pair_per_pe_count;   /* default 1                            */
  int32_t deterministic;             /* 1: receive order by (source rank,
                                        token); the host is always so        */
  uint64_t timeout_ns;               /* per call; default: the context's     */
} mori_ep_config;

/* What a config needs, before anything is allocated. */
typedef struct mori_ep_memory {
  uint64_t struct_size;
  uint64_t symmetric_bytes;          /* from the symmetric heap of each PE   */
  uint64_t private_bytes;            /* ordinary memory                      */
  uint64_t recv_token_capacity_count; /* R                                   */
} mori_ep_memory;

typedef struct mori_ep_dispatch_args {
  uint64_t struct_size;
  const void *input;            /* [T, H] of dtype; NULL only if T = 0       */
  const float *weights;         /* [T, K]; NULL: none travel                 */
  const void *scales;           /* [T, S] of scale_elem_bytes; NULL: none    */
  const int32_t *indices;       /* [T, K] expert ids; < 0: slot not routed   */
  uint64_t token_count;         /* T <= M                                    */
  uint64_t hidden_dim;          /* H of this call; default: config's         */
  int32_t dtype;                /* MORI_EP_F32 ...; same on all ranks        */
  int32_t block_count;          /* launch requests; default: config's        */
  int32_t warp_per_block_count;
  int32_t rdma_block_count;
  int32_t count_local_experts;  /* 1: fill local_expert_count                */
  int32_t reserved;             /* 0                                         */
  void *stream;                 /* NULL on the host backend                  */
} mori_ep_dispatch_args;

/* Views of the operator's own buffers. `out` stays valid until the next
 * dispatch or, since the buffer is shared, until combine copies an external
 * input of another place into it. Rows beyond the receive count are
 * unspecified. Rows are in order of (source rank, source token). */
typedef struct mori_ep_dispatch_result {
  uint64_t struct_size;
  void *out;                    /* [R, H] of dtype, dense                    */
  float *weights;               /* [R, K]; NULL if none were given           */
  void *scales;                 /* [R, S]; NULL if none were given           */
  int32_t *indices;             /* [R, K], the senders' rows                 */
  int32_t *recv_count;          /* [1], device memory                        */
  int32_t *local_expert_count;  /* [E] received (token, slot) pairs for each
                                   own expert; NULL unless asked for         */
  uint64_t capacity_count;      /* R                                         */
  uint64_t recv_token_count;    /* value of *recv_count where the host knows
                                   it (host backend), else UINT64_MAX        */
  int32_t effective_block_count;
  int32_t reserved;
} mori_ep_dispatch_result;

typedef struct mori_ep_combine_args {
  uint64_t struct_size;
  const void *input;            /* [>= receive count, H] in receive order    */
  const float *weights;         /* [>= receive count, K]; NULL: none         */
  const int32_t *indices;       /* [T, K]: this rank's own routing, as given
                                   to dispatch (verified by a hash)          */
  uint64_t token_count;         /* T of the dispatch                         */
  uint64_t input_row_count;     /* rows of input and weights                 */
  uint64_t hidden_dim;          /* default: config's                         */
  int32_t dtype;
  int32_t input_mode;           /* MORI_EP_INPUT_*                           */
  int32_t block_count;
  int32_t warp_per_block_count;
  int32_t rdma_block_count;
  int32_t reserved;             /* 0                                         */
  void *stream;
} mori_ep_combine_args;

/* Views of the operator's own buffers, valid until the next combine. */
typedef struct mori_ep_combine_result {
  uint64_t struct_size;
  void *out;                    /* [M, H]; the first T rows are valid: the
                                   unweighted fp32 sum over the token's
                                   distinct destination ranks, in ascending
                                   rank, rounded once to dtype; 0 for a token
                                   that went nowhere                         */
  float *weights;               /* [M, K] summed likewise; NULL if none      */
  int32_t effective_block_count;
  int32_t reserved;
} mori_ep_combine_result;

/* Version of the loaded library, packed as MORI_VERSION_PACK.
 * any-thread. Never blocks. */
MORI_API uint32_t mori_ep_version(void);

/* Goes up by one whenever a symbol or a struct field is added.
 * any-thread. Never blocks. */
MORI_API uint32_t mori_ep_abi_level(void);

/* Name of a status; "MORI_E_?" for an unknown value. The string is static.
 * any-thread. Never blocks. */
MORI_API const char *mori_ep_status_name(mori_status status);

/* As mori_shmem_log_set_level and mori_shmem_log_next, for this library's own
 * records. any-thread. Never block. Fail with MORI_E_INVALID, MORI_E_AGAIN
 * (queue empty). */
MORI_API mori_status mori_ep_log_set_level(int32_t level, mori_error *error);
MORI_API mori_status mori_ep_log_next(mori_log_record *out_record,
                                      mori_error *error);

/* Bytes that a config needs with pe_count ranks. The formula is in
 * libmori-ep/README.md. any-thread. Never blocks. Fails with MORI_E_INVALID
 * (as create would), MORI_E_UNSUPPORTED, MORI_E_VERSION. */
MORI_API mori_status mori_ep_memory_query(const mori_ep_config *in_config,
                                          int32_t pe_count,
                                          mori_ep_memory *out_memory,
                                          mori_error *error);

/* Builds an operator on a context. Collective. The caller owns *out_ep; the
 * context must outlive it. any-thread. Blocks. Fails with MORI_E_INVALID,
 * MORI_E_VERSION, MORI_E_UNSUPPORTED (kernel type or quantisation not in this
 * build), MORI_E_UNAVAILABLE (a rank whose memory is not mapped here),
 * MORI_E_MISMATCH (configs differ), MORI_E_NO_MEMORY, MORI_E_OS (no thread),
 * MORI_E_STATE, and the context's fault. */
MORI_API mori_status mori_ep_create(mori_shmem *in_shmem,
                                    const mori_ep_config *in_config,
                                    mori_ep **out_ep, mori_error *error);

/* Frees the operator's buffers. Accepts NULL and dead handles; never fails.
 * Not collective, but all ranks must destroy before the next allocation on
 * the context. any-thread. Does not block on the CPU; on a GPU it may until
 * the device's kernels end: synchronise the streams of its calls first. */
MORI_API void mori_ep_destroy(mori_ep *take_ep);

/* Sends every token once to each distinct rank that owns one of its experts
 * (rank = id / E). Collective, in lockstep. one-thread-per-handle. Blocks on
 * the host backend, at most timeout_ns; enqueues elsewhere.
 * Fails with MORI_E_INVALID (arguments; an expert id out of range, which
 * still takes part in the exchange so that the other ranks go on),
 * MORI_E_OVERFLOW (a rank would receive more than R tokens: on all ranks, and
 * nothing is written), MORI_E_MISMATCH (ranks disagree on dtype or H),
 * MORI_E_TIMEOUT, MORI_E_PEER_DEAD, MORI_E_ABORTED, MORI_E_STATE.
 * After MORI_E_OVERFLOW and MORI_E_INVALID the operator stays usable.
 * On a GPU what only the kernel can find (ids, overflow, mismatch, foreign
 * routing) is returned by the next call on the operator, which then does
 * nothing else, or at once with MORI_CHECK=sync in the environment at create;
 * out_result's weights and scales are set if given here or if token_count is
 * 0. Faults of the context surface in any later call. */
MORI_API mori_status mori_ep_dispatch(mori_ep *in_ep,
                                      const mori_ep_dispatch_args *in_args,
                                      mori_ep_dispatch_result *out_result,
                                      mori_error *error);

/* Brings the expert outputs of the last dispatch back to the tokens' owners
 * and sums them. Collective, in lockstep; one-thread-per-handle, blocks and
 * fails with the statuses of mori_ep_dispatch otherwise.
 * Fails with MORI_E_INVALID also when indices are not the routing of the last
 * dispatch, with MORI_E_UNSUPPORTED for a dtype that can only be dispatched,
 * and with MORI_E_STATE when no dispatch came before. */
MORI_API mori_status mori_ep_combine(mori_ep *in_ep,
                                     const mori_ep_combine_args *in_args,
                                     mori_ep_combine_result *out_result,
                                     mori_error *error);

/* Symmetric buffer [R, H] that combine reads without a copy when its
 * input_mode is MORI_EP_INPUT_REGISTERED. Allocated at create if the config
 * asks for it, else by the first call, which is then collective.
 * Contents are the caller's between the return of a combine and the next.
 * one-thread-per-handle. Blocks only where it allocates. Fails with
 * MORI_E_STATE and, where it allocates, as mori_shmem_malloc. */
MORI_API mori_status mori_ep_combine_buffer(mori_ep *in_ep, void **out_buffer,
                                            uint64_t *out_buffer_bytes,
                                            mori_error *error);

/* Where the rows of the last dispatch came from: position = source rank *
 * (W * M) + source token. Writes min(capacity_count, receive count) values and
 * sets *out_count to the receive count. out_positions may be NULL if
 * capacity_count is 0. one-thread-per-handle. Waits for the dispatch.
 * Fails with MORI_E_STATE (no dispatch yet), MORI_E_INVALID. */
MORI_API mori_status mori_ep_src_token_positions(mori_ep *in_ep,
                                                 int32_t *out_positions,
                                                 uint64_t capacity_count,
                                                 uint64_t *out_count,
                                                 mori_error *error);

/* Forgets the last dispatch (combine then needs a new one). Epochs advance in
 * device memory, so nothing has to be reset between calls; kept because code
 * written for MORI calls it. one-thread-per-handle. Never blocks. Fails with
 * MORI_E_STATE. */
MORI_API mori_status mori_ep_reset(mori_ep *in_ep, mori_error *error);

/* Returns the fault of an enqueued operation that has surfaced, MORI_OK when
 * there is none. any-thread. Never blocks. Fails with MORI_E_STATE and the
 * fault's status. */
MORI_API mori_status mori_ep_check(const mori_ep *in_ep, mori_error *error);

/* cdef: end */

#ifdef __cplusplus
}
#endif

#endif /* MORI_EP_H */
