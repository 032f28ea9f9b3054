"""Starts the PEs of the demonstration, watches them, and judges what they computed.

Every PE is a process with a deadline; the first that fails ends the run with its message, and none
is left behind. Outputs come back in an anonymous memory file, so that nothing is left on disk
either. Each output row is then compared with model.Reference.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mori.demo import ONE_BLAS_THREAD, model, pe

_BLOCK = 256  # unique words compared at a time; bounds the memory of the comparison


class DemoError(Exception):
    """The run failed; the message is for the user."""


@dataclass
class _Child:
    """A PE process and what it has said so far."""

    pe: int
    process: subprocess.Popen[bytes]
    lines: bytes = b""
    errors: bytes = b""
    result: dict[str, Any] | None = None
    problem: str | None = None
    second_hand: bool = False
    open_pipes: int = 2
    phases: list[str] = field(default_factory=list)


class _Group:
    """All PEs of one run."""

    def __init__(self, jobs: list[dict[str, Any]], timeout_s: float) -> None:
        self._deadline = time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self._selector = selectors.DefaultSelector()
        self._children: list[_Child] = []
        self._phase_counts: dict[str, int] = {}
        # One PE is one core's worth of work: more threads per PE only fight each other.
        environment = {**os.environ, **ONE_BLAS_THREAD}
        for job in jobs:
            process = subprocess.Popen(
                [sys.executable, "-m", "mori.demo.pe"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[job["output_fd"]],
                env=environment,
            )
            child = _Child(job["pe"], process)
            self._children.append(child)
            for pipe, name in ((process.stdout, "stdout"), (process.stderr, "stderr")):
                assert pipe is not None
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe, selectors.EVENT_READ, (child, name))
            self._tell(child, job)

    @staticmethod
    def _tell(child: _Child, message: dict[str, Any]) -> None:
        assert child.process.stdin is not None
        try:
            child.process.stdin.write((json.dumps(message) + "\n").encode())
            child.process.stdin.flush()
        except BrokenPipeError:
            """It died at once; its exit is noticed and reported by watch()."""

    def watch(self, progress: Callable[[str], None]) -> list[dict[str, Any]]:
        """Until all PEs are done; returns their results. DemoError on the first failure."""
        while any(child.open_pipes for child in self._children):
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise DemoError(self._overdue())
            for key, _ in self._selector.select(left):
                child, name = key.data
                self._read(child, name, key.fileobj, progress)
            if any(child.problem for child in self._children):
                raise DemoError(self._cause())
        results = [child.result for child in self._children]
        assert all(results)
        return [result for result in results if result is not None]

    def _read(self, child: _Child, name: str, pipe: Any, progress: Callable[[str], None]) -> None:
        data = os.read(pipe.fileno(), 1 << 16)
        if not data:
            self._selector.unregister(pipe)
            child.open_pipes -= 1
            if not child.open_pipes:
                self._exited(child)
        elif name == "stderr":
            child.errors = (child.errors + data)[-65536:]
        else:
            *complete, child.lines = (child.lines + data).split(b"\n")
            for line in complete:
                self._heard(child, line, progress)

    def _heard(self, child: _Child, line: bytes, progress: Callable[[str], None]) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            child.problem = f"PE {child.pe} said {line[:200]!r}, which is no message"
            return
        if "unique_id" in message:
            for other in self._children:
                if other is not child:
                    self._tell(other, message)
        elif "phase" in message:
            phase = message["phase"]
            child.phases.append(phase)
            self._phase_counts[phase] = self._phase_counts.get(phase, 0) + 1
            if self._phase_counts[phase] == len(self._children):
                progress(f"each PE {phase}")
        elif "result" in message:
            child.result = message["result"]
        elif "error" in message:
            child.problem = f"PE {child.pe}: {message['error']}"
            child.second_hand = bool(message.get("second_hand"))

    def _exited(self, child: _Child) -> None:
        code = child.process.wait()  # its pipes are closed: it is gone or going
        if child.problem is None and (code != 0 or child.result is None):
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
            last = child.errors.decode("utf-8", "replace").strip().splitlines()
            child.problem = f"PE {child.pe} ended early ({how})" + (f": {last[-1]}" if last else "")
            child.second_hand = False

    def _cause(self) -> str:
        """The first cause: a PE that only reports another's death waits for that one's story."""
        end = time.monotonic() + 2.0
        while time.monotonic() < end and not self._first_hand():
            for key, _ in self._selector.select(max(0.0, end - time.monotonic())):
                child, name = key.data
                self._read(child, name, key.fileobj, lambda _: None)
            if not self._selector.get_map():
                break
        told = self._first_hand() or [c for c in self._children if c.problem]
        return str(told[0].problem)

    def _first_hand(self) -> list[_Child]:
        return [c for c in self._children if c.problem and not c.second_hand]

    def _overdue(self) -> str:
        late = [c for c in self._children if c.result is None]
        where = ", ".join(
            f"PE {c.pe} (last: {c.phases[-1] if c.phases else 'nothing'})" for c in late
        )
        return f"not done after {self._timeout_s:g} s: {where or 'a PE did not exit'}"

    def close(self) -> None:
        """Ends what still runs and collects it."""
        for child in self._children:
            if child.process.poll() is None:
                child.process.kill()
        for child in self._children:
            child.process.wait()
            for pipe in (child.process.stdin, child.process.stdout, child.process.stderr):
                if pipe is not None:
                    try:
                        pipe.close()
                    except BrokenPipeError:
                        """Closing flushes what a dead child did not read."""
        self._selector.close()


def _default_text() -> tuple[str, str]:
    """The project's README and where it was found."""
    try:
        metadata = importlib.metadata.distribution("mori").read_text("METADATA") or ""
        readme = metadata.partition("\n\n")[2]  # headers, an empty line, the README
        if model.words_of(readme):
            return readme, "the README"
    except importlib.metadata.PackageNotFoundError:
        """Run from the source tree."""
    path = Path(__file__).resolve().parents[4] / "README.md"
    if path.exists():
        return path.read_text("utf-8"), "README.md"
    raise DemoError("there is no README to read here: pass --text FILE")


