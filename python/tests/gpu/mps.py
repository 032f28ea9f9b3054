"""CUDA's MPS daemon for the length of a test run, so that PEs in several processes run at the same
time on one GPU; without it they are time-sliced and each wait for another takes milliseconds."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path


@contextlib.contextmanager
def daemon():
    """The environment in which clients find the daemon; the plain one where there is none."""
    environment = dict(os.environ)
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None or "CUDA_MPS_PIPE_DIRECTORY" in environment:
        yield environment
        return
    with tempfile.TemporaryDirectory(prefix="mori-mps-", ignore_cleanup_errors=True) as folder:
        for name in ("pipe", "log"):
            Path(folder, name).mkdir()
        environment["CUDA_MPS_PIPE_DIRECTORY"] = f"{folder}/pipe"
        environment["CUDA_MPS_LOG_DIRECTORY"] = f"{folder}/log"
        started = subprocess.run([control, "-d"], env=environment, timeout=60, check=False)
        if started.returncode != 0:
            yield dict(os.environ)
            return
        try:
            yield environment
        finally:
            subprocess.run([control], input=b"quit\n", env=environment, timeout=60, check=False)


def share_of(environment: dict[str, str], process_count: int) -> dict[str, str]:
    """The environment of one of several clients, each with its part of the multiprocessors."""
    if "CUDA_MPS_PIPE_DIRECTORY" not in environment:
        return environment
    part = str(100 // process_count)
    return {**environment, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": part}
