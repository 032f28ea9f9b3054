/* mori/io.h - one-sided transfers between registered memory of two processes
 * (KV-cache transfer). This release of the library carries its identity only:
 * engines, sessions and transfers come with a later ABI level.
 *
 * Conventions: see mori/base.h.
 */
#ifndef MORI_IO_H
#define MORI_IO_H

#include <mori/base.h>

#define MORI_IO_VERSION_MAJOR 0
#define MORI_IO_VERSION_MINOR 1
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

/* cdef: end */

#ifdef __cplusplus
}
#endif

#endif /* MORI_IO_H */
