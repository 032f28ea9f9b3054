"""An all-gather over symmetric memory: a Triton kernel with the device functions of mori.ir.triton
against the same as a native kernel (ir_native.cu, compiled to the cubin that is named). PEs are
processes that share a GPU in equal parts.

usage: ir_all_gather.py CUBIN [--quick]      prints NAME VALUE lines, times in ns per call
"""

from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2] / "python/tests/gpu"), str(HERE.parents[2] / "python/tests")]
PES, PROGRAMS, WARPS = 2, 64, 8
ROW_BYTES = (1 << 20, 16 << 20, 64 << 20)
LIMIT_S = 240
AHEAD_CYCLES = 10_000_000


class Sides:
    """The same call both ways, on the same memory; each knows the next epoch."""

    def __init__(self, context, module, row_bytes: int) -> None:
        import mori.ir.triton as device
        import torch
        import triton_kernels
        from mori._ffi import ffi
        from mori._raw import shmem as raw

        self.context, self.module = context, module
        self.kernel, self.libraries = triton_kernels.all_gather, device.get_extern_libs()
        self.part_bytes = row_bytes // PROGRAMS
        self.mine = context.tensor((row_bytes // 4,), torch.float32)
        self.gathered = context.tensor((PES, row_bytes // 4), torch.float32)
        self.signals = context.tensor((PROGRAMS * PES,), torch.int64)
        self.mine.fill_(context.pe + 1)
        self.epoch = 1
        self.native_kernel = module.function("mori_bench_all_gather")
        self.state = bytes(ffi.buffer(raw.mori_shmem_device_state(context.handle(), 2)))

    def triton(self) -> None:
        self.epoch += 1
        self.kernel[(PROGRAMS,)](
            self.gathered,
            self.mine,
            self.signals,
            self.epoch,
            n=self.part_bytes // 4,
            num_warps=WARPS,
            extern_libs=self.libraries,
        )

    def native(self) -> None:
        self.epoch += 1
        words = [
            *(self.gathered.data_ptr(), self.mine.data_ptr(), self.signals.data_ptr()),
            *(self.epoch, self.part_bytes),
        ]
        packed = self.state + b"".join(one.to_bytes(8, "little") for one in words)
        arguments = (ctypes.c_char * len(packed)).from_buffer_copy(packed)
        self.module.launch(self.native_kernel, PROGRAMS, WARPS * 32, [arguments])

    def time(self, call, count: int) -> float:
        """ns per call, all PEs at it."""
        import torch

        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        self.context.barrier_all()
        call()
        # The GPU is kept busy until all launches are enqueued: kernels are compared, not launches.
        torch.cuda._sleep(AHEAD_CYCLES)
        begin.record()
        for _ in range(count):
            call()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) * 1e6 / count

    def check(self, what: str) -> None:
        import torch

        torch.cuda.synchronize()
        self.context.barrier_all()
        for pe in range(PES):
            if not bool((self.gathered[pe] == pe + 1).all()):
                raise AssertionError(f"{what}: row {pe} is not that PE's")
        self.gathered.zero_()
        torch.cuda.synchronize()
        self.context.barrier_all()


def pe_main(rank: int, folder: str, cubin: str, quick: bool) -> None:
    import mori.ir.triton as device
    from cuda_driver import Module
    from pe_program import Group

    device.install_hook()
    context = Group(rank, PES, folder).join("bench", heap_bytes=512 << 20)
    with context:
        module = Module(Path(cubin))
        for row_bytes in ROW_BYTES:
            sides = Sides(context, module, row_bytes)
            rounds, count = (3, 10) if quick else (9, 20)
            times: dict[str, list[float]] = {"triton": [], "native": []}
            for name in times:
                sides.time(getattr(sides, name), 2)
                sides.check(name)
            for _ in range(rounds):
                for name, taken in times.items():
                    taken.append(sides.time(getattr(sides, name), count))
            if rank == 0:
                for name, taken in times.items():
                    print(f"all_gather_{row_bytes}B_ns/{name} {statistics.median(taken):.0f}")
        sys.stdout.flush()
        context.barrier_all()


def main() -> int:
    cubin, quick = sys.argv[1], "--quick" in sys.argv
    if os.environ.get("MORI_BENCH_RANK"):
        pe_main(int(os.environ["MORI_BENCH_RANK"]), os.environ["MORI_BENCH_FOLDER"], cubin, quick)
        return 0
    import mps

    with tempfile.TemporaryDirectory() as folder, mps.daemon() as environment:
        shared = mps.share_of(environment, PES)
        started = [
            subprocess.Popen(
                [sys.executable, *sys.argv],
                env={**shared, "MORI_BENCH_RANK": str(rank), "MORI_BENCH_FOLDER": folder},
            )
            for rank in range(PES)
        ]
        end = time.monotonic() + LIMIT_S
        try:
            codes = [one.wait(max(1.0, end - time.monotonic())) for one in started]
        finally:
            for one in started:
                if one.poll() is None:
                    one.kill()
    return 0 if codes == [0] * PES else 1


if __name__ == "__main__":
    sys.exit(main())
