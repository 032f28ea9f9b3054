/* mori/shmem_types.h - the handle that all headers of libmori-shmem share, so
 * that each of them declares functions on it without including the others.
 * Read mori/shmem.h, which includes it.
 */
#ifndef MORI_SHMEM_TYPES_H
#define MORI_SHMEM_TYPES_H

#include <mori/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cdef: begin */

/* One PE of one group; opaque. Created by mori_shmem_create, ended by
 * mori_shmem_destroy. Objects built on it (mori_ep) must be destroyed first;
 * they answer MORI_E_STATE once it is gone. */
typedef struct mori_shmem mori_shmem;

/* cdef: end */

#ifdef __cplusplus
}
#endif

#endif /* MORI_SHMEM_TYPES_H */
