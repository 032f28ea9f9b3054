"""Names that frameworks import from `mori.cpp`, MORI's binding module.

Only enumerations and flags: they are the same objects as in mori.ops and mori.shmem, and
importing them loads no library.
"""

from __future__ import annotations

from mori._enums import (
    MORI_SHMEM_INIT_WITH_MPI_COMM,
    MORI_SHMEM_INIT_WITH_UNIQUEID,
    EpDispatchCombineKernelType,
    EpDispatchCombineQuantType,
)

__all__ = [
    "MORI_SHMEM_INIT_WITH_MPI_COMM",
    "MORI_SHMEM_INIT_WITH_UNIQUEID",
    "EpDispatchCombineKernelType",
    "EpDispatchCombineQuantType",
]
