"""Calls of ep's kernels on the PEs of a world: host/ep_calls.hpp makes input and arguments, this
runs them in both places and asks whether all PEs have what the reference says.
"""

import ctypes
import dataclasses

from world import Task, World, peek

WEIGHTS, SCALES, COUNT_EXPERTS, IN_PLACE, REGISTERED, BAD_IDS, FOREIGN = (1 << i for i in range(7))
DTYPES = {"f32": 1, "bf16": 2, "f16": 3, "e4m3fn": 4, "e4m3fnuz": 5}  # MORI_EP_*
ELEMENT_BYTES = {"f32": 4, "bf16": 2, "f16": 2, "e4m3fn": 1, "e4m3fnuz": 1}


class Options(ctypes.Structure):
    """As mori_amd_ep_options."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            *("seed", "hidden_dim", "scale_dim", "scale_elem_bytes"),
            *("max_input_token_count", "max_total_recv_token_count"),
            *("expert_per_rank_count", "expert_per_token_count"),
            *("registered_input", "drop_invalid_experts", "call_count"),
        )
    )


class EpLaunch(ctypes.Structure):
    """As mori_amd_ep_launch."""

    _fields_ = (
        ("kernel", ctypes.c_char_p),
        ("arguments", ctypes.c_void_p),
        ("arguments_bytes", ctypes.c_uint64),
        ("numbers", ctypes.c_uint64),
        ("numbers_bytes", ctypes.c_uint64),
    )


def bind(host):
    """Types of the functions; ctypes would cut pointers to 32 bits."""
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    for name, result, arguments in (
        ("heap_bytes", ctypes.c_uint64, [pointer, ctypes.c_int32]),
        ("private_bytes", ctypes.c_uint64, [pointer, ctypes.c_int32]),
        ("create", pointer, [pointer, pointer, ctypes.c_int32]),
        ("destroy", None, [pointer]),
        ("prepare_dispatch", ctypes.c_uint64, [pointer, ctypes.c_int32, ctypes.c_uint32]),
        ("prepare_combine", ctypes.c_uint64, [pointer, ctypes.c_int32, ctypes.c_uint32]),
        ("launch_of", None, [pointer, ctypes.c_uint64, ctypes.c_int32, pointer]),
        ("clear", None, [pointer]),
        ("keep", None, [pointer, ctypes.c_uint64, ctypes.c_int32]),
        ("check", text, [pointer, ctypes.c_uint64]),
        ("mishap", text, [pointer, ctypes.c_int32]),
    ):
        function = getattr(host, f"mori_amd_ep_{name}")
        function.restype, function.argtypes = result, arguments


@dataclasses.dataclass
class Geometry:
    """Blocks of a launch, the same number in both places, and lanes of a block on the GPU."""

    grid: int = 3
    block: int = 128


class Ranks:
    """An operator's ranks, one for each PE of a world made for them."""

    def __init__(self, stage, pe_count, **options):
        bind(stage.host)
        self.stage, self.host = stage, stage.host
        self.given = ctypes.byref(Options(**options))
        heap = self.host.mori_amd_ep_heap_bytes(self.given, pe_count)
        private = self.host.mori_amd_ep_private_bytes(self.given, pe_count)
        if heap == 0:
            raise ValueError(f"ep refuses {options}")
        self.world = World(self.host, pe_count, heap, private)
        self.create()

    def create(self):
        """From the states that the PEs have now."""
        count = len(self.world.pes)
        self.handle = self.host.mori_amd_ep_create(self.world.handle, self.given, count)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.host.mori_amd_ep_destroy(self.handle)
        self.world.__exit__()

    def dispatch(self, dtype, flags=0):
        """Prepares a call on all ranks; its number."""
        return self.host.mori_amd_ep_prepare_dispatch(self.handle, DTYPES[dtype], flags)

    def combine(self, dtype, flags=0):
        return self.host.mori_amd_ep_prepare_combine(self.handle, DTYPES[dtype], flags)

    def task_of(self, call, pe, geometry):
        """(task, where it leaves numbers); what the PE has at its end is kept."""
        launch = EpLaunch()
        self.host.mori_amd_ep_launch_of(self.handle, call, pe.index, ctypes.byref(launch))
        task = Task(
            pe,
            launch.kernel.decode(),
            peek(launch.arguments, launch.arguments_bytes),
            geometry.grid,
            geometry.block,
            geometry.grid,
            lambda: self.host.mori_amd_ep_keep(self.handle, call, pe.index),
        )
        return task, (launch.numbers, launch.numbers_bytes)

    def run(self, calls, seed, geometry, pes=None, **machine):
        """Prepared calls, one after the other on each PE, on the host and in the emulator."""
        steps, numbers = [], []
        for call in calls:
            made = [self.task_of(call, pe, geometry) for pe in pes or self.world.pes]
            steps.append([task for task, _ in made])
            numbers += [place for _, place in made]
        self.stage.run_in_turn(self.world, steps, seed, ignored=numbers, **machine)
        self.host.mori_amd_ep_clear(self.handle)

    def check(self, calls, what):
        for call in calls:
            said = self.host.mori_amd_ep_check(self.handle, call).decode()
            assert said == "", f"{what}, call {call}: {said}"
        for pe in self.world.pes:
            assert pe.read_fault()[0] == 0, f"{what}: PE {pe.index} has a fault: {pe.read_fault()}"

    def run_one(self, call, seed, geometry, what):
        self.run([call], seed, geometry)
        self.check([call], f"{what}, seed {seed}, {geometry}")

    def mishaps(self):
        """What each PE's call found wrong, in words; "" where nothing."""
        return [
            self.host.mori_amd_ep_mishap(self.handle, pe.index).decode() for pe in self.world.pes
        ]
