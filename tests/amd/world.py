"""PEs on plain memory that the host's kernels and the emulator use in turn, at the same addresses.
host/world.hpp has the layouts; here is what tests do with them: allocate, run a set of launches in
both places, compare every byte.
"""

import collections.abc
import ctypes
import dataclasses
import struct

from emulator.loader import Launch
from emulator.machine import Machine

# Fields of mori_amd_pe, all 64 bits wide.
FIELDS = (
    *("heap", "heap_bytes", "user", "private_memory", "private_bytes"),
    *("state", "state_bytes", "fault", "fault_bytes", "abort_word"),
    *("left", "peer_bases", "transports"),
    *("launch", "launch_bytes", "barrier", "barrier_bytes"),
    *("device_barrier", "device_barrier_bytes", "device_epoch", "doorbell"),
)
ALIGNMENT = 64
FAULT = "<QiiiiQQ"  # mori_shmem_fault


class Place(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in FIELDS)


class Run(ctypes.Structure):
    """As mori_amd_run."""

    _fields_ = (
        ("kernel", ctypes.c_char_p),
        ("arguments", ctypes.c_void_p),
        ("launch", ctypes.c_void_p),
    )


def load_host(path):
    library = ctypes.CDLL(str(path))
    library.mori_amd_world_create.restype = ctypes.c_void_p
    library.mori_amd_world_create.argtypes = [ctypes.c_int32, ctypes.c_uint64, ctypes.c_uint64]
    library.mori_amd_world_destroy.argtypes = [ctypes.c_void_p]
    library.mori_amd_world_pe.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p]
    library.mori_amd_world_pe.restype = ctypes.c_uint64
    library.mori_amd_make_launch.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32]
    library.mori_amd_set_wait_budget.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint64]
    library.mori_amd_run_on_host.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    return library


def peek(address, size):
    return ctypes.string_at(address, size)


def poke(address, data):
    ctypes.memmove(address, data, len(data))


