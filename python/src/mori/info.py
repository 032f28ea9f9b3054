"""`mori info`: what this installation is made of and what it can do on this machine.

A back end is tried by making a group of one PE on it: what the library says is printed as it is.
torch is not imported, so a GPU is the driver's first unless the environment hides it.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import mori
from mori._ffi import header_version, load
from mori.errors import LibraryError, MoriError

_PROBE_HEAP_BYTES = 1 << 20


def _libraries() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name in ("shmem", "ep", "io"):
        built_for = ".".join(map(str, header_version(name)))
        try:
            library = load(name)
        except LibraryError as error:
            found[name] = {"loaded": False, "built_for": built_for, "reason": str(error)}
            continue
        found[name] = {
            "loaded": True,
            "version": ".".join(map(str, library.version)),
            "abi_level": library.abi_level,
            "built_for": built_for,
            "path": library.path,
        }
    return found


def _backends() -> dict[str, dict[str, Any]]:
    """Each back end, tried with one PE."""
    from mori.shmem import Context, set_log_level

    set_log_level("off")  # a missing back end is an answer here, not a warning
    found: dict[str, dict[str, Any]] = {}
    for name in ("host", "amd", "nvidia"):
        try:
            context = Context(
                Context.unique_id(),
                0,
                1,
                backend=name,
                heap_bytes=_PROBE_HEAP_BYTES,
                bootstrap_timeout_s=10,
            )
        except MoriError as error:
            found[name] = {
                "viable": False,
                "status": error.status_name,
                "reason": str(error),
            }
            continue
        with context:
            facts, own = context.info(), context.peer_info(0)
            found[name] = {
                "viable": True,
                "worker_count": facts.worker_count,
                "gpu_ordinal": facts.gpu_ordinal,
                "gpu_sharer_count": facts.gpu_sharer_count,
                "heap_mode": facts.heap_mode,
                "own_transport": own.transport,
                "reason": own.reason,
            }
    return found


def _io_backends() -> dict[str, dict[str, Any]]:
    """Each way to move bytes between engines, tried with one engine."""
    from mori.io import BackendType, IOEngine, IOEngineConfig, set_log_level

    set_log_level("off")
    found: dict[str, dict[str, Any]] = {}
    try:
        engine = IOEngine("mori-info", IOEngineConfig("127.0.0.1"))
    except MoriError as error:
        names = (kind.name for kind in BackendType if kind is not BackendType.Unknown)
        return {name: {"viable": False, "reason": str(error)} for name in names}
    with engine:
        for kind in BackendType:
            if kind is BackendType.Unknown:
                continue
            try:
                engine.create_backend(kind)
                found[kind.name] = {"viable": True, "reason": engine.backend_stats(kind).reason}
            except MoriError as error:
                found[kind.name] = {
                    "viable": False,
                    "status": error.status_name,
                    "reason": str(error),
                }
    return found


def _default_backend() -> dict[str, str]:
    """What a context gets that names no back end, in a process like this one."""
    named = os.environ.get("MORI_BACKEND", "")
    if named not in ("", "auto"):
        return {"name": named, "reason": "MORI_BACKEND"}
    return {
        "name": "auto",
        "reason": "without MORI_BACKEND: the GPU if torch is imported and has one, else the host",
    }


def _number_in(path: str) -> int | None:
    try:
        return int(Path(path).read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def available_bytes() -> int | None:
    """Memory that new processes may take without pushing others out; None: unknown."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def _memory() -> dict[str, int | None]:
    """What bounds a symmetric heap, which is shared memory: bytes, None where there is no limit."""
    limit = _number_in("/sys/fs/cgroup/memory.max")
    if limit is None:
        limit = _number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes")
    if limit is not None and limit > 1 << 60:
        limit = None  # the old interface writes "no limit" as a huge number
    return {"available_bytes": available_bytes(), "cgroup_limit_bytes": limit}


def gather() -> dict[str, Any]:
    """Everything `mori info` prints."""
    libraries = _libraries()
    report: dict[str, Any] = {
        "mori": mori.__version__,
        "libraries": libraries,
        "backends": _backends() if libraries["shmem"]["loaded"] else {},
        "io_backends": _io_backends() if libraries["io"]["loaded"] else {},
        "default_backend": _default_backend(),
        "memory": _memory(),
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("MORI_")},
    }
    return report


def _gibibytes(value: int | None) -> str:
    return "no limit" if value is None else f"{value / 2**30:.1f} GiB"


def _where(backend: dict[str, Any]) -> str:
    """Where the one PE of the attempt ran."""
    if backend["gpu_ordinal"] < 0:
        return f"{backend['worker_count']} worker threads for one PE"
    count = backend["gpu_sharer_count"]
    return f"GPU {backend['gpu_ordinal']} for {count} PE{'' if count == 1 else 's'}"


def _print(report: dict[str, Any]) -> None:
    print(f"mori {report['mori']}")
    print("libraries")
    for name, one in report["libraries"].items():
        if one["loaded"]:
            print(
                f"  libmori-{name:5s} {one['version']}, ABI level {one['abi_level']}, {one['path']}"
            )
        else:
            print(f"  libmori-{name:5s} not usable: {one['reason']}")
    print("back ends")
    for name, one in report["backends"].items():
        if one["viable"]:
            print(f"  {name:7s} viable: {_where(one)}, {one['heap_mode']} heap")
        else:
            print(f"  {name:7s} not viable: {one['reason']} ({one['status']})")
    default = report["default_backend"]
    print(f"  default {default['name']} ({default['reason']})")
    if report["io_backends"]:
        print("io, backends of transfers")
    for name, one in report["io_backends"].items():
        state = "viable" if one["viable"] else "not viable"
        print(f"  {name:7s} {state}{': ' * bool(one['reason'])}{one['reason']}")
    memory = report["memory"]
    heap = report["environment"].get("MORI_SHMEM_HEAP_SIZE")
    print("memory")
    print(f"  heap per PE {heap + ' (MORI_SHMEM_HEAP_SIZE)' if heap else '4 GiB (default)'}")
    print(f"  available   {_gibibytes(memory['available_bytes'])}")
    print(f"  cgroup      {_gibibytes(memory['cgroup_limit_bytes'])}")
    print("environment")
    for name, value in report["environment"].items():
        print(f"  {name}={value}")
    if not report["environment"]:
        print("  no MORI_ variable is set")


def main(options: argparse.Namespace) -> int:
    """Returns 0 when all libraries and the host back end are usable, else 1."""
    report = gather()
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        _print(report)
    usable = all(one["loaded"] for one in report["libraries"].values())
    return 0 if usable and report["backends"].get("host", {}).get("viable") else 1
