/* mori/io.h - one-sided transfers between registered memory of two processes,
 * made for moving KV caches. Both sides make an engine and register memory;
 * descriptors (bytes that may be stored and sent) tell each about the other's.
 * A session joins one local and one remote region; reads and writes are then
 * submitted to it, one piece or a batch, and complete asynchronously.
 *
 * Read in this order: mori_io_options, mori_io_create,
 * mori_io_memory_register, mori_io_remote_register, mori_io_session_create,
 * mori_io_submit, mori_io_transfer_wait.
 *
 * Each transfer happens exactly once or fails: after a lost connection it is
 * repeated only when the target says that it was not delivered. When it has
 * ended, however it ended, the library no longer touches its local memory.
 * Data is at the target before the target's notification of it. Protocol and
 * threat model: docs/protocol.md. Conventions: see mori/base.h.
 */
#ifndef MORI_IO_H
#define MORI_IO_H

#include <mori/base.h>
#include <mori/io_types.h>

#define MORI_IO_VERSION_MAJOR 0
#define MORI_IO_VERSION_MINOR 2
#define MORI_IO_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* cdef: begin */

/* Version of the loaded library, packed as MORI_VERSION_PACK.
 * any-thread. Never blocks. */
MORI_API uint32_t mori_io_version(void);

/* Goes up by one whenever a symbol or a struct field is added.
 * any-thread. Never blocks. */
MORI_API uint32_t mori_io_abi_level(void);

/* Name of a status, "MORI_E_TIMEOUT"; "MORI_E_?" for an unknown value. The
 * string is static. any-thread. Never blocks. */
MORI_API const char *mori_io_status_name(mori_status status);

/* Sets what is logged to stderr and to the queue: MORI_LOG_*. The environment
 * variable MORI_LOG_LEVEL sets the first value. any-thread. Never blocks.
 * Fails with MORI_E_INVALID. */
MORI_API mori_status mori_io_log_set_level(int32_t level, mori_error *error);

/* Takes the oldest record from the log queue (1024 records; when full the
 * oldest are dropped and counted). any-thread. Never blocks. Fails with
 * MORI_E_AGAIN (queue empty), MORI_E_INVALID. */
MORI_API mori_status mori_io_log_next(mori_log_record *out_record,
                                      mori_error *error);

/* Makes an engine: keys, listener, progress thread. It has no backend yet.
 * The caller owns *out_io. any-thread. Does not block. Fails with
 * MORI_E_INVALID, MORI_E_VERSION, MORI_E_OS (the port is taken),
 * MORI_E_NOT_FOUND (no such interface or address). */
MORI_API mori_status mori_io_create(const mori_io_options *in_options,
                                    mori_io **out_io, mori_error *error);

/* Ends the engine: transfers in flight fail with MORI_E_CANCELLED, handles of
 * sessions answer MORI_E_STATE, transfers may still be asked and released.
 * Accepts NULL and dead handles. any-thread. Blocks at most a second. */
MORI_API void mori_io_destroy(mori_io *take_io);

/* This engine's descriptor, for mori_io_remote_register elsewhere: versioned
 * bytes with addresses, port, public key; no secret. *inout_bytes: room, then
 * size; with out_desc NULL just the size. any-thread. Never blocks. Fails with
 * MORI_E_STATE, MORI_E_INVALID (room: value and limit). */
MORI_API mori_status mori_io_desc(const mori_io *in_io, void *out_desc,
                                  uint64_t *inout_bytes, mori_error *error);

/* Reads an engine descriptor. any-thread. Never blocks. Fails with
 * MORI_E_INVALID, MORI_E_PROTOCOL (damaged), MORI_E_VERSION (newer). */
MORI_API mori_status mori_io_desc_inspect(const void *in_desc, uint64_t bytes,
                                          mori_io_engine_report *out_report,
                                          mori_error *error);

/* Makes a backend of the engine: before or after memory and peers are
 * registered; sessions whose backend is not pinned may move to it. A second
 * one of a kind is ignored with a warning. in_options may be NULL. any-thread.
 * Does not block. Fails with MORI_E_STATE, MORI_E_INVALID, MORI_E_UNAVAILABLE
 * (the reason), MORI_E_UNSUPPORTED. */
MORI_API mori_status mori_io_backend_create(
    mori_io *in_io, int32_t backend, const mori_io_backend_options *in_options,
    mori_error *error);

/* Takes a backend out: its transfers are fenced, then go on by the next one or
 * fail. any-thread. Blocks until then, at most control_timeout_ns. Fails with
 * MORI_E_STATE, MORI_E_NOT_FOUND. */
MORI_API mori_status mori_io_backend_remove(mori_io *in_io, int32_t backend,
                                            mori_error *error);

/* Counters of a backend, with `reason`: why it is or is not there.
 * any-thread. Never blocks. Fails with MORI_E_STATE, MORI_E_INVALID. */
