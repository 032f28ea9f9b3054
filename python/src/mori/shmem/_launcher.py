"""Joining by what started the processes: torchrun, Open MPI, PMIx, MPICH, Slurm, and mpi4py.

The launcher's environment says who this process is. The id of the group goes from rank 0 to the
others by the first of these that works here, and never over a channel that a stranger can read:

    PMIx's own exchange     Open MPI, PMIx, `srun --mpi=pmix`: the launcher carries it
    torch's store           torchrun, or MASTER_ADDR and MASTER_PORT given, with torch installed
    a file, mode 0600       in MORI_RENDEZVOUS_DIR, which all hosts see; without it only when all
                            processes are on one host. Readers refuse a file of another user
"""

from __future__ import annotations

import importlib.util
import os
import stat
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from mori.errors import InvalidError, StateError, UnavailableError, WaitTimeoutError
from mori.shmem import _pmix

_UNIQUE_ID_BYTES = 128
_DEFAULT_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Launch:
    """This process's place in what a launcher started.

    launcher    "torchrun", "Open MPI", "PMIx", "MPICH", "Slurm" or "environment"
    rank, size  this process, and how many there are
    job         names the run: the same in all its processes, another in each run
    one_host    all processes are known to be on this host
    """

    launcher: str
    rank: int
    size: int
    job: str
    one_host: bool


