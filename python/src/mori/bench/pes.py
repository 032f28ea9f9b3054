"""The PEs of a benchmark: this process is PE 0 and starts the others, or, under torchrun, mpirun or
srun, each process is the PE that the launcher made it. On the host back end: arrays are numpy's.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from mori.bench.report import BenchError
from mori.errors import MoriError, StateError
from mori.shmem import Context
from mori.shmem._launcher import find_launch, join_launched

_JOIN_S = 60.0
_WAIT_S = 60.0
_END_S = 10.0

# What a PE does: the benchmark's rows, from all PEs together; only PE 0's are shown.
Body = Callable[[Context, dict[str, Any]], Iterator[dict[str, Any]]]


def _context(unique_id: bytes, pe: int, count: int, job: dict[str, Any]) -> Context:
    return Context(
        unique_id,
        pe,
        count,
        backend="host",
        heap_bytes=job["heap_bytes"],
        disable_p2p=job.get("network", False),
        bootstrap_timeout_s=_JOIN_S,
        wait_timeout_s=_WAIT_S,
    )


def _launched() -> bool:
    """Whether a launcher has started this process and others."""
    try:
        return find_launch().size > 1
    except StateError:
        return False


def _join_launched(job: dict[str, Any]) -> Context:
    made: list[Context] = []

    def join(unique_id: bytes, pe: int, count: int) -> None:
        made.append(_context(unique_id, pe, count, job))

    join_launched(Context.unique_id, join)
    return made[0]


class _Others:
    """The processes of PEs 1 and up; what they complain of is told when one fails."""

    def __init__(self, module: str, unique_id: bytes, count: int, job: dict[str, Any]) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "mori.bench.pes"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(1, count)
        ]
        for pe, process in enumerate(self._processes, 1):
            task = {"module": module, "id": unique_id.hex(), "pe": pe, "count": count, "job": job}
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(task) + "\n")
                process.stdin.flush()

    def end(self) -> str:
        """Waits for all, or ends them; what the first that failed said last."""
        complaint = ""
        for process in self._processes:
            try:
                _, said = process.communicate(timeout=_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                _, said = process.communicate()
            if process.returncode and not complaint:
                complaint = (said.strip().splitlines() or [f"exit status {process.returncode}"])[-1]
        self._processes.clear()
        return complaint


def rows_of(module: str, body: Body, count: int, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """PE 0's rows; nothing in the other processes of a launcher. BenchError when a PE fails."""
    if _launched():
        with _join_launched(job) as context:
            rows = body(context, job)
            yield from (row for row in rows if context.pe == 0)
        return
    unique_id = Context.unique_id()
    others = _Others(module, unique_id, count, job)
    try:
        with _context(unique_id, 0, count, job) as context:
            yield from body(context, job)
    except MoriError as error:
        complaint = others.end()
        raise BenchError(f"{error}{f' (another PE: {complaint})' if complaint else ''}") from None
    finally:
        others.end()


def shows_rows() -> bool:
    """Whether this process is the one that prints."""
    return not _launched() or find_launch().rank == 0


def pe_count(wanted: int) -> int:
    """How many PEs there are: what a launcher has started, else what is wanted."""
    return find_launch().size if _launched() else wanted


def main() -> int:
    """One of the other PEs."""
    task = json.loads(sys.stdin.readline())
    body: Body = importlib.import_module(task["module"]).rows
    try:
        unique_id = bytes.fromhex(task["id"])
        with _context(unique_id, task["pe"], task["count"], task["job"]) as context:
            for _ in body(context, task["job"]):
                """Only PE 0 shows them."""
    except (MoriError, BenchError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
