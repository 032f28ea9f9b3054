#!/usr/bin/env python3
"""Runs the fuzz targets of the wire layer, each for some seconds, from a corpus that a program
writes. A finding is a failure; the input that shows it is kept, and its path printed.

usage: fuzz.py [--seconds N] [--seed N] [--corpus FOLDER] SEEDS [FUZZ]

SEEDS is io_wire_seeds, FUZZ io_wire_fuzz, which is built where clang is: without it the test is
skipped. With --corpus what is found stays there, for the next run.
"""

import argparse
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

TARGETS = ("descriptor", "handshake", "frame")
MAX_INPUT_BYTES = 4096
SKIPPED = 77


def run(target, options, corpus, findings):
    """Whether the target ran its time without a finding."""
    command = [
        options.fuzz,
        f"-max_total_time={options.seconds}",
        f"-seed={options.seed}",
        f"-max_len={MAX_INPUT_BYTES}",
        "-timeout=10",
        "-print_final_stats=1",
        f"-artifact_prefix={findings}/{target}-",
        corpus / target,
    ]
    environment = {**os.environ, "MORI_FUZZ_TARGET": target}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=options.seconds + 60
    )
    stats = dict(re.findall(r"^stat::(\w+): +(\d+)", done.stderr, re.M))
    coverage = re.findall(r"cov: (\d+)", done.stderr)
    print(
        f"{target}: {stats.get('number_of_executed_units', '?')} inputs in {options.seconds} s, "
        f"{coverage[-1] if coverage else '?'} edges, seed {options.seed}"
    )
    if done.returncode == 0:
        return True
    print("\n".join(done.stderr.splitlines()[-40:]))
    for kept in sorted(findings.glob(f"{target}-*")):
        print(f"again: MORI_FUZZ_TARGET={target} {options.fuzz} {kept}")
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--seed", type=int, default=random.randrange(1, 2**31))
    parser.add_argument("--corpus", type=pathlib.Path)
    parser.add_argument("seeds", type=pathlib.Path)
    parser.add_argument("fuzz", type=pathlib.Path, nargs="?")
    options = parser.parse_args()
    if options.fuzz is None:
        print("skipped: needs clang++ 19 or newer and a build without sanitizers")
        return SKIPPED
    findings = options.fuzz.resolve().parent / "fuzz-findings"
    findings.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        corpus = options.corpus or pathlib.Path(scratch)
        subprocess.run([options.seeds, corpus], check=True, timeout=60)
        clean = [run(name, options, corpus, findings) for name in TARGETS]
        return 0 if all(clean) else 1


if __name__ == "__main__":
    sys.exit(main())
