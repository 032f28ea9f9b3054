"""NVIDIA's Multi-Process Service for one run of a program: several processes on one GPU run at the
same time under it, and take turns of milliseconds without it. The daemon has folders of its own, so
it neither meets nor disturbs another one.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

from metric import BenchmarkError, UnavailableError

CONTROL = "nvidia-cuda-mps-control"
LIMIT_S = 20  # of one command


def why_not():
    """Why there is no GPU that processes could share; None if there is one."""
    if shutil.which("nvidia-smi") is None:
        return "there is no NVIDIA driver here (no nvidia-smi)"
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi: {error}"
    if done.returncode != 0 or "GPU 0" not in done.stdout:
        return f"there is no NVIDIA GPU here ({(done.stdout + done.stderr).strip()})"
    if shutil.which(CONTROL) is None:
        return f"there is no {CONTROL}, without which processes cannot share a GPU"
    return None


def share(environment, process_count):
    """The environment of a program whose processes get equal parts of the GPU."""
    return {**environment, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(100 // process_count)}


@contextlib.contextmanager
def daemon():
    """Starts the daemon and yields the environment of its clients; ends it afterwards."""
    if (reason := why_not()) is not None:
        raise UnavailableError(reason)
    # A short path: the daemon puts sockets there.
    with tempfile.TemporaryDirectory(prefix="mps", ignore_cleanup_errors=True) as folder:
        pipes, logs = pathlib.Path(folder, "pipe"), pathlib.Path(folder, "log")
        pipes.mkdir()
        logs.mkdir()
        environment = {
            **os.environ,
            "CUDA_MPS_PIPE_DIRECTORY": str(pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(logs),
            "CUDA_VISIBLE_DEVICES": "0",
        }
        environment.pop("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", None)
        _start(environment)
        try:
            yield environment
        finally:
            _stop(environment, pipes)


def _start(environment):
    try:
        # Its output goes nowhere: a daemon would hold a pipe open.
        done = subprocess.run(
            [CONTROL, "-d"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchmarkError(f"{CONTROL} -d: {error}") from error
    if done.returncode != 0:
        logs = pathlib.Path(environment["CUDA_MPS_LOG_DIRECTORY"])
        said = "".join(path.read_text(errors="replace") for path in logs.glob("*.log"))
        raise BenchmarkError(f"{CONTROL} -d: exit code {done.returncode}\n{said}")


def _stop(environment, pipes):
    number = pipes / f"{CONTROL}.pid"
    pid = number.read_text().strip() if number.exists() else ""
    try:
        subprocess.run(
            [CONTROL],
            input="quit -t 5\n",
            text=True,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        if pid.isdigit():
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
