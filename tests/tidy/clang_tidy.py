#!/usr/bin/env python3
"""Runs clang-tidy 19 over the C and C++ sources that a build compiles, two at a time, each source
once. What it looks for is in .clang-tidy.

usage: clang_tidy.py BUILD_FOLDER [PATH_PART ...]     only sources whose path contains a part
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys

import tree

SECONDS_PER_FILE = 120


def sources_of(build, parts):
    """Path as the compiler was given it -> path in the tree, for sources below the crates' src/."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        given = pathlib.Path(entry["directory"], entry["file"])
        path = given.resolve()
        if not path.is_relative_to(tree.ROOT) or path.is_relative_to(tree.ROOT / "build"):
            continue
        name = path.relative_to(tree.ROOT)
        wanted = not parts or any(part in str(name) for part in parts)
        if {"src", "kernels"} & set(name.parts) and wanted:
            found.setdefault(name, os.path.normpath(given))
    return found


def run(program, build, given):
    command = [
        program,
        "-p",
        str(build),
        "--quiet",
        "--extra-arg=-Wno-unknown-warning-option",
        given,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_PER_FILE)
    except subprocess.TimeoutExpired:
        return [f"took more than {SECONDS_PER_FILE} s"]
    return done.stdout.splitlines() if done.returncode else []


def main(build, parts):
    program = shutil.which("clang-tidy-19") or shutil.which("clang-tidy")
    if program is None:
        print("not ok - clang-tidy is not installed")
        return 1
    sources, good = sources_of(build, parts), True
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda given: run(program, build, given), sources.values())
        for name, faults in zip(sources, results, strict=True):
            print(f"{'not ok' if faults else 'ok'} - {name}", *faults, sep="\n  ", flush=True)
            good &= not faults
    return 0 if good and sources else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]))
