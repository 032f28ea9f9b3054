"""The checks of one node. Each reads what the kernel says, below `root`, which tests replace, and
says why it matters here: a check that nothing in the libraries depends on would be noise.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mori._settings import SETTINGS, closest
from mori.doctor.answer import FAIL, OK, SKIP, WARN, Answer

_MIB = 1 << 20
_LOCKED_BYTES = 64 * _MIB  # less than any KV cache; Linux's default is 8 MiB
_DESCRIPTORS = 4096
_DEFAULT_HEAP_BYTES = 4 << 30
_SHARED_MEMORY_BYTES = 256 * _MIB  # containers' default is 64 MiB
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


@dataclass
class Node:
    """What is looked at: files below `root`, settings, limits, and what the loader finds."""

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    limit: Callable[[int], int] = lambda kind: resource.getrlimit(kind)[0]
    loads: Callable[[str], bool] = _loads

    def text(self, path: str) -> str:
        """A file's content without the last line's end; empty when it cannot be read."""
        try:
            return (self.root / path).read_text().strip()
        except OSError:
            return ""

    def names(self, path: str) -> list[str]:
        """What is in a folder; nothing when there is none."""
        try:
            return sorted(entry.name for entry in (self.root / path).iterdir())
        except OSError:
            return []

    def number(self, path: str) -> int | None:
        """The number that a file begins with."""
        first = self.text(path).split()[:1]
        return int(first[0]) if first and first[0].isdigit() else None


def mebibytes(count: int) -> str:
    """A size for people."""
    return f"{count / _MIB:.0f} MiB" if count < 1 << 33 else f"{count / 2**30:.0f} GiB"


def heap_bytes(text: str) -> int | None:
    """What MORI_SHMEM_HEAP_SIZE means; None when it cannot be read."""
    lower = text.strip().lower().removesuffix("b").removesuffix("i")
    unit = lower[-1:] if lower[-1:] in _UNITS and lower[-1:] else ""
    digits = lower.removesuffix(unit) if unit else lower
    return int(digits) * _UNITS[unit] if digits.isdigit() else None


def locked_memory(node: Node) -> Answer:
    """RDMA pins the memory that it registers."""
    name, value = "locked memory", node.limit(resource.RLIMIT_MEMLOCK)
    if value == resource.RLIM_INFINITY:
        return Answer(name, OK, "no limit")
    state = OK if value >= _LOCKED_BYTES or not node.names("sys/class/infiniband") else FAIL
    fix = "ulimit -l unlimited; in containers --ulimit memlock=-1; else RDMA cannot register"
    return Answer(name, state, mebibytes(value), "" if state == OK else fix)


def descriptors(node: Node) -> Answer:
    """Connections: two a peer and engine, more for queue pairs."""
    value = node.limit(resource.RLIMIT_NOFILE)
    found = "no limit" if value == resource.RLIM_INFINITY else str(value)
    few = value != resource.RLIM_INFINITY and value < _DESCRIPTORS
    fix = f"ulimit -n {_DESCRIPTORS} or more: each peer of an engine takes several descriptors"
    return Answer("descriptors", WARN if few else OK, found, fix if few else "")


def memory(node: Node) -> Answer:
    """The heap of a PE has to fit; its pages are reserved at allocation."""
    name, setting = "memory", node.environment.get("MORI_SHMEM_HEAP_SIZE", "")
    wanted = heap_bytes(setting) if setting else _DEFAULT_HEAP_BYTES
    if wanted is None:
        fix = "a number with K, M, G or T, like 512MiB"
        return Answer(name, FAIL, f"MORI_SHMEM_HEAP_SIZE is {setting!r}", fix)
    rows = (line.split() for line in node.text("proc/meminfo").splitlines())
    available = next((int(row[1]) << 10 for row in rows if row[:1] == ["MemAvailable:"]), None)
    limit = node.number("sys/fs/cgroup/memory.max")
    used = node.number("sys/fs/cgroup/memory.current") or 0
    rooms = [one for one in (available, None if limit is None else limit - used) if one is not None]
    if not rooms:
        return Answer(name, SKIP, "the kernel does not say how much there is")
    found = f"{mebibytes(min(rooms))} free, a heap may take {mebibytes(wanted)} per PE"
    fix = "a smaller MORI_SHMEM_HEAP_SIZE, fewer PEs on this node, or a higher memory limit"
    return Answer(name, OK, found) if min(rooms) >= wanted else Answer(name, WARN, found, fix)


def shared_memory(node: Node) -> Answer:
    """Not the libraries' own: heaps are anonymous files. Frameworks beside them need it."""
    folder = node.environment.get("MORI_SHMEM_HEAP_DIR", "")
    path = node.root / (folder or "dev/shm").lstrip("/")
    name = f"/{path.relative_to(node.root)}"
    try:
        facts = os.statvfs(path)
    except OSError as error:
        state, fix = (FAIL, "MORI_SHMEM_HEAP_DIR names a folder") if folder else (WARN, "mount it")
        return Answer(name, state, error.strerror or "cannot be read", fix)
    total, free = facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize
    found = f"{mebibytes(total)}, {mebibytes(free)} free"
    if total >= _SHARED_MEMORY_BYTES:
        return Answer(name, OK, found)
    if folder:
        return Answer(name, FAIL, found, "MORI_SHMEM_HEAP_DIR has to hold the heaps of all PEs")
    fix = "--shm-size=1g for containers: heaps do not lie there, but torch and NCCL do"
    return Answer(name, WARN, found, fix)


