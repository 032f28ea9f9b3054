#!/usr/bin/env python3
"""Runs the GPU test programs, each with its environment: under CUDA's MPS where its daemon can be
started, so that PEs in several processes run at the same time on one GPU.

Exit status 77: skipped, since there is no GPU (the program says what was tried).

usage: gpu_test.py PROGRAM... [-- ARGUMENT...]
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
LIMIT_S = 800


@contextlib.contextmanager
def mps():
    """The environment in which clients find an MPS daemon of our own; the plain one without."""
    environment = dict(os.environ)
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        print("# no nvidia-cuda-mps-control: PEs in several processes are time-sliced", flush=True)
        yield environment
        return
    with tempfile.TemporaryDirectory(prefix="mori-mps-") as folder:
        for name in ("pipe", "log"):
            pathlib.Path(folder, name).mkdir()
        environment["CUDA_MPS_PIPE_DIRECTORY"] = f"{folder}/pipe"
        environment["CUDA_MPS_LOG_DIRECTORY"] = f"{folder}/log"
        started = subprocess.run([control, "-d"], env=environment, timeout=60, check=False)
        if started.returncode != 0:
            print("# the MPS daemon did not start", flush=True)
            yield dict(os.environ)
            return
        try:
            yield environment
        finally:
            subprocess.run([control], input=b"quit\n", env=environment, timeout=60, check=False)


def main():
    arguments = sys.argv[1:]
    more = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, more = arguments[:at], arguments[at + 1 :]
    with mps() as environment:
        codes = [
            subprocess.call([program, *more], env=environment, timeout=LIMIT_S)
            for program in arguments
        ]
    if all(code == SKIPPED for code in codes):
        return SKIPPED
    return 1 if any(code not in (0, SKIPPED) for code in codes) else 0


sys.exit(main())