MORI_API mori_status mori_io_backend_stats(const mori_io *in_io,
                                           int32_t backend,
                                           mori_io_stats *out_stats,
                                           mori_error *error);

/* Makes another engine known by its descriptor; connects when first needed.
 * Again with the same key: replaces the one before (a peer that restarted).
 * any-thread. Never blocks. Fails with MORI_E_STATE, MORI_E_INVALID,
 * MORI_E_PROTOCOL, MORI_E_VERSION. */
MORI_API mori_status mori_io_remote_register(mori_io *in_io,
                                             const void *in_desc,
                                             uint64_t bytes,
                                             mori_error *error);

/* Forgets it: connections close, transfers with it are fenced and fail with
 * MORI_E_CANCELLED. any-thread. Blocks until then. Fails with MORI_E_STATE,
 * MORI_E_NOT_FOUND. */
MORI_API mori_status mori_io_remote_deregister(mori_io *in_io,
                                               const char *in_key,
                                               mori_error *error);

/* Registers memory of this process, which must stay valid until deregistered.
 * location MORI_IO_LOCATION_*, device: -1 for host memory; access
 * MORI_IO_ACCESS_* or 0. any-thread. Does not block. Fails with MORI_E_STATE,
 * MORI_E_INVALID (null, 0 or wrapping size; location), MORI_E_UNAVAILABLE. */
MORI_API mori_status mori_io_memory_register(mori_io *in_io, void *in_memory,
                                             uint64_t size_bytes,
                                             int32_t location, int32_t device,
                                             int32_t access, uint32_t *out_id,
                                             mori_error *error);

/* Revokes the region's capability: when the call returns, peers' transfers no
 * longer touch the memory over TCP or RDMA, and this engine's transfers with it
 * have failed with MORI_E_CANCELLED. Who has attached the memory on this node
 * is told and waited for, at most 2 s; others are not. MORI_E_TIMEOUT: the
 * region is revoked, but the engine that is named did not confirm (its process
 * is stopped?) and may still touch the memory until it runs again or ends.
 * any-thread. Blocks at most control_timeout_ns, usually until a round trip.
 * Fails with MORI_E_STATE, MORI_E_NOT_FOUND, MORI_E_TIMEOUT. */
MORI_API mori_status mori_io_memory_deregister(mori_io *in_io, uint32_t id,
                                               mori_error *error);

/* A region's descriptor, for mori_io_session_create elsewhere: versioned bytes
 * with the region's capability, so whoever has them may use the memory.
 * *inout_bytes as in mori_io_desc. any-thread. Never blocks. Fails with
 * MORI_E_STATE, MORI_E_NOT_FOUND, MORI_E_INVALID. */
MORI_API mori_status mori_io_memory_desc(const mori_io *in_io, uint32_t id,
                                         void *out_desc, uint64_t *inout_bytes,
                                         mori_error *error);

/* Reads a memory descriptor. any-thread. Never blocks. Fails with
 * MORI_E_INVALID, MORI_E_PROTOCOL (damaged), MORI_E_VERSION (newer). */
MORI_API mori_status mori_io_memory_inspect(const void *in_desc,
                                            uint64_t bytes,
                                            mori_io_memory_report *out_report,
                                            mori_error *error);

/* Host memory that engines of this node can map: fastest between processes.
 * Zeroed, page-aligned, pages taken at once; register it like any other.
 * any-thread. Does not block. Fails with MORI_E_STATE, MORI_E_INVALID,
 * MORI_E_NO_MEMORY. */
MORI_API mori_status mori_io_alloc(mori_io *in_io, uint64_t size_bytes,
                                   void **out_memory, mori_error *error);

/* Frees it; regions in it must be deregistered first. any-thread. Never
 * blocks. Fails with MORI_E_STATE (a region is registered, or no such engine),
 * MORI_E_NOT_FOUND. */
MORI_API mori_status mori_io_free(mori_io *in_io, void *take_memory,
                                  mori_error *error);

/* Joins a local region and a remote one. Does not wait for the connection: a
 * peer that is not there fails the transfers. The caller owns *out_session.
 * in_options may be NULL. any-thread. Blocks while a way to memory of the same
 * node is proven: microseconds, at most 250 ms for each backend, when the owner
 * of the memory does not answer. Fails with MORI_E_STATE (no backend reaches:
 * the reasons), MORI_E_INVALID, MORI_E_NOT_FOUND (local id, an engine that is
 * not registered, or a region that was deregistered meanwhile), MORI_E_AGAIN
 * (backends came and went meanwhile), MORI_E_PROTOCOL, MORI_E_VERSION. */
MORI_API mori_status mori_io_session_create(
    mori_io *in_io, uint32_t local_id, const void *in_remote_desc,
    uint64_t bytes, const mori_io_session_options *in_options,
    mori_io_session **out_session, mori_error *error);

