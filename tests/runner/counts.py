"""How many cases passed and failed, read from what the test programs print.

A closing line of doctest or pytest, a line `N passed, N failed`, and lines `ok - NAME` and
`not ok - NAME` are understood; output with none of them counts as one case by its exit code. A
program that fails without naming a failed case (a crash, a time-out) adds one failure.
"""

import dataclasses
import json
import pathlib
import re

DOCTEST = re.compile(r"test cases: +\d+ \| +(\d+) passed \| +(\d+) failed(?: \| +(\d+) skipped)?")
PYTEST = re.compile(r"^=+ (?=.*\b(?:passed|failed|error|skipped|no tests)).* in [\d.]+s.*=+$", re.M)
PLAIN = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.M)
LINES = re.compile(r"^(ok|not ok|skip) - ", re.M)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclasses.dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __iadd__(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        return self


def pytest_line(text):
    """pytest's own closing line, the last one, or None."""
    found = PYTEST.findall(COLOURS.sub("", text))
    return found[-1] if found else None


def count_output(text, succeeded):
    text = COLOURS.sub("", text)
    counts = Counts()
    for line in PYTEST.findall(text):
        number = {word: int(n) for n, word in re.findall(r"(\d+) (\w+)", line)}
        counts += Counts(
            number.get("passed", 0) + number.get("xfailed", 0),
            number.get("failed", 0) + number.get("error", 0) + number.get("errors", 0),
            number.get("skipped", 0),
        )
    for pattern in (DOCTEST, PLAIN):
        for passed, failed, skipped in pattern.findall(text):
            counts += Counts(int(passed), int(failed), int(skipped or 0))
    words = LINES.findall(text)
    counts += Counts(words.count("ok"), words.count("not ok"), words.count("skip"))
    if counts == Counts() and succeeded:
        return Counts(passed=1)
    if not succeeded and counts.failed == 0:
        counts.failed = 1
    return counts


def count_meson(log):
    """Counts of a Meson test log (its JSON lines)."""
    counts = Counts()
    if not log.exists():
        return counts
    for line in log.read_text().splitlines():
        test = json.loads(line)
        if test["result"] == "SKIP":
            counts += Counts(skipped=1)
        else:
            counts += count_output(
                test.get("stdout") or "", test["result"] in ("OK", "EXPECTEDFAIL")
            )
    return counts


def meson_log(build, suite):
    return pathlib.Path(build) / "meson-logs" / f"{suite}.json"
