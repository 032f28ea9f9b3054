"""`mori bench shmem`: puts and gets of growing size from PE 0 to PE 1, while the others wait.

Latency is that of a put with its quiet, and of a get; bandwidth that of a window of puts before
one quiet. A call from Python is part of it. Each size ends with a check of the bytes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mori.bench import plot
from mori.bench.pes import pe_count, rows_of, shows_rows
from mori.bench.report import BenchError, Column, Report
from mori.shmem import Context

_WARM_UP = 5
_COLUMNS = (
    Column("MsgSize (B)", "message_bytes", "d"),
    Column("Put Lat (us)", "put_avg_us", ".2f"),
    Column("Min (us)", "put_min_us", ".2f"),
    Column("Get Lat (us)", "get_avg_us", ".2f"),
    Column("Min (us)", "get_min_us", ".2f"),
    Column("Put BW (GB/s)", "put_gb_per_s", ".3f"),
)
_PICTURE = plot.Picture(
    ("message_bytes", "message, bytes"),
    (
        plot.Panel("bandwidth, GB/s", (("put_gb_per_s", "put"),)),
        plot.Panel("latency, us", (("put_avg_us", "put"), ("get_avg_us", "get")), True),
    ),
)


def _times(call: Callable[[], None], count: int) -> list[float]:
    """Microseconds of each call, warmed up."""
    taken = []
    for turn in range(_WARM_UP + count):
        start = time.perf_counter_ns()
        call()
        if turn >= _WARM_UP:
            taken.append((time.perf_counter_ns() - start) / 1e3)
    return taken


def _row(context: Context, block: Any, local: Any, job: dict[str, Any]) -> dict[str, Any]:
    size = len(local)
    there = block[:size]

    def put() -> None:
        context.put(there, local, 1)
        context.quiet()

    def get() -> None:
        context.get(local, there, 1)

    def burst() -> None:
        for _ in range(job["window"]):
            context.put(there, local, 1)
        context.quiet()

    puts = _times(put, job["iters"])
    gets = _times(get, job["iters"])
    bursts = _times(burst, max(1, job["iters"] // job["window"]))
    _check(context, there, local)
    return {
        "message_bytes": size,
        "put_avg_us": sum(puts) / len(puts),
        "put_min_us": min(puts),
        "get_avg_us": sum(gets) / len(gets),
        "get_min_us": min(gets),
        "put_gb_per_s": size * job["window"] / (sum(bursts) / len(bursts)) / 1e3,
    }


def _check(context: Context, there: Any, local: Any) -> None:
    local[:] = np.arange(len(local)) % 251
    context.put(there, local, 1)
    context.quiet()
    back = np.zeros_like(local)
    context.get(back, there, 1)
    if not (back == local).all():
        raise BenchError(f"wrong bytes after puts of {len(local)} bytes")


def rows(context: Context, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What every PE does; PE 0 measures."""
    block = context.array(max(job["sizes"]), "uint8")
    local = np.ones(max(job["sizes"]), np.uint8)
    transport = context.peer_info(1 % context.pe_count).transport
    for size in job["sizes"]:
        if context.pe == 0:
            yield {**_row(context, block, local[:size], job), "transport": transport}
        context.barrier_all()
    context.free(block)


def main(options: argparse.Namespace) -> int:
    """Returns the exit status: 0 fine; raises BenchError and PlotError."""
    job = {
        "sizes": options.sizes,
        "iters": options.iters,
        "window": options.window,
        "network": options.network,
        "heap_bytes": max(options.sizes) + (4 << 20),
    }
    measured = rows_of("mori.bench.shmem", rows, options.pes, job)
    if not shows_rows():
        for _ in measured:
            """Another process shows them."""
        return 0
    settings = {name: job[name] for name in ("iters", "window", "network")}
    title = f"PE 0 to PE 1 of the host back end, {'over TCP' if options.network else 'mapped'}"
    report = Report(options, title, {"pes": pe_count(options.pes), **settings}, _COLUMNS, _PICTURE)
    report.take(measured, len(options.sizes))
    return 0
