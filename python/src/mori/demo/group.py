"""Processes of the demonstration: starts them, hears what they say, and ends them.

Each is `python -m MODULE` that reads its job, one line of JSON, from standard input and says one
JSON object a line: {"phase": ...}, {"share": ...} for the others, and at the end {"result": ...} or
{"error": ...}. The first that fails ends the run with its message, and none is left behind.
"""

from __future__ import annotations

import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mori.demo import ONE_BLAS_THREAD


class DemoError(Exception):
    """The run failed; the message is for the user."""


# In a process that was started here


def say(**fields: Any) -> None:
    """One line to the starter; one write, as it may be looking at any moment."""
    os.write(1, (json.dumps(fields) + "\n").encode())


def hear() -> Any:
    """The next line from the starter."""
    return json.loads(sys.stdin.buffer.readline())


def listen() -> queue.SimpleQueue[Any]:
    """All lines from the starter as they come; this process ends when the starter is gone."""
    lines: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin.buffer:
            lines.put(json.loads(line))
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    return lines


def leave_with_starter() -> None:
    """Ends this process when its starter is gone, whatever the main thread waits for."""

    def watch() -> None:
        while sys.stdin.buffer.read(1):
            """Nothing more is ever sent."""
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# In the starter


@dataclass
class Child:
    """A process and what it has said so far."""

    name: str
    process: subprocess.Popen[bytes]
    lines: bytes = b""
    errors: bytes = b""
    result: dict[str, Any] | None = None
    problem: str | None = None
    second_hand: bool = False
    open_pipes: int = 2
    phases: list[str] = field(default_factory=list)


class Group:
    """All processes of one run of a module; `kind` is what one is called. A job's "name" is its
    process's; its "output_fd", if there is one, is handed on."""

    def __init__(
        self, module: str, kind: str, jobs: list[dict[str, Any]], timeout_s: float
    ) -> None:
        self._deadline = time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self._kind = kind
        self._selector = selectors.DefaultSelector()
        self._children: list[Child] = []
        self._phase_counts: dict[str, int] = {}
        # A process is one core's worth of work: more threads in each only fight each other.
        environment = {**os.environ, **ONE_BLAS_THREAD}
        for job in jobs:
            process = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[job["output_fd"]] if "output_fd" in job else [],
                env=environment,
            )
            child = Child(job["name"], process)
            self._children.append(child)
            for pipe, name in ((process.stdout, "stdout"), (process.stderr, "stderr")):
                assert pipe is not None
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe, selectors.EVENT_READ, (child, name))
            self._tell(child, job)

    @staticmethod
    def _tell(child: Child, message: dict[str, Any]) -> None:
        assert child.process.stdin is not None
        try:
            child.process.stdin.write((json.dumps(message) + "\n").encode())
            child.process.stdin.flush()
        except BrokenPipeError:
            """It died at once; its exit is noticed and reported by watch()."""

    def watch(self, progress: Callable[[str], None]) -> list[dict[str, Any]]:
        """Until all are done; returns their results. DemoError on the first failure."""
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

    def _read(self, child: Child, name: str, pipe: Any, progress: Callable[[str], None]) -> None:
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

    def _heard(self, child: Child, line: bytes, progress: Callable[[str], None]) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            child.problem = f"{child.name} said {line[:200]!r}, which is no message"
            return
        if "share" in message:
            for other in self._children:
                if other is not child:
                    self._tell(other, message)
        elif "phase" in message:
            phase = message["phase"]
            child.phases.append(phase)
            self._phase_counts[phase] = self._phase_counts.get(phase, 0) + 1
            if self._phase_counts[phase] == len(self._children):
                progress(f"each {self._kind} {phase}")
        elif "result" in message:
            child.result = message["result"]
        elif "error" in message:
            child.problem = f"{child.name}: {message['error']}"
            child.second_hand = bool(message.get("second_hand"))

    def _exited(self, child: Child) -> None:
        code = child.process.wait()  # its pipes are closed: it is gone or going
        if child.problem is None and (code != 0 or child.result is None):
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
            last = child.errors.decode("utf-8", "replace").strip().splitlines()
            child.problem = f"{child.name} ended early ({how})" + (f": {last[-1]}" if last else "")
            child.second_hand = False

    def _cause(self) -> str:
        """The first cause: one that only reports another's death waits for that one's story."""
        end = time.monotonic() + 2.0
        while time.monotonic() < end and not self._first_hand():
            for key, _ in self._selector.select(max(0.0, end - time.monotonic())):
                child, name = key.data
                self._read(child, name, key.fileobj, lambda _: None)
            if not self._selector.get_map():
                break
        told = self._first_hand() or [c for c in self._children if c.problem]
        return str(told[0].problem)

    def _first_hand(self) -> list[Child]:
        return [c for c in self._children if c.problem and not c.second_hand]

    def _overdue(self) -> str:
        late = [c for c in self._children if c.result is None]
        where = ", ".join(
            f"{c.name} (last: {c.phases[-1] if c.phases else 'nothing'})" for c in late
        )
        return f"not done after {self._timeout_s:g} s: {where or 'a process did not exit'}"

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
