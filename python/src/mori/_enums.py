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