def _words(options: argparse.Namespace) -> list[str]:
    """The words of the run: the text repeated, or cut, to --words for each PE."""
    if options.text is None:
        text, name = _default_text()
    else:
        try:
            text, name = options.text.read_text("utf-8", errors="replace"), str(options.text)
        except OSError as error:
            raise DemoError(f"cannot read {options.text}: {error.strerror}") from None
    words = model.words_of(text)
    if not words:
        raise DemoError(f"{name} has no words")
    wanted = options.pes * options.words
    used = f"its first {wanted}" if len(words) > wanted else "all of them"
    if len(words) < wanted:
        used = f"repeated to {wanted}"
    distinct = len(set(words[:wanted]))
    _progress(f"text: {name}, {len(words)} words, {used}; {distinct} distinct")
    repeated = words * -(-wanted // len(words))
    return repeated[:wanted]


_started = time.monotonic()


def _progress(text: str) -> None:
    print(f"[{time.monotonic() - _started:5.1f} s] {text}", flush=True)


def _heap_bytes(options: argparse.Namespace) -> int:
    """What the operator takes from the heap, and room for the library's own first bytes.

    DemoError when all PEs together would not fit into this machine's memory.
    """
    from mori.info import available_bytes
    from mori.ops import EpDispatchCombineOp

    need = EpDispatchCombineOp.memory(pe.operator_config(0, options.pes, options.words))
    heap = need.symmetric_bytes + need.symmetric_bytes // 64 + (16 << 20)
    # Beside the heap: the operator's own memory, expert outputs, experts, the interpreter.
    rows = options.words * options.pes
    private = need.private_bytes + rows * pe.row_bytes() + (256 << 20)
    total, available = options.pes * (heap + private), available_bytes()
    if available is not None and total > available:
        raise DemoError(
            f"{options.pes} PEs with {options.words} words each may take {total / 2**30:.1f} GiB, "
            f"{available / 2**30:.1f} GiB are available: pass smaller --words or --pes"
        )
    return heap


def _jobs(
    options: argparse.Namespace, words: list[str], heap_bytes: int, output_fd: int
) -> Iterator[dict[str, Any]]:
    corrupt_pe = -1
    if options.corrupt:
        # The rank of the first word's first expert: it surely receives a row.
        experts, _ = model.route(model.embed(words[:1], options.seed), options.seed)
        corrupt_pe = int(experts[0, 0]) // (model.EXPERTS // options.pes)
        _progress(f"--corrupt: PE {corrupt_pe} will flip the signs of one row that it received")
    for number in range(options.pes):
        first = number * options.words
        yield {
            "pe": number,
            "pes": options.pes,
            "words": words[first : first + options.words],
            "words_per_pe": options.words,
            "seed": options.seed,
            "corrupt_pe": corrupt_pe,
            "heap_bytes": heap_bytes,
            "timeout_s": options.timeout,
            "output_fd": output_fd,
        }


@dataclass
class _Verdict:
    """What the comparison found. `worst` is the largest error as a share of its tolerance."""

    rows: int = 0
    bad_rows: int = 0
    worst: float = 0.0
    first_bad: str = ""

    def add(self, rows: int, worst: float) -> None:
        """So many rows, whose largest error is `worst` of the tolerance."""
        self.rows += rows
        self.bad_rows += rows if not worst <= 1.0 else 0
        self.worst = max(self.worst, worst)


def _compare(outputs: np.ndarray, words: list[str], options: argparse.Namespace) -> _Verdict:
    """Each row of `outputs` (bfloat16 bits) against the layer computed from words and seed."""
    reference = model.Reference(options.seed, options.pes)
    places: dict[str, list[int]] = {}
    for row, word in enumerate(words):
        places.setdefault(word, []).append(row)
    vocabulary = list(places)
    verdict = _Verdict()
    for start in range(0, len(vocabulary), _BLOCK):
        block = vocabulary[start : start + _BLOCK]
        expected, tolerance = reference.rows(block)
        for at, word in enumerate(block):
            rows = np.array(places[word])
            bits = outputs[rows]
            # Equal words are equal tokens: rows that are bitwise alike share one verdict.
            alike = (bits == bits[0]).all(axis=1)
            for row in [rows[0], *rows[~alike]]:
                judged = np.count_nonzero(alike) if row == rows[0] else 1
                found = model.from_bf16(outputs[row])
                share = np.abs(found - expected[at]) / tolerance[at]
                # A NaN is no number within the tolerance either.
                share = np.nan_to_num(share, nan=np.inf)
                element = int(np.argmax(share))
                verdict.add(int(judged), float(share[element]))
                if not share[element] <= 1.0 and not verdict.first_bad:
                    verdict.first_bad = (
                        f"PE {row // options.words}, token {row % options.words} ({word!r}), "
                        f"element {element}: {found[element]:.6g}, expected "
                        f"{expected[at, element]:.6g} +- {tolerance[at, element]:.2g}"
                    )
    return verdict


def _rate(rows: int, seconds: float) -> str:
    return f"{rows * pe.row_bytes() / seconds / 1e9:6.2f}" if seconds > 0 else "     -"


def _table(results: list[dict[str, Any]]) -> str:
    lines = [
        "          |           dispatch              | experts |           combine",
        " PE tokens|  rows in      MB      ms    GB/s|      ms | rows back   MB      ms    GB/s",
    ]
    megabytes = pe.row_bytes() / 1e6
    for number, one in enumerate(results):
        lines.append(
            f"{number:3d} {one['tokens']:6d}| {one['rows_in']:8d} {one['rows_in'] * megabytes:7.1f}"
            f" {one['dispatch_s'] * 1e3:7.1f}  {_rate(one['rows_in'], one['dispatch_s'])}|"
            f" {one['experts_s'] * 1e3:7.0f} | {one['rows_back']:8d}"
            f" {one['rows_back'] * megabytes:6.1f} {one['combine_s'] * 1e3:7.1f}"
            f"  {_rate(one['rows_back'], one['combine_s'])}"
        )
    return "\n".join(lines)


def _summary(results: list[dict[str, Any]], options: argparse.Namespace) -> str:
    totals = [one["dispatch_s"] + one["experts_s"] + one["combine_s"] for one in results]
    slowest = int(np.argmax(totals))
    rows = [one["rows_in"] for one in results]
    busiest = int(np.argmax(rows))
    hottest = max(one["busiest_expert_rows"] for one in results)
    mean = options.pes * options.words * model.TOP_K / model.EXPERTS
    return (
        f"slowest rank: PE {slowest}, {totals[slowest] * 1e3:.0f} ms for dispatch, experts and "
        f"combine\nload skew: PE {busiest} received {rows[busiest] / np.mean(rows):.2f} times the "
        f"mean, the busiest expert {hottest / mean:.2f} times the mean"
    )


def run(options: argparse.Namespace) -> int:
    """The demonstration; returns the exit status."""
    heap_bytes = _heap_bytes(options)
    words = _words(options)
    total = options.pes * options.words
    output_fd = os.memfd_create("mori-demo-output")
    try:
        os.ftruncate(output_fd, total * pe.row_bytes())
        _progress(
            f"{options.pes} PEs, {options.words} tokens each: hidden {model.HIDDEN}, "
            f"{model.EXPERTS} experts, top-{model.TOP_K}, bfloat16"
        )
        group = _Group(list(_jobs(options, words, heap_bytes, output_fd)), options.timeout)
        try:
            results = group.watch(_progress)
        finally:
            group.close()
        print(_table(results))
        print(_summary(results, options))
        _progress("comparing each row with the layer computed in one process from text and seed")
        outputs = np.memmap(
            f"/proc/self/fd/{output_fd}", np.uint16, "r", shape=(total, model.HIDDEN)
        )
        verdict = _compare(outputs, words, options)
    finally:
        os.close(output_fd)
    _progress(
        f"{verdict.rows} rows compared, {verdict.bad_rows} wrong; largest error "
        f"{verdict.worst:.2f} of what bfloat16 arithmetic explains"
    )
    if verdict.bad_rows or verdict.rows != total:
        print(f"first mismatch: {verdict.first_bad}")
        print("demo: FAILED")
        return 1
    print("demo: OK")
    return 0


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `mori demo`."""

    def at_least(least: int) -> Callable[[str], int]:
        def parse(text: str) -> int:
            try:
                value = int(text)
            except ValueError:
                raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
            if value < least:
                raise argparse.ArgumentTypeError(f"{value} is less than {least}")
            return value

        return parse

    parser.add_argument("--text", type=Path, metavar="FILE", help="text to read; default: README")
    parser.add_argument("--pes", type=at_least(1), default=8, help="PE processes (8)")
    parser.add_argument("--words", type=at_least(1), default=1024, help="words per PE (1024)")
    parser.add_argument("--seed", type=at_least(0), default=1, help="of all weights (1)")
    parser.add_argument(
        "--corrupt", action="store_true", help="flip one routed row on the way: must be noticed"
    )
    parser.add_argument(
        "--timeout", type=at_least(1), default=300, help="seconds for the PEs together (300)"
    )


def main(options: argparse.Namespace) -> int:
    """`mori demo`; returns the exit status: 0 OK, 1 failed, 2 wrong use."""
    if model.EXPERTS % options.pes:
        print(
            f"mori demo: --pes is {options.pes}, which does not divide {model.EXPERTS} experts",
            file=sys.stderr,
        )
        return 2
    try:
        return run(options)
    except (DemoError, ImportError) as error:
        print(f"mori demo: {error}\ndemo: FAILED", file=sys.stderr)
        return 1
