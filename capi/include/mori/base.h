/* mori/base.h - the vocabulary that all mori C headers share: statuses, the
 * error record, log records, and the rule for structs that may grow.
 *
 * Declares no function, so nothing links against it. Read it first, then
 * mori/shmem.h, mori/ep.h or mori/io.h; each of them stands alone.
 *
 * Conventions of every mori C header
 *   Names    in_*   borrowed for the call only; never kept.
 *            out_*  written when the call returns MORI_OK, and only then
 *                   (an out_ handle or pointer is NULL on failure).
 *            inout_* read when the call begins, written when it returns.
 *            take_* ownership moves to the library.
 *   Units    a quantity carries its unit in its name: _bytes, _ns, _count.
 *            Token matrices are row-major and dense; "elements" are of the
 *            dtype that the struct names.
 *   Status   every function that can fail returns mori_status and takes an
 *            optional `mori_error *` last. NULL means "not interested".
 *   Threads  each function says "any-thread" (concurrent calls on one handle
 *            are fine) or "one-thread-per-handle" (one call at a time on one
 *            handle; different handles are independent).
 *   Handles  are checked: a call on a destroyed or foreign handle returns
 *            MORI_E_STATE, it never touches freed memory.
 *   Fork     a handle made before fork() answers MORI_E_STATE in the child.
 *   Struct   option structs and report structs begin with `struct_size`, set
 *   growth   by the caller to sizeof its own version of the struct.
 *              - shorter than the library's: missing fields take the default;
 *              - longer: accepted only if every byte of the tail is zero,
 *                else MORI_E_VERSION (the caller asks for something that this
 *                library does not know);
 *              - 0 or smaller than the first release: MORI_E_INVALID.
 *            Zero in any field selects the documented default. Into report
 *            structs the library writes at most struct_size bytes.
 */
#ifndef MORI_BASE_H
#define MORI_BASE_H

#include <stdint.h>

#if defined(__GNUC__)
#define MORI_API __attribute__((visibility("default")))
#else
#define MORI_API
#endif

/* Packs a version as *_version() does: major << 22 | minor << 12 | patch. */
#define MORI_VERSION_PACK(major, minor, patch)                                 \
  (((uint32_t)(major) << 22) | ((uint32_t)(minor) << 12) | (uint32_t)(patch))

#ifdef __cplusplus
extern "C" {
#endif

/* cdef: begin */

/* Outcome of a call. Values are fixed for ever and shared by the three
 * libraries; an unknown value from a newer library is a failure. */
typedef int32_t mori_status;

enum {
  MORI_OK = 0,
  MORI_E_INVALID = 1,      /* argument out of range, wrong shape or size     */
  MORI_E_STATE = 2,        /* no such handle, destroyed, forked, wrong phase */
  MORI_E_NO_MEMORY = 3,    /* heap, host memory, tmpfs or cgroup exhausted   */
  MORI_E_MISMATCH = 4,     /* PEs disagree in a collective call              */
  MORI_E_TIMEOUT = 5,      /* a deadline passed; the message names whom      */
  MORI_E_PEER_DEAD = 6,    /* a PE died or fell silent; the message names it */
  MORI_E_ABORTED = 7,      /* the context was aborted by this or another PE  */
  MORI_E_UNSUPPORTED = 8,  /* understood, but not available in this build    */
  MORI_E_UNAVAILABLE = 9,  /* no such device, driver or transport here       */
  MORI_E_OS = 10,          /* the operating system refused; see os_errno     */
  MORI_E_PROTOCOL = 11,    /* damaged or unexpected bytes from a peer        */
  MORI_E_AUTH = 12,        /* the peer does not know the group's secret      */
  MORI_E_OVERFLOW = 13,    /* more received tokens than the configured cap   */
  MORI_E_NOT_FOUND = 14,   /* unknown pointer, id or name                    */
  MORI_E_VERSION = 15,     /* asks for something newer than this library     */
  MORI_E_AGAIN = 16,       /* nothing there yet; try later                   */
  MORI_E_CANCELLED = 17,   /* the caller cancelled the operation             */
  MORI_E_INTERNAL = 18     /* a fault of the library itself                  */
};

/* Caller-owned error record, filled on failure and left alone on success.
 * struct_size 0 is taken as 256, its size in the first release. */
typedef struct mori_error {
  uint64_t struct_size;
  mori_status status;
  int32_t os_errno;   /* 0 when no system call was involved                 */
  char message[240];  /* UTF-8, always terminated; says value and limit     */
} mori_error;

/* Levels of log records and of MORI_LOG_LEVEL (a name or a number). */
enum {
  MORI_LOG_OFF = 0,
  MORI_LOG_ERROR = 1,
  MORI_LOG_WARN = 2, /* the default                                          */
  MORI_LOG_INFO = 3,
  MORI_LOG_DEBUG = 4,
  MORI_LOG_TRACE = 5
};

/* One log record, as *_log_next() hands it out. */
typedef struct mori_log_record {
  uint64_t struct_size;
  uint64_t time_ns;       /* CLOCK_REALTIME, since 1970                      */
  uint64_t dropped_count; /* records lost just before this one: queue full   */
  int32_t level;
  int32_t os_thread_id;
  char message[480];      /* UTF-8, terminated, one line, no newline         */
} mori_log_record;

/* Where kernels run and device memory lives. */
enum {
  MORI_BACKEND_AUTO = 0,
  MORI_BACKEND_HOST = 1,  /* the CPU: a pool of worker threads               */
  MORI_BACKEND_AMD = 2,
  MORI_BACKEND_NVIDIA = 3
};

/* cdef: end */

#ifdef __cplusplus
}
#endif

#define MORI_ERROR_INIT                                                        \
  { sizeof(mori_error), 0, 0, {0} }

#endif /* MORI_BASE_H */