class Pe:
    """One PE: addresses as attributes, and room to put things."""

    def __init__(self, host, world, index):
        self.index, self.place = index, Place()
        size = host.mori_amd_world_pe(world, index, ctypes.byref(self.place))
        if size != ctypes.sizeof(Place):
            raise ValueError("world.py and host/world.hpp disagree about mori_amd_pe")
        for name in FIELDS:
            setattr(self, name, getattr(self.place, name))
        self.next_private, self.next_user = self.private_memory, self.user

    def private(self, content):
        """Private memory with this content, or of this size; its address."""
        return self._take("next_private", content, self.private_memory + self.private_bytes)

    def symmetric(self, size):
        """Memory of the heap; the same place on all PEs that ask in the same order."""
        return self._take("next_user", size, self.heap + self.heap_bytes)

    def _take(self, cursor, content, end):
        address = getattr(self, cursor)
        size = content if isinstance(content, int) else len(content)
        if address + size > end:
            raise MemoryError(f"{size} bytes do not fit into the test's memory")
        setattr(self, cursor, address + -(-size // ALIGNMENT) * ALIGNMENT)
        if not isinstance(content, int):
            poke(address, content)
        return address

    def state_words(self):
        return peek(self.state, self.state_bytes)

    def read_fault(self):
        """claimed, status, operation, pe, reserved, awaited, seen."""
        return struct.unpack(FAULT, peek(self.fault, self.fault_bytes))


@dataclasses.dataclass
class Task:
    """One launch: the same arguments, but as many blocks on the host as groups have work."""

    pe: Pe
    kernel: str
    arguments: bytes
    grid: int = 1
    block: int = 64
    host_blocks: int = 1
    at_end: collections.abc.Callable = None  # called in the emulator, right after the launch


class World:
    def __init__(self, host, pe_count, heap_bytes=1 << 14, private_bytes=1 << 16):
        self.host = host
        self.handle = host.mori_amd_world_create(pe_count, heap_bytes, private_bytes)
        if not self.handle:
            raise MemoryError("no memory for the test's PEs")
        self.pes = [Pe(host, self.handle, i) for i in range(pe_count)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.host.mori_amd_world_destroy(self.handle)

    def set_wait_budget(self, ns):
        for pe in self.pes:
            self.host.mori_amd_set_wait_budget(self.handle, pe.index, ns)

    def parts(self):
        """(name, address, size) of all memory that kernels may write."""
        for pe in self.pes:
            yield f"heap of PE {pe.index}", pe.heap, pe.heap_bytes
            yield f"private memory of PE {pe.index}", pe.private_memory, pe.private_bytes
            yield f"fault of PE {pe.index}", pe.fault, pe.fault_bytes
            yield f"abort word of PE {pe.index}", pe.abort_word, 8
            yield f"peers that left PE {pe.index}", pe.left, 4 * len(self.pes)

    def snapshot(self):
        return [peek(address, size) for _, address, size in self.parts()]

    def restore(self, snapshot):
        for (_, address, _), data in zip(self.parts(), snapshot, strict=True):
            poke(address, data)

    def launch(self, pe, block_count):
        self.host.mori_amd_make_launch(self.handle, pe.index, block_count)
        return peek(pe.launch, pe.launch_bytes)

    def different_by_nature(self):
        """(address, size) of what the host and a GPU keep in their own ways: doorbells, barriers
        in many rounds or one, the abort word that a fault sets on a GPU."""
        for pe in self.pes:
            yield pe.doorbell, 8
            yield pe.device_barrier, pe.device_barrier_bytes
            yield pe.abort_word, 8


class Stage:
    """Runs tasks on the host and in the emulator. `objects`: the loaded code objects of one
    architecture; `executed` collects what ran, for the record."""

    def __init__(self, host, emulator, objects):
        self.host, self.emulator = host, emulator
        self.kernels = {name: each for each in objects for name in each.file.kernels}
        self.executed = {}
        self.instruction_count = 0

    def on_host(self, world, tasks):
        runs, keep = (Run * len(tasks))(), []
        for run, task in zip(runs, tasks, strict=True):
            world.launch(task.pe, task.host_blocks)
            keep.append(ctypes.create_string_buffer(task.arguments, len(task.arguments)))
            run.kernel = task.kernel.encode()
            run.arguments = ctypes.addressof(keep[-1])
            run.launch = task.pe.launch
        if self.host.mori_amd_run_on_host(runs, len(runs)) != 0:
            raise ValueError("the host has no such kernel")

    def in_emulator(self, world, steps, seed, **machine):
        """Each PE runs its task of every step, in order; PEs do not wait for each other."""
        everything = Machine(self.emulator, seed=seed, **machine)
        for task in (task for step in steps for task in step):
            arguments = [task.arguments, world.launch(task.pe, task.grid)]
            loaded = self.kernels[task.kernel]
            launch = Launch(loaded, task.kernel, task.grid, task.block, arguments)
            everything.add(launch, stream=task.pe.index, at_end=task.at_end)
            ran = self.executed.setdefault(task.kernel, {"seeds": set(), "pe_counts": set()})
            ran["seeds"].add(seed)
            ran["pe_counts"].add(len(world.pes))
        everything.run()
        self.instruction_count += everything.instruction_count

    def run(self, world, tasks, seed, ignored=(), **machine):
        self.run_in_turn(world, [tasks], seed, ignored, **machine)

    def run_in_turn(self, world, steps, seed, ignored=(), **machine):
        """On the host, then from the same memory in the emulator; fails where they differ outside
        of `ignored` (address, size). The emulator's memory is left for more looks."""
        before = world.snapshot()
        for step in steps:
            self.on_host(world, step)
        host_after = world.snapshot()
        world.restore(before)
        self.in_emulator(world, steps, seed, **machine)
        masked = [*world.different_by_nature(), *ignored]
        for part, expected in zip(world.parts(), host_after, strict=True):
            compare(part, expected, masked)


def compare(part, expected, masked):
    name, address, size = part
    found = bytearray(peek(address, size))
    for begin, length in masked:
        at = begin - address
        if 0 <= at < size:
            found[at : at + length] = expected[at : at + length]
    if bytes(found) == expected:
        return
    wrong = [i for i in range(size) if found[i] != expected[i]]
    at = wrong[0] // 8 * 8
    raise AssertionError(
        f"{name}: {len(wrong)} bytes differ from the host's, the first at {wrong[0]:#x}: "
        f"{bytes(found[at : at + 8]).hex()}, not {expected[at : at + 8].hex()}"
    )
