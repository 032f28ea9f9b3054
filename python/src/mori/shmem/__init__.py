"""Symmetric memory: every PE of a group allocates alike, and each can put and get at the others.

The functions shmem_* and the tensor helpers are MORI's, over a default context per thread;
Context is the same as an object, of which a process may hold several. The memory is on the GPU
that torch works on if torch is in the process and has one, else on the host; see Context. Importing
this module loads libmori-shmem; torch is imported only by the functions that are about torch.

    import mori.shmem as shmem

    uid = shmem.shmem_get_unique_id()                      # on one PE; hand it to all
    with shmem.Context(uid, pe=rank, pe_count=size) as context:
        block = context.array((4, 256), "float32")         # zeros, all PEs have such a block
        context.put(block[1], block[0], pe=(rank + 1) % size)
        context.barrier_all()                              # block[1] is the neighbour's block[0]
        context.free(block)
"""

from __future__ import annotations

from mori._arrays import DeviceArray
from mori._enums import MORI_SHMEM_INIT_WITH_MPI_COMM, MORI_SHMEM_INIT_WITH_UNIQUEID
from mori._log import LogRecord
from mori.shmem._api import (
    shmem_barrier_all,
    shmem_barrier_on_stream,
    shmem_buffer_deregister,
    shmem_buffer_register,
    shmem_ext_malloc_with_flags,
    shmem_finalize,
    shmem_free,
    shmem_get_unique_id,
    shmem_heap_stats,
    shmem_init_attr,
    shmem_is_initialized,
    shmem_launcher_init,
    shmem_malloc,
    shmem_malloc_align,
    shmem_module_init,
    shmem_mpi_init,
    shmem_mype,
    shmem_npes,
    shmem_num_qp_per_pe,
    shmem_ptr_p2p,
    shmem_torch_process_group_init,
)
from mori.shmem._context import Context
from mori.shmem._default import current_context, set_default_context
from mori.shmem._facts import ContextInfo, HeapStats, PeerInfo
from mori.shmem._log import drain_log, set_log_level
from mori.shmem._team import Team
from mori.shmem._tensor import (
    MoriShmemBuffer,
    mori_shmem_create_tensor,
    mori_shmem_create_tensor_list_intra_node,
    mori_shmem_free_tensor,
    symm_mori_shmem_tensor,
)

__all__ = [
    "MORI_SHMEM_INIT_WITH_MPI_COMM",
    "MORI_SHMEM_INIT_WITH_UNIQUEID",
    "Context",
    "ContextInfo",
    "DeviceArray",
    "HeapStats",
    "LogRecord",
    "MoriShmemBuffer",
    "PeerInfo",
    "Team",
    "current_context",
    "drain_log",
    "mori_shmem_create_tensor",
    "mori_shmem_create_tensor_list_intra_node",
    "mori_shmem_free_tensor",
    "set_default_context",
    "set_log_level",
    "shmem_barrier_all",
    "shmem_barrier_on_stream",
    "shmem_buffer_deregister",
    "shmem_buffer_register",
    "shmem_ext_malloc_with_flags",
    "shmem_finalize",
    "shmem_free",
    "shmem_get_unique_id",
    "shmem_heap_stats",
    "shmem_init_attr",
    "shmem_is_initialized",
    "shmem_launcher_init",
    "shmem_malloc",
    "shmem_malloc_align",
    "shmem_module_init",
    "shmem_mpi_init",
    "shmem_mype",
    "shmem_npes",
    "shmem_num_qp_per_pe",
    "shmem_ptr_p2p",
    "shmem_torch_process_group_init",
    "symm_mori_shmem_tensor",
]