def huge_pages(node: Node) -> Answer:
    """Fewer page faults and TLB misses in heaps, which are shared memory."""
    name = "huge pages"
    text = node.text("sys/kernel/mm/transparent_hugepage/shmem_enabled")
    chosen = text.partition("[")[2].partition("]")[0]
    if not chosen:
        return Answer(name, SKIP, "this kernel has none for shared memory")
    if chosen in ("advise", "always", "within_size", "force"):
        return Answer(name, OK, f"shared memory: {chosen}")
    fix = "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"
    return Answer(name, WARN, f"shared memory: {chosen}", fix)


def attach(node: Node) -> Answer:
    """Same-node transfers of ordinary memory read the other process, as a debugger does."""
    name, scope = "attaching processes", node.number("proc/sys/kernel/yama/ptrace_scope")
    if not scope:
        return Answer(name, OK, "kernel.yama.ptrace_scope is 0 or absent")
    fix = (
        "sysctl kernel.yama.ptrace_scope=0, or --cap-add=SYS_PTRACE; else XGMI moves only memory "
        "of IOEngine.alloc and TCP the rest"
    )
    return Answer(name, WARN, f"kernel.yama.ptrace_scope is {scope}", fix)


def gpu(node: Node) -> Answer:
    """A driver that can be opened; which GPUs it serves is what `mori info` tries."""
    name = "GPU drivers"
    devices = [one for one in node.names("dev") if one.startswith("nvidia") and one[6:].isdigit()]
    rows = (
        ("NVIDIA", bool(devices), ("libcuda.so.1",)),
        ("AMD", "kfd" in node.names("dev"), ("libamdhip64.so.7", "libamdhip64.so.6")),
    )
    here = [(vendor, any(map(node.loads, files))) for vendor, there, files in rows if there]
    if not here:
        return Answer(name, SKIP, "no GPU here: the host back end is used")
    missing = [vendor for vendor, works in here if not works]
    if missing:
        fix = "install the driver's libraries; in containers --gpus all or --device /dev/kfd"
        return Answer(name, FAIL, f"no library for {' and '.join(missing)} GPUs", fix)
    return Answer(name, OK, ", ".join(f"{vendor} driver" for vendor, _ in here))


def mps(node: Node) -> Answer:
    """PEs that are processes on one NVIDIA GPU wait for each other in milliseconds without it."""
    name = "CUDA MPS"
    if not any(one.startswith("nvidia") and one[6:].isdigit() for one in node.names("dev")):
        return Answer(name, SKIP, "no NVIDIA GPU")
    folder = node.environment.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    if "control" in node.names(folder.lstrip("/")):
        return Answer(name, OK, f"control pipe in {folder}")
    fix = "nvidia-cuda-mps-control -d, if several processes are to share a GPU"
    return Answer(name, WARN, "not running", fix)


def rdma(node: Node) -> Answer:
    """Ports that are up, and the library that speaks to them."""
    name, devices = "RDMA", node.names("sys/class/infiniband")
    if not devices:
        return Answer(name, SKIP, "no device: peers are reached over TCP")
    if not node.loads("libibverbs.so.1"):
        return Answer(
            name, FAIL, f"{', '.join(devices)}, no libibverbs.so.1", "install libibverbs1"
        )
    ports = [
        (f"{device}/{port}", node.text(f"sys/class/infiniband/{device}/ports/{port}/state"))
        for device in devices
        for port in node.names(f"sys/class/infiniband/{device}/ports")
    ]
    found = ", ".join(f"{port} {state.partition(': ')[2] or 'unknown'}" for port, state in ports)
    up = any("ACTIVE" in state for _, state in ports)
    fix = "no port is active: cable, switch, or `ip link set DEVICE up` for RoCE"
    return Answer(name, OK if up else WARN, found or "no port", "" if up else fix)


def interface(node: Node) -> Answer:
    """Peers on other nodes are told an address of it."""
    name, chosen = "network", node.environment.get("MORI_SOCKET_IFNAME", "")
    there = [one for one in node.names("sys/class/net") if one != "lo"]
    if chosen and chosen not in (*there, "lo"):
        fix = f"one of {', '.join(there) or 'none'}"
        return Answer(name, FAIL, f"MORI_SOCKET_IFNAME is {chosen!r}, no such interface", fix)
    names = [chosen] if chosen else there
    if not names:
        return Answer(name, WARN, "loopback alone", "no other node can be reached")
    states = {one: node.text(f"sys/class/net/{one}/operstate") or "unknown" for one in names}
    found = ", ".join(f"{one} {state}" for one, state in states.items())
    if all(state == "down" for state in states.values()):
        return Answer(name, WARN, found, "ip link set INTERFACE up")
    return Answer(name, OK, found)


def settings(node: Node) -> Answer:
    """A name that nothing reads is a setting that does not work."""
    name = "settings"
    given = sorted(one for one in node.environment if one.startswith("MORI_"))
    unknown = [one for one in given if one not in SETTINGS and not one.startswith("MORI_TEST_")]
    if unknown:
        near = ", ".join(filter(None, (closest(one) for one in unknown)))
        fix = f"nothing reads it{f'; meant was perhaps {near}' if near else ''}"
        return Answer(name, WARN, ", ".join(unknown), fix)
    return Answer(name, OK, ", ".join(given) or "none is set")


CHECKS: tuple[Callable[[Node], Answer], ...] = (
    memory,
    shared_memory,
    locked_memory,
    descriptors,
    huge_pages,
    attach,
    gpu,
    mps,
    rdma,
    interface,
    settings,
)


def check_node(node: Node | None = None) -> list[Answer]:
    """All checks of this node."""
    looked_at = node or Node()
    return [check(looked_at) for check in CHECKS]
