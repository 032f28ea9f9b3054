"""PEs as processes that share GPUs, under MPS where it is there; what each does is in
pe_program.py."""

import json
import subprocess
import sys
import time
from pathlib import Path

import mps
import pytest

torch = pytest.importorskip("torch")

from layers import DEVICE  # noqa: E402

PROGRAM = Path(__file__).with_name("pe_program.py")
PATIENCE_S = 200.0


def run_group(body, world, folder, environment):
    """Runs `body`, of pe_program.py or a command of its own, on `world` processes; returns what
    they report, in order of rank. The first failure ends them all."""
    program = [sys.executable, str(PROGRAM), body] if isinstance(body, str) else body
    processes = []
    for rank in range(world):
        with open(folder / f"{rank}.out", "wb") as out, open(folder / f"{rank}.err", "wb") as err:
            command = [*program, str(rank), str(world), str(folder)]
            share = mps.share_of(environment, world)
            processes.append(subprocess.Popen(command, stdout=out, stderr=err, env=share))
    end = time.monotonic() + PATIENCE_S
    try:
        while any(process.poll() is None for process in processes):
            if time.monotonic() > end or any(process.poll() for process in processes):
                break
            time.sleep(0.02)
        # The others of a group learn of a failure by themselves; give them the time to say so.
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    errors = [(folder / f"{rank}.err").read_text()[-3000:] for rank in range(world)]
    codes = [process.returncode for process in processes]
    assert codes == [0] * world, "\n".join(
        f"-- rank {rank}: exit status {code}\n{error}"
        for rank, (code, error) in enumerate(zip(codes, errors, strict=True))
    )
    return [json.loads((folder / f"{rank}.out").read_text()) for rank in range(world)]


@pytest.mark.parametrize("world", [2, 4])
def test_same_bits_as_the_host(world, tmp_path, mps_environment):
    for found in run_group("layers", world, tmp_path, mps_environment):
        assert found["calls"] == 20
        if DEVICE == "cuda":
            assert found["backend"] == ("amd" if torch.version.hip else "nvidia")
            assert found["sharers"] >= 1


@pytest.mark.parametrize("world", [2, 4])
def test_calls_in_a_row(world, tmp_path, mps_environment):
    found = run_group("without_wait", world, tmp_path, mps_environment)
    assert found == [{"calls": 50}] * world


@pytest.mark.device
@pytest.mark.parametrize("world", [2, 4])
def test_graphs(world, tmp_path, mps_environment):
    found = run_group("graph", world, tmp_path, mps_environment)
    assert found == [{"replays": 40}] * world


@pytest.mark.parametrize("world", [2, 4])
def test_memory_of_peers(world, tmp_path, mps_environment):
    found = run_group("memory", world, tmp_path, mps_environment)
    assert found == [{"transports": ["p2p"] * world}] * world


@pytest.mark.parametrize("world", [2, 4])
def test_faults_of_all_ranks(world, tmp_path, mps_environment):
    found = run_group("faults", world, tmp_path, mps_environment)
    assert len({one["message"] for one in found}) == 1


def test_torch_process_group(tmp_path, mps_environment):
    found = run_group("process_group", 2, tmp_path, mps_environment)
    assert found == [{"device": DEVICE}] * 2
