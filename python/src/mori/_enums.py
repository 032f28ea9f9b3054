"""Enumerations and flags under MORI's names, with the values of the C headers.

They need no library, so that code may import them on a machine that only configures a run.
"""

from __future__ import annotations

import enum

from mori._ffi import constant

# How shmem_init_attr finds its group. MORI numbers them so; the C ABI has no counterpart,
# because its only rendezvous is the unique id.
MORI_SHMEM_INIT_WITH_MPI_COMM = 0
MORI_SHMEM_INIT_WITH_UNIQUEID = 1


class EpDispatchCombineKernelType(enum.IntEnum):
    """Which kernels an operator runs."""

    IntraNode = constant("MORI_EP_KERNEL_INTRA_NODE")
    InterNode = constant("MORI_EP_KERNEL_INTER_NODE")
    InterNodeV1 = constant("MORI_EP_KERNEL_INTER_NODE_V1")
    InterNodeV1LL = constant("MORI_EP_KERNEL_INTER_NODE_V1LL")
    AsyncLL = constant("MORI_EP_KERNEL_ASYNC_LL")
    IntraNodeLL = constant("MORI_EP_KERNEL_INTRA_NODE_LL")


class EpDispatchCombineQuantType(enum.IntEnum):
    """How combine's payload is quantised on the way."""

    None_ = constant("MORI_EP_QUANT_NONE")
    Fp8DirectCast = constant("MORI_EP_QUANT_FP8_DIRECT_CAST")
    Fp8BlockwiseQuant = constant("MORI_EP_QUANT_FP8_BLOCKWISE")
    Fp4BlockwiseQuant = constant("MORI_EP_QUANT_FP4_BLOCKWISE")


class BackendType(enum.IntEnum):
    """Ways to move bytes between memory of two processes."""

    Unknown = constant("MORI_IO_BACKEND_AUTO")
    XGMI = constant("MORI_IO_BACKEND_XGMI")
    RDMA = constant("MORI_IO_BACKEND_RDMA")
    TCP = constant("MORI_IO_BACKEND_TCP")
    FABRIC = constant("MORI_IO_BACKEND_FABRIC")


class MemoryLocationType(enum.IntEnum):
    """Where registered memory is."""

    Unknown = constant("MORI_IO_LOCATION_DETECT")
    CPU = constant("MORI_IO_LOCATION_CPU")
    GPU = constant("MORI_IO_LOCATION_GPU")


# MORI's numbers; the C ABI has mori_status instead (mori/io/_status.py says which is which).
class StatusCode(enum.IntEnum):
    """State of a transfer; all above ERR_BEGIN are failures."""

    SUCCESS = 0
    INIT = 1
    IN_PROGRESS = 2
    ERR_BEGIN = 10
    ERR_INVALID_ARGS = 11
    ERR_NOT_FOUND = 12
    ERR_RDMA_OP = 13
    ERR_BAD_STATE = 14
    ERR_GPU_OP = 15


class PollCqMode(enum.IntEnum):
    """How the RDMA backend learns of completions."""

    POLLING = 0
    EVENT = 1
