"""Runs a benchmark with tiny sizes and checks that every metric's line is there and says what it
should: the figures mean nothing, but the programs and the lines do not rot.

usage: smoke_test.py FOLDER_OF_PROGRAMS NAME
"""

import pathlib
import re
import shutil
import subprocess
import sys

import compare

NUMBER = r"[0-9.]+(?:e[+-]?[0-9]+)?"
LINE = re.compile(
    rf"metric=(?P<metric>\S+) ours=(?P<ours>{NUMBER}) peer=(?P<peer>{NUMBER}|-)"
    rf" ratio=(?P<ratio>{NUMBER}|-) goal=(?P<goal>[0-9.]+|-) (?P<word>ok|short)"
)


def wrong_with(text, metrics):
    """Complaints about the output of one benchmark."""
    seen = []
    for line in text.splitlines():
        found = LINE.fullmatch(line)
        if not found:
            yield f"not a metric's line: {line}"
            continue
        seen.append(found["metric"])
        if float(found["ours"]) <= 0:
            yield f"nothing was measured: {line}"
        if found["goal"] != "-" and found["ratio"] != "-":
            reached = float(found["ratio"]) >= float(found["goal"])
            # Ratios are printed rounded: on the goal itself either word is right.
            if found["ratio"] != found["goal"] and reached != (found["word"] == "ok"):
                yield f"the last word is wrong: {line}"
    # What is optional may have had nothing to run it here.
    wanted = [metric.name for metric in metrics if metric.name in seen or not metric.optional]
    if seen != wanted:
        yield f"metrics {seen}, wanted {wanted}"


def main():
    programs, name = pathlib.Path(sys.argv[1]), sys.argv[2]
    if name == "shmem-host" and not shutil.which("ucx_perftest"):
        print("skipped: there is no ucx_perftest (Debian: ucx-utils)")
        return 77
    script = pathlib.Path(compare.__file__)
    command = [sys.executable, "-B", script, "--smoke", "--programs", programs, name]
    done = subprocess.run(command, capture_output=True, text=True)
    complaints = [*wrong_with(done.stdout, compare.BENCHMARKS[name].metrics)]
    if done.returncode != 0:
        complaints.append(f"exit code {done.returncode}: {done.stderr}")
    print(done.stdout, *complaints, sep="\n")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
