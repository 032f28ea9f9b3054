/* mori.h - all mori C headers at once. Include the one library that you use
 * instead where you can: each header stands alone and links alone. */
#ifndef MORI_H
#define MORI_H

#include <mori/base.h>
#include <mori/ep.h>
#include <mori/io.h>
#include <mori/shmem.h>
#include <mori/shmem_module.h>

#endif /* MORI_H */
