#!/usr/bin/env python3
"""What a call on a GPU costs the host: dispatch and combine of torch tensors by one PE.

    MORI_LIBRARY_DIR=FOLDER PYTHONPATH=python/src python python/tests/gpu/call_times.py

Prints the median time until the call returns, the same for the C function alone with the same
arguments, and the difference, which is Python's part. The device is waited for between batches,
outside of what is measured.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from layers import DEVICE, inputs_of, op_for
from mori._raw import ep as raw
from mori.shmem import Context

CALLS, BATCHES = 20, 100


def median_us(call) -> float:
    """Median over batches of the time of one call."""
    times = []
    for _ in range(BATCHES):
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - start) / CALLS * 1e6)
    return statistics.median(times)


def main() -> int:
    with Context(Context.unique_id(), 0, 1, heap_bytes=64 << 20) as context:
        op, given = op_for(context), inputs_of(0, 1, 1, "bfloat16").to(DEVICE)
        arguments, results, handle = op._arguments, op._results, op._handle
        weights, scales = given.weights, given.scales
        out, *_ = op.dispatch(given.tokens, weights, scales, given.indices)
        calls = {
            "dispatch": (
                lambda: op.dispatch(given.tokens, weights, None, given.indices),
                lambda: raw.mori_ep_dispatch(
                    handle, arguments.dispatch_struct, results.dispatch_struct
                ),
            ),
            "dispatch with scales": (
                lambda: op.dispatch(given.tokens, weights, scales, given.indices),
                lambda: raw.mori_ep_dispatch(
                    handle, arguments.dispatch_struct, results.dispatch_struct
                ),
            ),
            "combine": (
                lambda: op.combine(out, None, given.indices),
                lambda: raw.mori_ep_combine(
                    handle, arguments.combine_struct, results.combine_struct
                ),
            ),
        }
        print(f"{context!r}, torch {torch.__version__}, Python {sys.version.split()[0]}")
        for name, (whole, bare) in calls.items():
            whole()
            total, alone = median_us(whole), median_us(bare)
            print(f"{name:21s} {total:6.2f} us, C {alone:6.2f} us, Python {total - alone:6.2f} us")
        op.check()
    return 0


if __name__ == "__main__":
    sys.exit(main())
