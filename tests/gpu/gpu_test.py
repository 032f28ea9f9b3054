#!/usr/bin/env python3
"""Runs the GPU tests, each with its environment: gpu_test, under CUDA's MPS where its daemon can be
started, so that PEs in several processes run at the same time on one GPU; shmem's part of it again
between PEs that are not mapped, then with every other process on another node; then ep's random
calls, the bodies that the host runs too, with ranks as threads, each call synchronous.

Without a GPU all of it is skipped; the program says what was tried.

usage: gpu_test.py GPU_TEST EP_TEST [ARGUMENT...]     arguments go to gpu_test
"""

import contextlib
import ctypes
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


def is_nvidia():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def random_calls(program):
    environment = {
        **os.environ,
        "MORI_BACKEND": "nvidia" if is_nvidia() else "amd",
        "MORI_CHECK": "sync",
        # Streams that wait for each other must not share a queue.
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",
    }
    # More than about eight ranks in one process need more queues than a device has.
    choice = ["--test-case=random calls*", "--test-case-exclude=*twenty*"]
    return subprocess.call([program, *choice], env=environment, timeout=LIMIT_S)


def by_network(program, environment):
    """Of what shmem does, all over TCP, then part of it."""
    choice = ["--source-file=*shmem_gpu_test*,*device_functions_test*"]
    code = 0
    for more in ({"MORI_DISABLE_P2P": "1", "MORI_NUM_QP_PER_PE": "2"}, {"MORI_TEST_NODES": "2"}):
        print(f"# gpu_test with {more}", flush=True)
        changed = {**environment, **more}
        code = subprocess.call([program, *choice], env=changed, timeout=LIMIT_S) or code
    return code


def main():
    gpu_test, ep_test, *arguments = sys.argv[1:]
    with mps() as environment:
        code = subprocess.call([gpu_test, *arguments], env=environment, timeout=LIMIT_S)
        if code == 0 and not arguments:
            code = by_network(gpu_test, environment)
    if code == SKIPPED:
        print("0 passed, 0 failed, 1 skipped")
        return 0
    return 1 if random_calls(ep_test) != 0 or code != 0 else 0


sys.exit(main())
