#!/usr/bin/env python3
"""Runs GPU tests under compute-sanitizer's memcheck and racecheck: two processes, small, with long
budgets, and no MPS, under which the tools do not see all clients. PEs as threads are left out: the
tools run the kernels of one process one after the other, and kernels that wait for each other hang.

usage: sanitize.py GPU_TEST [TOOL ...]
"""

import os
import shutil
import subprocess
import sys

CASES = (
    "device functions*",
    "puts and gets*",
    "signals and atomics*",
    "barriers on streams*",
    "layers enqueued*",
)
LIMIT_S = 280
FOUND = 86


def check(sanitizer, tool, program):
    command = [
        sanitizer,
        "--tool",
        tool,
        "--target-processes",
        "all",
        "--error-exitcode",
        str(FOUND),
    ]
    command += ["--kernel-regex", "kns=mori", program, f"--test-case={','.join(CASES)}", "-d"]
    environment = {**os.environ, "MORI_TEST_SANITIZED": "1"}
    try:
        done = subprocess.run(
            command, env=environment, timeout=LIMIT_S, capture_output=True, text=True, check=False
        )
    except subprocess.TimeoutExpired as late:
        print((late.stdout or b"").decode(errors="replace")[-4000:])
        return f"took longer than {LIMIT_S} s"
    print(done.stdout[-6000:] + done.stderr[-3000:], flush=True)
    # Each client prints its own verdict; the exit status is that of the first.
    verdicts = [
        line
        for line in done.stdout.splitlines()
        if "ERROR SUMMARY" in line or "RACECHECK SUMMARY" in line
    ]
    if not verdicts:
        return "the tool printed no verdict"
    bad = [line for line in verdicts if " 0 errors" not in line and " 0 hazards" not in line]
    if bad:
        return bad[0]
    return f"exit status {done.returncode}" if done.returncode else ""


def main():
    program, *tools = sys.argv[1:]
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    failed = 0
    for tool in tools or ("memcheck", "racecheck"):
        fault = check(sanitizer, tool, program)
        print(f"{'not ok' if fault else 'ok'} - {tool}{': ' + fault if fault else ''}", flush=True)
        failed += bool(fault)
    return 1 if failed else 0


sys.exit(main())
