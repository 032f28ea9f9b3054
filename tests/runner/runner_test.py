#!/usr/bin/env python3
"""The test runner's own tests: what it counts in the output of test programs, and that a failure, a
crash, an overrun or a silent suite never looks like success."""

import os
import pathlib
import sys
import tempfile
import time

import counts
import jobs
import suites
from counts import Counts

DOCTEST = "[doctest] test cases:  5 |  4 passed | 1 failed | 2 skipped\n"
PYTEST = "===== 2 failed, 17 passed, 1 skipped, 3 errors in 0.51s =====\n"
OUTPUTS = [
    ("doctest", DOCTEST, False, Counts(4, 1, 2)),
    ("pytest", PYTEST, False, Counts(17, 5, 1)),
    (
        "pytest in colour",
        "\x1b[32m==== \x1b[1m3 passed\x1b[0m in 1.2s ====\n",
        True,
        Counts(3, 0, 0),
    ),
    ("lines", "ok - a\nnot ok - b\n  detail\nskip - c\n", False, Counts(1, 1, 1)),
    ("a plain line", "12 passed, 0 failed\n", True, Counts(12, 0, 0)),
    ("silence is one case", "hello\n", True, Counts(1, 0, 0)),
    ("a crash adds a failure", "ok - a\nSegmentation fault\n", False, Counts(1, 1, 0)),
    ("two programs add up", DOCTEST + DOCTEST, False, Counts(8, 2, 4)),
]
# What a suite runs -> whether it passes, and a part of the reason when it does not.
SUITES = [
    ("passes", ["sh", "-c", "echo ok - a"], ""),
    ("fails", ["sh", "-c", "echo ok - a; exit 3"], "exit code 3"),
    ("claims to pass but says not ok", ["sh", "-c", "echo not ok - a"], "1 failed"),
    ("overruns", ["sh", "-c", "echo ok - a; while :; do :; done"], "over its budget"),
    ("leaves nothing running", ["sh", "-c", "sleep 1000 & echo $!; wait"], "over its budget"),
]


def check(good, title):
    print(f"{'ok' if good else 'not ok'} - runner: {title}")
    return good


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def ends(pid, limit_s=10):
    """A process that was killed is gone when the system gets to it."""
    until = time.monotonic() + limit_s
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return not alive(pid)


def main():
    good = True
    for title, text, succeeded, wanted in OUTPUTS:
        found = counts.count_output(text, succeeded)
        good &= check(found == wanted, f"{title}: {found}")
    good &= check(counts.pytest_line(PYTEST) == PYTEST.strip(), "pytest's closing line is kept")
    with tempfile.TemporaryDirectory() as folder:
        logs = pathlib.Path(folder)
        for title, command, reason in SUITES:
            suite = suites.Suite(title.replace(" ", "-"), 1, [command])
            outcome = jobs.run_suite(suite, logs, logs)
            passed = reason in outcome.reason and bool(reason) == bool(outcome.reason)
            good &= check(passed and bool(outcome.counts.failed) == bool(reason), title)
        child = int((logs / "leaves-nothing-running.log").read_text().splitlines()[1])
        good &= check(ends(child), "an overrun suite's children are gone")
        silent = suites.Suite("silent", 5, [["true"]], meson_log=logs / "absent.json")
        good &= check(jobs.run_suite(silent, logs, logs).reason == "no test ran", "no test ran")
        first = suites.Suite("first", 5, [["false"]])
        second = suites.Suite("second", 5, [["true"]], after=("first",))
        outcomes = jobs.run_all([first, second], logs, logs, lambda outcome: None)
        good &= check([o.counts.failed for o in outcomes] == [1, 1], "what depends on it fails too")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
