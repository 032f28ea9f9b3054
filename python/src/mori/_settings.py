"""All environment variables that the libraries and this package read: who reads each, its default,
what it does. docs/settings.md is this table (`python -m mori._settings`); a test compares the names
with the sources.
"""

from __future__ import annotations

import difflib
from typing import NamedTuple


class Setting(NamedTuple):
    """Who reads it, what counts without it, and what it does."""

    reader: str
    default: str
    meaning: str


_S, _P, _I = "libmori-shmem", "Python", "libmori-io"
_L = "mori-link's RDMA layer, which no library uses yet"
_ALL, _SI, _IR = "all", "libmori-shmem, libmori-io", "mori.ir"

SETTINGS: dict[str, Setting] = {
    "MORI_BACKEND": Setting(_S, "auto", "host, nvidia or amd: where heaps and kernels are"),
    "MORI_BOOTSTRAP_TIMEOUT": Setting(_S, "300", "seconds for all PEs to join"),
    "MORI_CACHE_DIR": Setting(_IR, "$XDG_CACHE_HOME/mori", "where built bitcode is kept"),
    "MORI_CHECK": Setting("libmori-ep", "unset", "sync: faults of kernels are raised at once"),
    "MORI_CLANG": Setting(_IR, "oldest that will do", "compiler of bitcode for more architectures"),
    "MORI_DISABLE_P2P": Setting(_S, "0", "1: map no peer, reach all of them by the network"),
    "MORI_DISABLE_TOPO": Setting(_L, "0", "1: distances do not count, RDMA ports take turns"),
    "MORI_GPU_ARCH": Setting(_IR, "the current GPU's", "architecture that bitcode is looked for"),
    "MORI_GPU_SHARERS": Setting(_S, "counted", "PEs by which a GPU's blocks are divided"),
    "MORI_HEARTBEAT_TIMEOUT_MS": Setting(_S, "10000", "silence after which a PE counts as dead"),
    "MORI_HOST_ISA": Setting(_ALL, "best", "x86-64, x86-64-v3 or x86-64-v4: host kernels that run"),
    "MORI_IB_GID_INDEX": Setting(_L, "by preference", "index in the port's GID table"),
    "MORI_IB_PATH_MTU": Setting(_L, "the port's", "256, 512, 1024, 2048 or 4096 at most"),
    "MORI_IO_CHUNK_BYTES": Setting(_I, "by the backend", "slice of a large transfer"),
    "MORI_IO_CP_TIMEOUT_MS": Setting(_I, "30000", "connecting, handshakes, back-pressure"),
    "MORI_IO_ENABLE_NOTIFICATION": Setting(_I, "1", "0: transfers notify no peer"),
    "MORI_IO_GUEST_COUNT": Setting(_I, "4096", "connected initiators at once"),
    "MORI_IO_PEER_TIMEOUT_MS": Setting(_I, "10000", "silence after which a peer counts as dead"),
    "MORI_IO_SECURITY": Setting(_I, "mac", "mac, encrypt or trusted: protection of bulk data"),
    "MORI_LIBRARY_DIR": Setting(_P, "unset", "folders of the libraries, by ':'; nowhere else then"),
    "MORI_LOG_LEVEL": Setting(_ALL, "warn", "off, error, warn, info, debug or trace"),
    "MORI_NODE_ID": Setting(_SI, "boot id", "processes with equal ids try to share memory"),
    "MORI_NUM_QP_PER_PE": Setting(_S, "1", "connections to each network peer, 1 .. 64"),
    "MORI_RDMA_DEVICES": Setting(_L, "all", "mlx5_0,mlx5_1:2: these alone; ^mlx5_2: all others"),
    "MORI_RDMA_RETRY_COUNT": Setting(_L, "6", "how often an unanswered packet is repeated"),
    "MORI_RDMA_SL": Setting(_L, "0", "service level, 0 .. 15"),
    "MORI_RDMA_TC": Setting(_L, "0", "traffic class, 0 .. 255"),
    "MORI_RDMA_TIMEOUT": Setting(_L, "14", "a packet is repeated after 4.096 us * 2^this"),
    "MORI_RENDEZVOUS_DIR": Setting(_P, "unset", "folder that all hosts see, for a group's id"),
    "MORI_SHMEM_BC": Setting(_IR, "unset", "bitcode file for whatever architecture is asked"),
    "MORI_SHMEM_BC_DIR": Setting(_IR, "unset", "folders of bitcode, by ':'; nowhere else then"),
    "MORI_SHMEM_HEAP_DIR": Setting(_S, "unset", "folder (tmpfs, hugetlbfs) of the heaps' file"),
    "MORI_SHMEM_HEAP_SIZE": Setting(_S, "4G", "heap of a PE: a number with K, M, G or T"),
    "MORI_SHMEM_HEAP_TYPE": Setting(_S, "uncached", "uncached or normal; checked, no effect"),
    "MORI_SHMEM_MODE": Setting(_S, "static", "static, vmm or isolation"),
    "MORI_SHMEM_SECURITY": Setting(_S, "mac", "trusted: no MAC over bulk data on the network"),
    "MORI_SHMEM_VMM_CHUNK_SIZE": Setting(_S, "64M", "what a heap of mode vmm grows by"),
    "MORI_SOCKET_IFNAME": Setting(_SI, "all", "interface whose address peers are told"),
    "MORI_TIMEOUT_MS": Setting(_S, "300000", "deadline of collectives and device waits"),
    "MORI_TRITON_ANY": Setting(_IR, "0", "1: take a Triton that the tests do not know"),
}


def closest(name: str) -> str | None:
    """The setting that a wrong name was perhaps meant to be."""
    near = difflib.get_close_matches(name, SETTINGS, 1, 0.75)
    return near[0] if near else None


def table() -> str:
    """docs/settings.md."""
    rows = [
        f"| `{name}` | {one.reader} | {one.default} | {one.meaning} |"
        for name, one in SETTINGS.items()
    ]
    return "\n".join(
        [
            "# Environment variables",
            "",
            "All that the libraries and the Python package read. Fields of options and arguments",
            "of calls come first, then these, then the defaults. A value that cannot be read is",
            "an error that names it; `mori doctor` finds names that nothing reads. Made by",
            "`python -m mori._settings`.",
            "",
            "| variable | read by | default | meaning |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    print(table(), end="")
