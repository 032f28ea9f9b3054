"""Names of the C constants that a context deals in, and what it reports of itself."""

from __future__ import annotations

from dataclasses import dataclass

from mori._ffi import constant
from mori._raw import CData, text
from mori._values import name_of

BACKENDS = {n: constant(f"MORI_BACKEND_{n.upper()}") for n in ("auto", "host", "amd", "nvidia")}
HEAP_MODES = {
    "default": constant("MORI_SHMEM_HEAP_DEFAULT"),
    "static": constant("MORI_SHMEM_HEAP_STATIC"),
    "vmm": constant("MORI_SHMEM_HEAP_VMM"),
    "isolation": constant("MORI_SHMEM_HEAP_ISOLATION"),
}
TRANSPORTS = {n: constant(f"MORI_SHMEM_TRANSPORT_{n.upper()}") for n in ("none", "p2p")}
TRANSPORTS |= {n: constant(f"MORI_SHMEM_TRANSPORT_{n.upper()}") for n in ("rdma", "tcp")}
SIGNALS = {n: constant(f"MORI_SHMEM_SIGNAL_{n.upper()}") for n in ("set", "add")}
COMPARISONS = {
    n: constant(f"MORI_SHMEM_CMP_{n.upper()}") for n in ("eq", "ne", "gt", "ge", "lt", "le")
}
ATOMICS = {
    n: constant(f"MORI_SHMEM_AMO_{n.upper()}")
    for n in (
        *("inc", "set", "add", "and", "or", "xor", "fetch", "fetch_inc", "fetch_add"),
        *("fetch_and", "fetch_or", "fetch_xor", "swap", "compare_swap"),
    )
}


@dataclass(frozen=True)
class ContextInfo:
    """Facts and heap statistics of this PE; sizes in bytes, the timeout in seconds.

    gpu_ordinal       the GPU that the heap is on, as this process counts them; -1: none
    gpu_sharer_count  PEs that share it, or what MORI_GPU_SHARERS says; 0: none
    """

    pe: int
    pe_count: int
    node: int
    node_count: int
    local_pe: int
    local_pe_count: int
    backend: str
    heap_mode: str
    heap_bytes: int
    used_bytes: int
    peak_bytes: int
    largest_free_bytes: int
    queue_pair_per_pe_count: int
    worker_count: int
    wait_timeout_s: float
    gpu_ordinal: int
    gpu_sharer_count: int

    @classmethod
    def of_report(cls, report: CData) -> ContextInfo:
        """From a mori_shmem_report."""
        converted = {
            "backend": name_of(report.backend, BACKENDS),
            "heap_mode": name_of(report.heap_mode, HEAP_MODES),
            "wait_timeout_s": report.wait_timeout_ns / 1e9,
        }
        plain = cls.__dataclass_fields__.keys() - converted.keys()
        return cls(**converted, **{name: getattr(report, name) for name in plain})


@dataclass(frozen=True)
class HeapStats:
    """Statistics of this PE's symmetric heap, in bytes and counts.

    size                can be allocated in all, taken or not
    used, peak          allocated, with rounding and guard pages: now, and at most so far
    free                size - used
    largest_free_block  the largest allocation that would succeed
    committed           memory behind the heap; what was freed counts until the next malloc
    allocation_count    live ones
    free_block_count    pieces that the free bytes are in
    step                memory is taken in steps of so much
    heap_mode           "static", "vmm" or "isolation"
    """

    size: int
    used: int
    peak: int
    free: int
    largest_free_block: int
    committed: int
    allocation_count: int
    free_block_count: int
    step: int
    heap_mode: str

    @classmethod
    def of_report(cls, report: CData) -> HeapStats:
        """From a mori_shmem_heap_report."""
        return cls(
            size=report.size_bytes,
            used=report.used_bytes,
            peak=report.peak_bytes,
            free=report.free_bytes,
            largest_free_block=report.largest_free_bytes,
            committed=report.committed_bytes,
            allocation_count=report.allocation_count,
            free_block_count=report.free_block_count,
            step=report.step_bytes,
            heap_mode=name_of(report.heap_mode, HEAP_MODES),
        )


@dataclass(frozen=True)
class PeerInfo:
    """How a PE is reached (`transport`: none, p2p, rdma or tcp), and why so."""

    pe: int
    node: int
    transport: str
    os_process_id: int
    reason: str

    @classmethod
    def of_report(cls, report: CData) -> PeerInfo:
        """From a mori_shmem_peer_report."""
        transport = name_of(report.transport, TRANSPORTS)
        return cls(report.pe, report.node, transport, report.os_process_id, text(report.reason))