/* Ends a session; its transfers go on. Accepts NULL and dead handles.
 * any-thread. Never blocks. */
MORI_API void mori_io_session_destroy(mori_io_session *take_session);

/* Counters, and is_alive: both regions registered, some backend in working
 * order, peer not known to be dead. any-thread. Never blocks. Fails with
 * MORI_E_STATE, MORI_E_INVALID. */
MORI_API mori_status mori_io_session_stats(const mori_io_session *in_session,
                                           mori_io_stats *out_stats,
                                           mori_error *error);

/* A uid that no other call of this process returned; never 0. any-thread.
 * Never blocks. */
MORI_API uint64_t mori_io_allocate_uid(mori_io *in_io);

/* Submits a transfer. Misuse (ranges, sizes, access) is found here, nothing is
 * submitted then. out_transfer may be NULL: nobody asks. any-thread. Blocks
 * only for back-pressure: while transfer_count are in flight, at most
 * control_timeout_ns. Fails with MORI_E_STATE, MORI_E_INVALID (piece, value
 * and limit), MORI_E_AGAIN (back-pressure lasted too long). */
MORI_API mori_status mori_io_submit(mori_io_session *in_session,
                                    const mori_io_request *in_request,
                                    mori_io_transfer **out_transfer,
                                    mori_error *error);

/* Whether it is done, and how it went. any-thread. Never blocks. Fails with
 * MORI_E_STATE, MORI_E_INVALID. */
MORI_API mori_status mori_io_transfer_info(const mori_io_transfer *in_transfer,
                                           mori_io_transfer_report *out_report,
                                           mori_error *error);

/* Waits for `count` transfers, at most timeout_ns (UINT64_MAX: as long as they
 * take). MORI_OK: all succeeded. Any that failed: its status and text, at once
 * when it is known. any-thread; releases no transfer. Fails with MORI_E_TIMEOUT
 * (how many are in flight), MORI_E_STATE, or as a transfer did. */
MORI_API mori_status mori_io_transfer_wait(
    const mori_io_transfer *const *in_transfers, uint64_t count,
    uint64_t timeout_ns, mori_error *error);

/* Asks to end a transfer. It is over when its state says so: with
 * MORI_E_CANCELLED, or as it went. any-thread. Never blocks. Fails with
 * MORI_E_STATE. */
MORI_API mori_status mori_io_transfer_cancel(mori_io_transfer *in_transfer,
                                             mori_error *error);

/* Gives the handle back, also of a transfer in flight, which goes on. Accepts
 * NULL and dead handles. any-thread. Never blocks. */
MORI_API void mori_io_transfer_release(mori_io_transfer *take_transfer);

/* A descriptor that is readable while completions or notifications wait: for
 * poll, epoll, asyncio. The engine owns it. any-thread. Never blocks.
 * Fails with MORI_E_STATE. */
MORI_API mori_status mori_io_event_fd(mori_io *in_io, int32_t *out_fd,
                                      mori_error *error);

/* Takes up to `room` completions of transfers submitted with
 * enqueue_completion, in the order in which they ended. any-thread. Never
 * blocks. Fails with MORI_E_STATE, MORI_E_INVALID. */
MORI_API mori_status mori_io_completion_next(mori_io *in_io,
                                             mori_io_completion *out_entries,
                                             uint64_t room,
                                             uint64_t *out_count,
                                             mori_error *error);

/* Takes the notification of that peer's transfer `uid`; each is taken once.
 * any-thread. Never blocks. Fails with MORI_E_AGAIN (not there), MORI_E_STATE,
 * MORI_E_INVALID. */
MORI_API mori_status mori_io_inbound_pop(mori_io *in_io, const char *in_peer,
                                         uint64_t uid,
                                         mori_io_inbound *out_inbound,
                                         mori_error *error);

/* Takes the oldest notification of any peer. any-thread. Never blocks.
 * Fails with MORI_E_AGAIN (none is there), MORI_E_STATE, MORI_E_INVALID. */
MORI_API mori_status mori_io_inbound_next(mori_io *in_io,
                                          mori_io_inbound *out_inbound,
                                          mori_error *error);

/* Makes progress. Needed with MORI_IO_PROGRESS_CALLER, harmless else.
 * any-thread. Blocks until something was done, at most timeout_ns.
 * Fails with MORI_E_STATE. */
MORI_API mori_status mori_io_progress(mori_io *in_io, uint64_t timeout_ns,
                                      mori_error *error);

/* All counters as Prometheus text, terminated. *inout_bytes as in
 * mori_io_desc. any-thread. Never blocks. Fails with MORI_E_STATE,
 * MORI_E_INVALID. */
MORI_API mori_status mori_io_metrics(const mori_io *in_io, char *out_text,
                                     uint64_t *inout_bytes, mori_error *error);

/* cdef: end */

#ifdef __cplusplus
}
#endif

#endif /* MORI_IO_H */
