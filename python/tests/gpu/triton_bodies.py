"""What one PE does in the tests of the Triton functions, on a GPU, as a process or as a thread.
Each body takes a Pe, checks the values it finds, and returns what the test compares."""

from __future__ import annotations

import ctypes
import functools
import os
import types
from pathlib import Path
from typing import Any

import mori.ir.triton as device
import torch
import triton_kernels
from cuda_driver import Module
from mori.errors import InvalidError, NotFoundError, StateError, WaitTimeoutError
from mori.shmem import Context, set_default_context
from pe_program import raised
from triton.runtime.jit import JITFunction

_PLAIN = {name: one for name, one in vars(triton_kernels).items() if isinstance(one, JITFunction)}
PROCESS = types.SimpleNamespace(**_PLAIN)
THREAD = types.SimpleNamespace(**{name: device.per_context(one) for name, one in _PLAIN.items()})


class Pe:
    """A context, and how its kernels are launched."""

    def __init__(self, context: Context, kernels: Any) -> None:
        self.context, self.kernels = context, kernels
        self.me, self.world = context.pe, context.pe_count
        self.left, self.right = (self.me - 1) % self.world, (self.me + 1) % self.world
        self.libraries = device.get_extern_libs()

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        made = self.context.tensor(shape, dtype)
        made.zero_()
        return made

    def run(self, name: str, grid: int, *args: Any, num_warps: int = 4, **constants: Any) -> None:
        """All PEs run the kernel, loaded before the first of them starts."""
        options = {"num_warps": num_warps, "extern_libs": self.libraries, **constants}
        kernel = getattr(self.kernels, name)
        if isinstance(kernel, device.PerContext):
            kernel.prepare(*args, grid=(grid,), **options)
        self.meet()
        kernel[(grid,)](*args, **options)
        self.meet()

    def meet(self) -> None:
        torch.cuda.current_stream().synchronize()
        self.context.barrier_all()


def expect(found: torch.Tensor, wanted: torch.Tensor | list[Any], what: str) -> None:
    """Raises unless all is equal, and says where not."""
    wanted = torch.as_tensor(wanted, dtype=found.dtype, device=found.device)
    if not torch.equal(found, wanted):
        where = (found != wanted).nonzero()[:4].tolist()
        raise AssertionError(
            f"{what}: {found.tolist()[:16]} is not {wanted.tolist()[:16]}: {where}"
        )


def counts(pe: Pe) -> dict[str, Any]:
    """8 programs of 4 warps: each call acts 8 times, whatever its scope."""
    words, old = pe.zeros((8,), torch.int64), pe.zeros((8,), torch.int64)
    source, sink = pe.zeros((64,), torch.float32), pe.zeros((64,), torch.float32)
    pe.run("count_calls", 8, words, old, source, sink)
    expect(words, [8] * 8, "calls")
    expect(old.sort().values, list(range(8)), "values before")
    return {"acted": words.tolist()}


def rows(pe: int, n: int) -> torch.Tensor:
    """7 rows of bits that name their PE."""
    return (torch.arange(7 * n, device="cuda", dtype=torch.int32) * 16 + pe + 1).reshape(7, n)


def puts_and_gets(pe: Pe) -> dict[str, Any]:
    n = 1000
    inbox, outbox = pe.zeros((7, n), torch.int32), pe.zeros((7, n), torch.int32)
    outbox.copy_(rows(pe.me, n))
    pe.run("put_everywhere", 1, inbox.view(torch.float32), outbox.view(torch.float32), n=n)
    expect(inbox, rows(pe.left, n), "puts")
    copies = torch.zeros((7, n), dtype=torch.int32, device="cuda")
    pe.run("get_everywhere", 1, copies.view(torch.float32), outbox.view(torch.float32), n=n)
    expect(copies, rows(pe.right, n), "gets")
    return {"bytes": inbox.nbytes}


