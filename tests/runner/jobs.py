"""Runs suites side by side within the machine's cores, each with a log and a time budget.

A suite's commands run in a process group of their own; on overrun the group that this module
started is ended, nothing else. A suite whose predecessor failed does not run and counts as failed.
"""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import counts

# Stretches all budgets, for a machine that is busy with something else; 1 where they count.
PATIENCE = float(os.environ.get("MORI_TEST_PATIENCE", "1"))


@dataclasses.dataclass
class Outcome:
    suite: object
    counts: counts.Counts
    seconds: float
    reason: str = ""  # why it failed; empty when it did not
    closing_line: str = ""  # pytest's, where pytest ran


def end_group(process):
    """Ends the process group of a command; the second signal reaches what outlived its leader."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, signal_number)
        except ProcessLookupError:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)


def environment_of(suite):
    """The tools of build/venv first, and the Meson that configured the builds."""
    tools = pathlib.Path(sys.executable).parent
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "MESON": str(tools / "meson"), **suite.environment}


def run_commands(suite, log, root):
    """Runs the commands until one fails; returns why, or an empty text."""
    deadline = time.monotonic() + suite.budget_s * PATIENCE
    for command in suite.commands:
        log.write(f"$ {' '.join(map(str, command))}\n")
        log.flush()
        process = subprocess.Popen(
            command,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment_of(suite),
            start_new_session=True,
        )
        try:
            code = process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            end_group(process)
            return f"over its budget of {suite.budget_s} s"
        if code != 0:
            return f"exit code {code} of: {' '.join(map(str, command))}"
    return ""


def run_suite(suite, logs, root):
    started = time.monotonic()
    path = logs / f"{suite.name}.log"
    if suite.meson_log:
        suite.meson_log.unlink(missing_ok=True)
    with path.open("w") as log:
        reason = run_commands(suite, log, root)
    text = path.read_text(errors="replace")
    if suite.meson_log:
        found = counts.count_meson(suite.meson_log)
        if not reason and found.passed + found.failed == 0:
            reason = "no test ran"
        found.failed += 1 if reason and found.failed == 0 else 0
    elif suite.counted:
        found = counts.count_output(text, not reason)
    else:
        found = counts.Counts(failed=1 if reason else 0)
    if not reason and found.failed:
        reason = f"{found.failed} failed"
    return Outcome(suite, found, time.monotonic() - started, reason, counts.pytest_line(text) or "")


def run_all(suites, logs, root, report):
    """Runs the suites; calls report(outcome) as each ends, one at a time. Returns all outcomes."""
    cores = os.cpu_count() or 1
    waiting, running, done = list(suites), {}, {}
    changed = threading.Condition()

    def work(suite):
        outcome = run_suite(suite, logs, root)
        with changed:
            done[suite.name] = outcome
            del running[suite.name]
            report(outcome)
            changed.notify()

    with changed:
        while waiting or running:
            for suite in list(waiting):
                broken = [n for n in suite.after if n in done and done[n].reason]
                if broken:
                    waiting.remove(suite)
                    reason = f"{', '.join(broken)} failed"
                    done[suite.name] = Outcome(suite, counts.Counts(failed=1), 0.0, reason)
                    report(done[suite.name])
                    continue
                load = sum(s.load for s in running.values())
                ready = all(name in done for name in suite.after)
                if ready and (load == 0 or load + suite.load <= cores):
                    waiting.remove(suite)
                    running[suite.name] = suite
                    threading.Thread(target=work, args=(suite,)).start()
            if running:
                changed.wait()
    return list(done.values())
