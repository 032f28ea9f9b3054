"""PEs for tests: as threads of this process, or as processes of their own.

Both hand a context to a function and collect what it returns, in order of PE. The first failure
ends the run: threads are woken by abort(), processes are killed.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import subprocess
import sys
import threading
import time
from typing import Any

from mori.errors import AbortedError, MoriError, PeerDeadError
from mori.shmem import Context

_DEADLINE_S = 60.0
OPTIONS = {"heap_bytes": 16 << 20, "wait_timeout_s": 20.0, "bootstrap_timeout_s": 20.0}


def on_threads(count: int, body: Any, **options: Any) -> list[Any]:
    """Runs body(context) on `count` PEs in threads; returns the results by PE."""
    unique_id = Context.unique_id()
    results: list[Any] = [None] * count
    failures: list[BaseException] = []

    def pe_main(pe: int) -> None:
        try:
            with Context(unique_id, pe, count, **{**OPTIONS, **options}) as context:
                try:
                    results[pe] = body(context)
                except BaseException:
                    # Wakes those that wait for this PE.
                    if not context.finalized:
                        with contextlib.suppress(MoriError):
                            context.abort()
                    raise
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=pe_main, args=(pe,), daemon=True) for pe in range(count)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + _DEADLINE_S
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    late = [pe for pe, thread in enumerate(threads) if thread.is_alive()]
    assert not late, f"PEs {late} did not end within {_DEADLINE_S} s"
    first_hand = [e for e in failures if not isinstance(e, AbortedError | PeerDeadError)]
    if failures:
        raise (first_hand or failures)[0]
    return results


def _process_main(pipe: Any, program: Any, pe: int, count: int, options: Any, extra: Any) -> None:
    try:
        unique_id = Context.unique_id() if pe == 0 else None
        if unique_id is not None:
            pipe.send(("id", unique_id))
        else:
            unique_id = pipe.recv()
        with Context(unique_id, pe, count, **options) as context:
            pipe.send(("result", program(context, *extra)))
    except BaseException as error:
        pipe.send(("error", f"PE {pe}: {type(error).__name__}: {error}"))


def on_processes(count: int, program: Any, *extra: Any, **options: Any) -> list[Any]:
    """Runs program(context, *extra), a function of a module, on `count` PE processes."""
    spawn = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for pe in range(count):
        here, there = spawn.Pipe()
        arguments = (there, program, pe, count, {**OPTIONS, **options}, extra)
        process = spawn.Process(target=_process_main, args=arguments, daemon=True)
        process.start()
        there.close()
        pipes.append(here)
        processes.append(process)
    end = time.monotonic() + _DEADLINE_S

    def receive(pe: int) -> Any:
        if not pipes[pe].poll(max(0.0, end - time.monotonic())):
            raise AssertionError(f"PE {pe} said nothing within {_DEADLINE_S} s")
        kind, value = pipes[pe].recv()
        assert kind != "error", value
        return value

    try:
        unique_id = receive(0)
        for pipe in pipes[1:]:
            pipe.send(unique_id)
        results = [receive(pe) for pe in range(count)]
        for process in processes:
            process.join(max(0.0, end - time.monotonic()))
        assert [process.exitcode for process in processes] == [0] * count
        return results
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()


def run_python(program: str, *arguments: str, **environment: str | None) -> Any:
    """Runs a program text in a fresh interpreter; a variable set to None is taken out."""
    import os

    env = {**os.environ, **{k: v for k, v in environment.items() if v is not None}}
    for name, value in environment.items():
        if value is None:
            env.pop(name, None)
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        env=env,
        check=False,
    )