def values(pe: Pe) -> dict[str, Any]:
    words, small = pe.zeros((12,), torch.int64), pe.zeros((8,), torch.int8)
    pe.run("put_values", 1, words, small)
    low = words.view(torch.int32)
    wide = [-(1 << 40) - pe.left, (1 << 40) + pe.left, 8, 9, 11, 12]
    expect(words[[1, 3, 7, 8, 10, 11]], wide, "64 bits")
    expect(low[[0, 4, 12, 18]], [-1 - pe.left, -16 + pe.left, 7, 10], "32 bits")
    expect(words.view(torch.float32)[[8]], [1.5], "float")
    expect(words.view(torch.float64)[[5]], [2.5], "double")
    expect(small[:1], [-2], "char")
    expect(small.view(torch.uint8)[1:2], [250], "uchar")
    expect(small.view(torch.int16)[1:2], [-300], "short")
    assert small.view(torch.int16)[2].item() & 0xFFFF == 65000, "ushort"
    return {}


def ping_pongs(pe: Pe) -> dict[str, Any]:
    n, rounds = 256, 500
    box, signal = pe.zeros((2, n), torch.float32), pe.zeros((1,), torch.int64)
    if pe.me < 2:
        pe.run("ping_pong", 1, box, signal, rounds, n=n)
        # Both have added one in each round; the last to add was PE 1.
        expect(box[0], [2.0 * rounds - (0 if pe.me == 0 else 1)] * n, "data")
        expect(signal, [rounds], "signal")
    else:
        pe.meet()
        pe.meet()
    return {"rounds": rounds}


def gathers(pe: Pe) -> dict[str, Any]:
    """All-gather, several epochs over the same memory."""
    n, programs = 1024, 8
    gathered = pe.zeros((pe.world, programs * n), torch.float32)
    mine, signals = (
        pe.zeros((programs * n,), torch.float32),
        pe.zeros((programs * pe.world,), torch.int64),
    )
    for epoch in range(1, 6):
        rows = [
            torch.randn(programs * n, generator=torch.Generator().manual_seed(100 * epoch + one))
            for one in range(pe.world)
        ]
        mine.copy_(rows[pe.me])
        pe.run("all_gather", programs, gathered, mine, signals, epoch, n=n)
        expect(gathered, torch.stack(rows).cuda(), f"epoch {epoch}")
    return {"epochs": epoch}


def reductions(pe: Pe) -> dict[str, Any]:
    """All-reduce by loads from peers and by puts with signals: torch's sum, bit for bit."""
    n, programs = 1024, 8
    rows = [
        torch.randn(programs * n, generator=torch.Generator().manual_seed(one)).cuda()
        for one in range(pe.world)
    ]
    wanted = torch.zeros_like(rows[0])
    for row in rows:
        wanted += row
    mine, total = pe.zeros((programs * n,), torch.float32), torch.zeros_like(rows[0])
    mine.copy_(rows[pe.me])
    pe.run("all_reduce_by_loads", programs, total, mine, n=n)
    expect(total, wanted, "by loads")
    total.zero_()
    slots = pe.zeros((pe.world, programs * n), torch.float32)
    signals = pe.zeros((programs * pe.world,), torch.int64)
    pe.run("all_reduce_by_signals", programs, total, mine, slots, signals, 1, n=n)
    expect(total, wanted, "by signals")
    return {}


def meetings(pe: Pe) -> dict[str, Any]:
    seen, mine = pe.zeros((1,), torch.int64), pe.zeros((1,), torch.int64)
    pe.run("meet", 1, seen, mine, 200)
    expect(seen, [0], "neighbours that were not met")
    return {}


def atomics(pe: Pe) -> dict[str, Any]:
    words, found = pe.zeros((3,), torch.int64), pe.zeros((12,), torch.int64)
    words.copy_(torch.tensor([10, 0, 100]))
    pe.run("change_words", 1, words, found)
    # 10 +5 15 +1 16 &12 0 |3 3 ^1 2 swap 40 cas 50
    expect(found, [10, 15, 16, 0, 3, 2, 40, 50, 50, 9, 100, 11], "before")
    expect(words, [50, 12, 97], "after")
    return {}


