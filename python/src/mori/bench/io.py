"""`mori bench io`: transfers from this process to an engine in another one, for growing messages.

A transfer is a batch of messages through one session, waited for before the next: its latency is
from submission to completion, its bandwidth all its bytes over that. The last transfer of each row
is checked.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from mori.bench import plot
from mori.bench.io_peer import engine_with_memory
from mori.bench.report import BenchError, Column, Report
from mori.io import EngineDesc, IOEngineSession, MemoryDesc

_WARM_UP = 5
_WAIT_S = 60
_COLUMNS = (
    Column("MsgSize (B)", "message_bytes", "d"),
    Column("BatchSize", "batch_size", "d"),
    Column("TotalSize (MB)", "total_mb", ".3f"),
    Column("Max BW (GB/s)", "max_gb_per_s", ".3f"),
    Column("Avg BW (GB/s)", "avg_gb_per_s", ".3f"),
    Column("Min Lat (us)", "min_us", ".2f"),
    Column("Avg Lat (us)", "avg_us", ".2f"),
)
_PICTURE = plot.Picture(
    ("message_bytes", "message, bytes"),
    (
        plot.Panel("bandwidth, GB/s", (("avg_gb_per_s", ""),)),
        plot.Panel("latency of a transfer, us", (("avg_us", ""),), True),
    ),
    ("batch_size", "batch"),
)


class _Pair:
    """The engine here, the one in the other process, and a session between them."""

    def __init__(self, options: argparse.Namespace, size: int) -> None:
        job = {
            "backend": options.backend,
            "host": options.host,
            "security": options.security,
            "spin_us": options.spin_us,
            "alloc": options.backend == "XGMI" and not options.private,
            "bytes": size,
        }
        self._peer = subprocess.Popen(
            [sys.executable, "-m", "mori.bench.io_peer", json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            told = self._heard()
            self.engine, self.memory, region = engine_with_memory("bench-initiator", job)
            self.engine.register_remote_engine(EngineDesc.unpack(bytes.fromhex(told["engine"])))
            assert self._peer.stdin is not None
            self._peer.stdin.write(self.engine.get_engine_desc().pack().hex() + "\n")
            self._peer.stdin.flush()
            self._heard()
            remote = MemoryDesc.unpack(bytes.fromhex(told["memory"]))
            session = self.engine.create_session(region, remote, required=True)
            assert session is not None
            self.session: IOEngineSession = session
        except BaseException:
            self._end()
            raise

    def _heard(self) -> dict[str, Any]:
        assert self._peer.stdout is not None
        line = self._peer.stdout.readline()
        told = json.loads(line) if line else {"error": "the other process ended early"}
        if "error" in told:
            raise BenchError(told["error"])
        return told

    def _end(self) -> None:
        for pipe in (self._peer.stdin, self._peer.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._peer.wait(10)
        except subprocess.TimeoutExpired:
            self._peer.kill()
            self._peer.wait()

    def close(self) -> None:
        del self.memory
        self.engine.close()
        self._end()


def _row(pair: _Pair, options: argparse.Namespace, size: int, batch: int) -> dict[str, Any]:
    """One line of the table."""
    offsets = np.arange(batch, dtype=np.uint64) * np.uint64(size)
    sizes = np.full(batch, size, np.uint64)
    call = pair.session.batch_write if options.op == "write" else pair.session.batch_read
    durations: list[int] = []
    end = time.monotonic() + options.seconds
    for turn in range(_WARM_UP + options.iters):
        start = time.perf_counter_ns()
        status = call(offsets, offsets, sizes, turn, notify=False)
        status.WaitFor(_WAIT_S * 1000)
        took = time.perf_counter_ns() - start
        status.check()
        if status.InProgress():
            raise BenchError(f"a transfer of {batch} times {size} bytes took over {_WAIT_S} s")
        if turn >= _WARM_UP or time.monotonic() > end:
            durations.append(took)
        if time.monotonic() > end:
            break
    _check(pair, options, size * batch)
    total, mean = size * batch, sum(durations) / len(durations)
    return {
        "message_bytes": size,
        "batch_size": batch,
        "total_mb": total / 1e6,
        "max_gb_per_s": total / min(durations),
        "avg_gb_per_s": total / mean,
        "min_us": min(durations) / 1e3,
        "avg_us": mean / 1e3,
        "transfers": len(durations),
    }


def _check(pair: _Pair, options: argparse.Namespace, total: int) -> None:
    """That bytes have moved: the target's are 2 until they are overwritten by ours."""
    if options.op == "write":
        before = pair.memory[:total].copy()
        pair.memory[:total] = 0
        pair.session.read(0, 0, total, 0, notify=False).WaitFor(_WAIT_S * 1000)
        good = bool((pair.memory[:total] == before).all())
        pair.memory[:total] = before
    else:
        good = bool((pair.memory[:total] == 2).all())
        pair.memory[:total] = 1
    if not good:
        raise BenchError(f"wrong bytes after transfers of {total} bytes")


def _rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    pair = _Pair(options, max(options.sizes) * max(options.batches))
    try:
        pair.memory[:] = 1
        for batch in options.batches:
            for size in options.sizes:
                yield _row(pair, options, size, batch)
    finally:
        pair.close()


def main(options: argparse.Namespace) -> int:
    """Returns the exit status: 0 fine; raises BenchError and PlotError."""
    title = f"{options.op} over {options.backend}, security {options.security}"
    if options.iters < 1:
        raise BenchError(f"--iters is {options.iters}, expected at least 1")
    settings = {name: getattr(options, name) for name in ("backend", "op", "security", "spin_us")}
    report = Report(options, title, settings, _COLUMNS, _PICTURE)
    report.take(_rows(options), len(options.sizes) * len(options.batches))
    return 0
