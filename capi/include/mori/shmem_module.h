/* mori/shmem_module.h - modules of other compilers: kernels of Triton, MLIR,
 * HIP or CUDA that are linked with the device bitcode of libmori-shmem
 * (libmori_shmem_device-ARCH.bc) and are loaded by somebody else. Their
 * functions read a state that lives in the module, in the variable
 * mori_shmem_module_state_v2, whose name carries the level of the device
 * protocol (mori/shmem_device.h); these calls set it.
 *
 * Until it is set, and once its context has ended, the functions do nothing.
 * A module belongs to one context at a time, so PEs that are threads of one
 * process need a module of their own each.
 */
#ifndef MORI_SHMEM_MODULE_H
#define MORI_SHMEM_MODULE_H

#include <mori/shmem.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cdef: begin */

/* Gives this PE to a module (CUmodule, hipModule_t) that is loaded on the
 * context's device; again with the same module is fine. mori_shmem_destroy
 * marks all of them dead: kernels that are launched later do nothing.
 * Call it before the first launch. any-thread. Does not block.
 * Fails with MORI_E_STATE (also: the module is another PE's of this process),
 * MORI_E_INVALID (NULL), MORI_E_NOT_FOUND (it has no such variable),
 * MORI_E_VERSION (of another size), MORI_E_UNAVAILABLE (host backend),
 * MORI_E_OS and the context's fault. */
MORI_API mori_status mori_shmem_module_init(mori_shmem *in_shmem,
                                            void *in_module,
                                            mori_error *error);

/* Marks a module dead that is about to be unloaded while its context lives, or
 * that another context shall have. any-thread. Does not block. Fails with
 * MORI_E_STATE, MORI_E_NOT_FOUND (not initialised with this context). */
MORI_API mori_status mori_shmem_module_forget(mori_shmem *in_shmem,
                                              void *in_module,
                                              mori_error *error);

/* cdef: end */

#ifdef __cplusplus
}
#endif

#endif /* MORI_SHMEM_MODULE_H */
