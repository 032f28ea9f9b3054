"""Joining by MPI and by launchers: what the environment says, and real runs of those at hand."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import mori.shmem as shmem
import pytest
from mori.errors import InvalidError, StateError, UnavailableError
from mori.shmem import _launcher
from mori.shmem._launcher import Launch, find_launch

PROGRAM = str(pathlib.Path(__file__).with_name("launched_program.py"))
HERE = pathlib.Path(sys.executable).parent
MPIRUN = shutil.which("mpirun", path=str(HERE)) or shutil.which("mpirun")
has_mpi = pytest.mark.skipif(
    MPIRUN is None or importlib.util.find_spec("mpi4py") is None, reason="needs mpirun and mpi4py"
)
has_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs torch, which has torchrun"
)
SLURM = {"SLURM_PROCID": "1", "SLURM_NTASKS": "3", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (
            {
                "RANK": "3",
                "WORLD_SIZE": "4",
                "LOCAL_WORLD_SIZE": "4",
                "TORCHELASTIC_RUN_ID": "none",
                "TORCHELASTIC_RESTART_COUNT": "2",
                **SLURM,
            },
            Launch("torchrun", 3, 4, "none-2", True),
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "0",
                "OMPI_COMM_WORLD_SIZE": "8",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
                "PMIX_RANK": "0",
                "PMIX_NAMESPACE": "prterun-9@1",
            },
            Launch("Open MPI", 0, 8, "prterun-9@1", False),
        ),
        (
            {"PMIX_RANK": "1", "PMIX_SIZE": "2", "PMIX_NAMESPACE": "n"},
            Launch("PMIx", 1, 2, "n", False),
        ),
        (
            {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2", "PMI_JOBID": "j"},
            Launch("MPICH", 1, 2, "j", True),
        ),
        ({**SLURM, "SLURM_NNODES": "1"}, Launch("Slurm", 1, 3, "77-0", True)),
        (
            {**SLURM, "SLURM_NNODES": "1", "SLURM_STEP_NUM_NODES": "2"},
            Launch("Slurm", 1, 3, "77-0", False),
        ),
        (
            {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "h", "MASTER_PORT": "1"},
            Launch("environment", 0, 1, "h-1", True),
        ),
    ],
)
def test_who_this_process_is(environment, expected):
    assert find_launch(environment) == expected


def test_a_job_without_a_name_is_named_by_the_parent():
    launch = find_launch({"PMI_RANK": "0", "PMI_SIZE": "2"})
    assert launch.job == f"parent-{os.getppid()}"


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"SLURM_PROCID": "x", "SLURM_NTASKS": "2"}, "SLURM_PROCID='x' is no number"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "-2"}, "SLURM_NTASKS='-2' is no number"),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "2"}, "SLURM_PROCID is 2, SLURM_NTASKS 2"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, "has set OMPI_COMM_WORLD_RANK, but not OMPI_COMM_WORLD_"),
    ],
)
def test_variables_that_make_no_sense(environment, message):
    with pytest.raises(InvalidError, match=message):
        find_launch(environment)


def test_no_launcher(monkeypatch):
    for _, names, _, _ in _launcher._LAUNCHERS:
        for name in names:
            monkeypatch.delenv(name, raising=False)
    with pytest.raises(StateError, match=r"none of RANK \(torchrun\), OMPI_COMM_WORLD_RANK"):
        shmem.shmem_launcher_init()
    assert not shmem.shmem_is_initialized()


def run_all(count, environments, timeout_s=90):
    """Starts the program as each of these processes; returns what they printed, by process."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "PMI", "OMPI"))}
    processes = [
        subprocess.Popen(
            [sys.executable, PROGRAM, "launcher"],
            env={**inherited, "MORI_SHMEM_HEAP_SIZE": "1M", **environments(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(count)
    ]
    return [(p.communicate(timeout=timeout_s)[0].strip(), p.returncode) for p in processes]


def test_slurm_by_a_file(tmp_path):
    def environment(rank):
        return {
            "SLURM_PROCID": str(rank),
            "SLURM_NTASKS": "3",
            "SLURM_JOB_ID": "1234",
            "SLURM_STEP_ID": "5",
            "SLURM_NNODES": "2",
            "MORI_RENDEZVOUS_DIR": str(tmp_path),
        }

    assert run_all(3, environment) == [(f"OK {rank} 3", 0) for rank in range(3)]
    assert list(tmp_path.iterdir()) == []


def test_rank_0_does_not_come(tmp_path):
    def environment(_):
        return {
            **SLURM,
            "MORI_RENDEZVOUS_DIR": str(tmp_path),
            "MORI_BOOTSTRAP_TIMEOUT": "1",
        }

    ((text, code),) = run_all(1, environment)
    assert code == 1
    assert f"rank 0 has not written {tmp_path}/mori-{os.getuid()}-77-0-1 within 1 s" in text


@pytest.mark.parametrize("content", ["00" * 127, "what is this"])
def test_a_file_that_holds_no_id(content, tmp_path, monkeypatch):
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MORI_RENDEZVOUS_DIR", str(tmp_path))
    monkeypatch.setattr(_launcher, "_rounds", {})
    path = tmp_path / f"mori-{os.getuid()}-77-0-1"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(InvalidError, match="a file gave"):
        shmem.shmem_launcher_init()


def test_a_file_that_others_can_read_is_refused(tmp_path, monkeypatch):
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MORI_RENDEZVOUS_DIR", str(tmp_path))
    monkeypatch.setattr(_launcher, "_rounds", {})
    path = tmp_path / f"mori-{os.getuid()}-77-0-1"
    path.write_text("00" * 128)
    path.chmod(0o644)
    with pytest.raises(InvalidError, match="with mode 644, expected user"):
        shmem.shmem_launcher_init()


def test_no_way_between_hosts(monkeypatch):
    for name in ("MORI_RENDEZVOUS_DIR", "MASTER_ADDR", "MASTER_PORT", "PMIX_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**SLURM, "SLURM_NNODES": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UnavailableError, match=r"a file \(MORI_RENDEZVOUS_DIR is not set, and"):
        shmem.shmem_launcher_init()


# Real launchers


def mpirun(count, how):
    command = [MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", str(count)]
    done = subprocess.run(
        [*command, sys.executable, PROGRAM, how],
        env={**os.environ, "MORI_SHMEM_HEAP_SIZE": "1M"},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(line for line in done.stdout.splitlines() if line.startswith("OK"))


@has_mpi
def test_mpi_world():
    assert mpirun(3, "mpi") == ["OK 0 3", "OK 1 3", "OK 2 3"]


@has_mpi
def test_mpi_communicators_that_are_parts_of_the_world():
    assert mpirun(4, "halves") == ["OK 0 2", "OK 0 2", "OK 1 2", "OK 1 2"]


@has_mpi
def test_open_mpi_without_mpi(monkeypatch):
    # By PMIx: a folder that is not there would fail.
    monkeypatch.setenv("MORI_RENDEZVOUS_DIR", "/nonexistent")
    assert mpirun(3, "launcher") == ["OK 0 3", "OK 1 3", "OK 2 3"]


@has_torch
def test_torchrun():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    done = subprocess.run(
        [*command, PROGRAM, "launcher"],
        env={**os.environ, "MORI_SHMEM_HEAP_SIZE": "1M", "MORI_RENDEZVOUS_DIR": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = sorted(line for line in done.stdout.splitlines() if line.startswith("OK"))
    assert lines == ["OK 0 3", "OK 1 3", "OK 2 3"]


class Lonely:
    """A communicator of one, as far as joining asks."""

    def Get_rank(self):  # noqa: N802
        return 0

    def Get_size(self):  # noqa: N802
        return 1

    def bcast(self, value, root):
        return value


def test_communicators_that_do_not_fit():
    kind = shmem.MORI_SHMEM_INIT_WITH_MPI_COMM
    with pytest.raises(InvalidError, match="must be an mpi4py communicator, not a bytes"):
        shmem.shmem_init_attr(kind, 0, 1, shmem.shmem_get_unique_id())
    with pytest.raises(InvalidError, match="rank 1 of 2 given, in the communicator this is 0 of 1"):
        shmem.shmem_init_attr(kind, 1, 2, Lonely())
    assert shmem.shmem_init_attr(kind, 0, 1, Lonely()) == 0
    with pytest.raises(StateError, match="initialised already"):
        shmem.shmem_mpi_init(Lonely())
    shmem.shmem_finalize()
    assert shmem.shmem_mpi_init(Lonely()) == 0
    assert shmem.shmem_npes() == 1
    shmem.shmem_finalize()
