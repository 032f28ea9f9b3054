"""Entry of tests/run.sh once its environment exists: picks the suites, runs them, prints the sum.

The last line is `N passed, N failed`, counted in test cases and checks. The exit code is not 0 when
anything failed, when a suite overran its budget, or when nothing ran.
"""

import argparse
import sys
import time

import counts
import jobs
import suites

TAIL_LINES = 60


def choose(names):
    """The named suites (the usual ones when there are none) and what they come after, in order."""
    known = {suite.name: suite for suite in suites.all_suites()}
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"unknown suite: {', '.join(unknown)}; there are: {' '.join(known)}")
    wanted, new = set(), set(names or (n for n, suite in known.items() if suite.by_default))
    while new:
        wanted |= new
        new = {before for name in new for before in known[name].after} - wanted
    return [suite for name, suite in known.items() if name in wanted]


def print_outcome(outcome):
    suite, found = outcome.suite, outcome.counts
    tally = f"{found.passed:5d} passed {found.failed:3d} failed" if suite.counted else " " * 23
    skipped = f" {found.skipped} skipped" if found.skipped else ""
    verdict = f"FAILED: {outcome.reason}" if outcome.reason else "ok"
    print(
        f"{suite.name:12} {tally} {outcome.seconds:6.1f} s of {suite.budget_s:3d} s{skipped}  "
        f"{verdict}",
        flush=True,
    )
    if outcome.closing_line:
        print(outcome.closing_line)
    if outcome.reason and outcome.seconds > 0:
        path = suites.BUILD / "logs" / f"{suite.name}.log"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        print(f"---- end of {path.relative_to(suites.ROOT)}")
        print("\n".join(lines[-TAIL_LINES:]))
        print("----", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="tests/run.sh", description=__doc__.split("\n")[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE")
    parser.add_argument("--list", action="store_true", help="print the suites and their budgets")
    arguments = parser.parse_args()
    if arguments.list:
        for suite in suites.all_suites():
            print(f"{suite.name:12} {suite.budget_s:4d} s")
        return 0
    started = time.monotonic()
    logs = suites.BUILD / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    outcomes = jobs.run_all(choose(arguments.suites), logs, suites.ROOT, print_outcome)
    total = counts.Counts()
    for outcome in outcomes:
        total += outcome.counts
    failed = any(outcome.reason for outcome in outcomes) or total.failed
    print(f"total: {time.monotonic() - started:.0f} s, {total.skipped} skipped")
    print(f"{total.passed} passed, {total.failed} failed")
    return 1 if failed or total.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