# Launcher, its variables for rank and size, those that name the job, and for the local size.
_LAUNCHERS = (
    (
        "torchrun",
        ("RANK", "WORLD_SIZE"),
        ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
        "LOCAL_WORLD_SIZE",
    ),
    (
        "Open MPI",
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("PMIx", ("PMIX_RANK", "PMIX_SIZE"), ("PMIX_NAMESPACE",), "PMIX_LOCAL_SIZE"),
    ("MPICH", ("PMI_RANK", "PMI_SIZE"), ("PMI_JOBID",), "MPI_LOCALNRANKS"),
    (
        "Slurm",
        ("SLURM_PROCID", "SLURM_NTASKS"),
        ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
        "",
    ),
    ("environment", ("RANK", "WORLD_SIZE"), ("MASTER_ADDR", "MASTER_PORT"), "LOCAL_WORLD_SIZE"),
)


def _count(environment: Mapping[str, str], name: str) -> int:
    text = environment[name]
    if not text.isdecimal():
        raise InvalidError(f"{name}={text!r} is no number, though a launcher should have set it")
    return int(text)


def find_launch(environment: Mapping[str, str] | None = None) -> Launch:
    """Who this process is, by the first launcher whose variables are there.

    StateError when there is none, with the names that were looked for; InvalidError when a
    variable makes no sense.
    """
    known = os.environ if environment is None else environment
    for launcher, (rank_name, size_name), job_names, local_name in _LAUNCHERS:
        if launcher == "torchrun" and "TORCHELASTIC_RUN_ID" not in known:
            continue
        if rank_name not in known:
            continue
        if launcher == "PMIx" and size_name not in known:
            size = _pmix.job_size()
        elif size_name in known:
            size = _count(known, size_name)
        else:
            raise InvalidError(f"{launcher} has set {rank_name}, but not {size_name}")
        rank = _count(known, rank_name)
        if not rank < size:
            raise InvalidError(f"{rank_name} is {rank}, {size_name} {size}")
        job = "-".join(known[name] for name in job_names if name in known)
        one_host = size == 1
        if launcher == "Slurm":
            one_host = known.get("SLURM_STEP_NUM_NODES", known.get("SLURM_NNODES")) == "1"
        elif local_name in known:
            one_host = _count(known, local_name) == size
        return Launch(launcher, rank, size, job or f"parent-{os.getppid()}", one_host)
    names = ", ".join(f"{rank} ({launcher})" for launcher, (rank, _), _, _ in _LAUNCHERS)
    raise StateError(
        f"no launcher has set up this process: none of {names} is set. Start it by torchrun, "
        "mpirun or srun, or make a mori.shmem.Context"
    )


def _timeout_s() -> float:
    text = os.environ.get("MORI_BOOTSTRAP_TIMEOUT", "")
    return float(text) if text.isdecimal() and int(text) > 0 else _DEFAULT_TIMEOUT_S


# Ways from rank 0 to the others


class _ByPmix:
    """PMIx's exchange of keys."""

    name = "PMIx"

    def __init__(self, launch: Launch, key: str) -> None:
        self._launch, self._key = launch, key

    @staticmethod
    def reason_against(_launch: Launch) -> str:
        return _pmix.reason_against()

    def give(self, text: str) -> None:
        _pmix.put(self._key, text)

    def take(self) -> str:
        return _pmix.get(self._key, 0, _timeout_s())

    def finish(self) -> None:
        """PMIx forgets with the job."""


class _ByTorchStore:
    """The store that torch.distributed uses at MASTER_ADDR:MASTER_PORT."""

    name = "torch's store"

    def __init__(self, launch: Launch, key: str) -> None:
        import torch.distributed as distributed

        agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        self._key = key
        self._store = distributed.TCPStore(
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            launch.size,
            launch.rank == 0 and not agent,
            timeout=timedelta(seconds=_timeout_s()),
            wait_for_workers=False,
            multi_tenant=True,
        )

    @staticmethod
    def reason_against(_launch: Launch) -> str:
        if "MASTER_ADDR" not in os.environ or "MASTER_PORT" not in os.environ:
            return "MASTER_ADDR and MASTER_PORT are not set"
        if importlib.util.find_spec("torch") is None:
            return "torch is not installed"
        return ""

    def give(self, text: str) -> None:
        self._store.set(self._key, text)

    def take(self) -> str:
        try:
            self._store.wait([self._key], timedelta(seconds=_timeout_s()))
        except RuntimeError as error:
            raise WaitTimeoutError(
                f"rank 0 has not put {self._key!r} into the store: {error}"
            ) from None
        return str(self._store.get(self._key).decode())

    def finish(self) -> None:
        """The store goes with the run."""


class _ByFile:
    """A file that only this user can read."""

    name = "a file"

    def __init__(self, launch: Launch, key: str) -> None:
        safe = "".join(c if c.isalnum() or c in "-." else "_" for c in key)
        self._path = _folder(launch) / f"mori-{os.getuid()}-{safe}"
        self._rank = launch.rank

    @staticmethod
    def reason_against(launch: Launch) -> str:
        if _folder(launch) is None:
            return (
                "MORI_RENDEZVOUS_DIR is not set, and the processes are not known to be on one host"
            )
        return ""

    def give(self, text: str) -> None:
        handle, partial = tempfile.mkstemp(prefix=".mori-", dir=self._path.parent)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
            # In one step: readers see all of it or none.
            os.replace(partial, self._path)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise

    def take(self) -> str:
        deadline = time.monotonic() + _timeout_s()
        while True:
            try:
                handle = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                break
            except FileNotFoundError:
                if time.monotonic() > deadline:
                    raise WaitTimeoutError(
                        f"rank 0 has not written {self._path} within {_timeout_s():.0f} s"
                    ) from None
                time.sleep(0.02)
        with os.fdopen(handle) as file:
            about = os.fstat(file.fileno())
            if about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o077:
                raise InvalidError(
                    f"{self._path} belongs to user {about.st_uid} with mode "
                    f"{stat.S_IMODE(about.st_mode):o}, expected user {os.getuid()} and mode 600"
                )
            return file.read(4096)

    def finish(self) -> None:
        if self._rank == 0:
            self._path.unlink(missing_ok=True)


def _folder(launch: Launch) -> Any:
    chosen = os.environ.get("MORI_RENDEZVOUS_DIR", "")
    if chosen:
        return Path(chosen)
    return Path(tempfile.gettempdir()) if launch.one_host else None


def _way(launch: Launch, key: str) -> Any:
    reasons = []
    for way in (_ByPmix, _ByTorchStore, _ByFile):
        reason = way.reason_against(launch)
        if not reason:
            return way(launch, key)
        reasons.append(f"{way.name} ({reason})")
    raise UnavailableError(
        f"{launch.launcher} started this process, but there is no way to hand the group's id from "
        f"rank 0 to the others: {'; '.join(reasons)}"
    )


_rounds: dict[str, int] = {}


def join_launched(make_id: Callable[[], bytes], join: Callable[[bytes, int, int], Any]) -> Any:
    """Joins all processes of the launch: rank 0 makes the id, all call join(id, rank, size)."""
    launch = find_launch()
    # All processes count alike, so that a second group does not find the first one's id.
    number = _rounds[launch.job] = _rounds.get(launch.job, 0) + 1
    if launch.size == 1:
        return join(make_id(), 0, 1)
    way = _way(launch, f"{launch.job}-{number}")
    if launch.rank == 0:
        unique_id = make_id()
        way.give(unique_id.hex())
    else:
        text = way.take()
        try:
            unique_id = bytes.fromhex(text)
        except ValueError:
            raise InvalidError(f"{way.name} gave {text[:40]!r}, which is no unique id") from None
        if len(unique_id) != _UNIQUE_ID_BYTES:
            raise InvalidError(f"{way.name} gave an id of {len(unique_id)} bytes, expected 128")
    try:
        return join(unique_id, launch.rank, launch.size)
    finally:
        way.finish()


def join_communicator(
    communicator: Any, make_id: Callable[[], bytes], join: Callable[[bytes, int, int], Any]
) -> Any:
    """Joins the processes of an mpi4py communicator."""
    rank, size = communicator.Get_rank(), communicator.Get_size()
    # A failure on rank 0 is broadcast too: else the others would wait in vain.
    offer: Any = None
    if rank == 0:
        try:
            offer = make_id()
        except Exception as error:
            offer = error
    offer = communicator.bcast(offer, root=0)
    if isinstance(offer, Exception):
        raise offer
    return join(offer, rank, size)