def rings(pe: Pe) -> dict[str, Any]:
    """Cubins that were linked with the bitcode by hand: libmori-shmem/examples, compiled into the
    folder that MORI_TEST_CUBINS names."""
    folder = os.environ.get("MORI_TEST_CUBINS", "")
    ran = []
    for round, path in enumerate(sorted(Path(folder).glob("ring*.cubin")) if folder else [], 1):
        n = 5000
        inbox, outbox = pe.zeros((n,), torch.int64), pe.zeros((n,), torch.int64)
        signal = pe.zeros((1,), torch.int64)
        outbox.fill_(1000 * round + pe.me)
        module = Module(path)
        function = module.function("ring")
        given = [inbox.data_ptr(), outbox.data_ptr(), outbox.nbytes, signal.data_ptr(), round]
        arguments = [ctypes.c_uint64(one) for one in given]
        pe.context.module_init(module.handle)
        pe.meet()
        module.launch(function, 1, 256, arguments)
        pe.meet()
        expect(inbox, [1000 * round + pe.left] * n, path.name)
        # A module that was given back does nothing.
        pe.context.module_forget(module.handle)
        inbox.zero_()
        pe.meet()
        module.launch(function, 1, 256, arguments)
        pe.meet()
        expect(inbox, [0] * n, f"{path.name}, forgotten")
        module.unload()
        ran.append(path.name)
    for path in sorted(Path(folder).glob("other*.cubin")) if folder else []:
        module = Module(path)
        said = raised(NotFoundError, functools.partial(pe.context.module_init, module.handle))
        assert "mori_shmem_module_state_v2" in said, said
        module.unload()
    return {"ran": ran}


def launches(pe: Pe) -> dict[str, Any]:
    """A launch waits for nothing that the stream has to do first."""
    found = torch.zeros((3,), dtype=torch.int32, device="cuda")
    pe.run("who", 1, found)
    torch.cuda._sleep(300_000_000)
    event = torch.cuda.Event()
    event.record()
    # The same options, so that nothing is left to load.
    pe.kernels.who[(1,)](found, num_warps=4, extern_libs=pe.libraries)
    early = not event.query()
    pe.meet()
    assert early, "a launch has waited for its stream"
    return {}


def finalized(pe: Pe) -> dict[str, Any]:
    """A module whose context has ended does nothing; a new context revives it."""
    found = torch.full((3,), 99, dtype=torch.int32, device="cuda")
    pe.run("who", 1, found)
    expect(found, [pe.me, pe.world, 0], "a living module")
    kernel = pe.kernels.who
    kernel = kernel.instance() if isinstance(kernel, device.PerContext) else kernel
    pe.context.finalize()
    launch = functools.partial(kernel[(1,)], found, num_warps=4, extern_libs=pe.libraries)
    said = raised(StateError, launch)
    assert "not initialised" in said or "finalized" in said, said
    device.remove_hook()
    kernel[(1,)](found, num_warps=4, extern_libs=pe.libraries)
    torch.cuda.current_stream().synchronize()
    device.install_hook()
    expect(found, [-1, 0, 2], "a dead module")
    with Context(Context.unique_id(), 0, 1, heap_bytes=1 << 20) as again:
        set_default_context(again)
        kernel[(1,)](found, num_warps=4, extern_libs=pe.libraries)
        torch.cuda.current_stream().synchronize()
        expect(found, [0, 1, 0], "a revived module")
    set_default_context(None)
    return {}


def refusals(pe: Pe) -> dict[str, Any]:
    """A put to a PE that does not exist: its status in the kernel, its fault on the host."""
    words, found = pe.zeros((1,), torch.int64), pe.zeros((1,), torch.int32)
    pe.run("put_to", 1, words, pe.me, found)
    expect(found, [0], "status")
    pe.meet()
    if pe.me == 0:
        kernel = pe.kernels.put_to
        kernel[(1,)](words, 99, found, extern_libs=pe.libraries)
        torch.cuda.current_stream().synchronize()
        expect(found, [1], "status of a bad PE")
        return {"said": raised(InvalidError, pe.context.check)}
    return {}


def timeouts(pe: Pe) -> dict[str, Any]:
    """A wait that is never met ends, says so, and is told to the host."""
    word, found = pe.zeros((1,), torch.int64), pe.zeros((2,), torch.int32)
    pe.run("who", 1, pe.zeros((3,), torch.int32))
    pe.kernels.wait_for[(1,)](word, 5, found, extern_libs=pe.libraries)
    torch.cuda.current_stream().synchronize()
    expect(found[:1], [5], "status")  # MORI_E_TIMEOUT
    assert found[1].item() <= 5, "a failed wait gave a value that is greater"
    return {"said": raised(WaitTimeoutError, pe.context.check)}


BODIES = {
    one.__name__: one
    for one in (
        *(counts, puts_and_gets, values, ping_pongs, gathers, reductions, meetings, atomics),
        *(rings, launches),
    )
}
