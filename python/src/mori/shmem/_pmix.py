"""The few calls of the PMIx client library that hand a text from one process of a job to others.

PMIx is what Open MPI, PRRTE and Slurm's pmix plugin speak to the processes that they start. Its
library, libpmix, comes with them; it is opened here when a launcher's server is there, never
linked. Layouts are those of the PMIx standard, version 3 and later.
"""

from __future__ import annotations

import atexit
import ctypes
import ctypes.util
import os
import threading
from functools import cache
from pathlib import Path
from typing import Any

from mori.errors import UnavailableError, WaitTimeoutError

_SUCCESS, _ERROR_TIMEOUT = 0, -24
_TYPE_STRING, _TYPE_INT, _TYPE_UINT32 = 3, 6, 14
_SCOPE_GLOBAL = 3
_RANK_WILDCARD = 0xFFFFFFFE
_lock = threading.Lock()


class _Proc(ctypes.Structure):
    _fields_ = (("nspace", ctypes.c_char * 256), ("rank", ctypes.c_uint32))


class _Data(ctypes.Union):
    # The largest member is a struct of three words.
    _fields_ = (
        ("string", ctypes.c_char_p),
        ("integer", ctypes.c_int),
        ("uint32", ctypes.c_uint32),
        ("words", ctypes.c_uint64 * 3),
    )


class _Value(ctypes.Structure):
    _fields_ = (("type", ctypes.c_uint16), ("data", _Data))


class _Info(ctypes.Structure):
    _fields_ = (("key", ctypes.c_char * 512), ("flags", ctypes.c_uint32), ("value", _Value))


def _candidates() -> list[str]:
    """Where launchers keep it: beside themselves, else where the loader looks."""
    roots = [os.environ.get(name, "") for name in ("PMIX_PREFIX", "OPAL_PREFIX", "PRTE_PREFIX")]
    places = [Path(root) / folder for root in roots if root for folder in ("lib", "lib64")]
    beside = [
        str(path)
        for place in dict.fromkeys(places)
        for pattern in ("libpmix.so.*", "*/libpmix.so.*")
        for path in sorted(place.glob(pattern), key=lambda path: len(path.name))
    ]
    found = ctypes.util.find_library("pmix")
    return [*beside, "libpmix.so.2", *([found] if found else [])]


@cache
def _library() -> Any:
    """The library, or a text that says why there is none."""
    problems = []
    for name in _candidates():
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            problems.append(str(error))
            continue
        library.PMIx_Get.argtypes = (
            ctypes.POINTER(_Proc),
            ctypes.c_char_p,
            ctypes.POINTER(_Info),
            ctypes.c_size_t,
            ctypes.POINTER(ctypes.POINTER(_Value)),
        )
        library.PMIx_Put.argtypes = (ctypes.c_uint8, ctypes.c_char_p, ctypes.POINTER(_Value))
        library.PMIx_Init.argtypes = (ctypes.POINTER(_Proc), ctypes.c_void_p, ctypes.c_size_t)
        library.PMIx_Error_string.restype = ctypes.c_char_p
        return library
    return problems[0] if problems else "libpmix.so.2 was not found"


_self: _Proc | None = None


def _text(status: int) -> str:
    return f"{_library().PMIx_Error_string(status).decode(errors='replace')} ({status})"


def _begin() -> _Proc:
    """Makes this process a client, once. It stays one until it exits, and says so then: a launcher
    takes a client that just goes for one that crashed."""
    global _self
    with _lock:
        if _self is None:
            library = _library()
            if isinstance(library, str):
                raise UnavailableError(f"PMIx: {library}")
            proc = _Proc()
            status = library.PMIx_Init(ctypes.byref(proc), None, 0)
            if status != _SUCCESS:
                raise UnavailableError(f"PMIx_Init: {_text(status)}")
            _self = proc
            # Counted: MPI in this process ends its own part by itself.
            atexit.register(_end, os.getpid())
    return _self


def _end(process: int) -> None:
    if os.getpid() == process:
        _library().PMIx_Finalize(None, ctypes.c_size_t(0))


def reason_against() -> str:
    """Why PMIx cannot be used here; empty when it can."""
    if "PMIX_RANK" not in os.environ or not any(
        name.startswith("PMIX_SERVER_URI") for name in os.environ
    ):
        return "no server of a launcher"
    library = _library()
    return library if isinstance(library, str) else ""


def put(key: str, text: str) -> None:
    """Makes a text of this process known to the job."""
    _begin()
    library = _library()
    value = _Value(type=_TYPE_STRING)
    value.data.string = text.encode()
    status = library.PMIx_Put(_SCOPE_GLOBAL, key.encode()[:511], ctypes.byref(value))
    if status == _SUCCESS:
        status = library.PMIx_Commit()
    if status != _SUCCESS:
        raise UnavailableError(f"PMIx_Put: {_text(status)}")


def _get(key: str, rank: int, timeout_s: float) -> Any:
    own = _begin()
    library = _library()
    proc = _Proc(nspace=own.nspace, rank=rank)
    limit = _Info(key=b"pmix.timeout")
    limit.value.type = _TYPE_INT
    limit.value.data.integer = max(1, round(timeout_s))
    out = ctypes.POINTER(_Value)()
    status = library.PMIx_Get(
        ctypes.byref(proc), key.encode()[:511], ctypes.byref(limit), 1, ctypes.byref(out)
    )
    if status == _ERROR_TIMEOUT:
        raise WaitTimeoutError(f"PMIx: rank {rank} has not put {key!r} within {timeout_s:.0f} s")
    if status != _SUCCESS:
        raise UnavailableError(f"PMIx_Get of {key!r}: {_text(status)}")
    return out.contents


def get(key: str, rank: int, timeout_s: float) -> str:
    """The text that another process of the job has put, or will put in time."""
    value = _get(key, rank, timeout_s)
    if value.type != _TYPE_STRING:
        raise UnavailableError(f"PMIx: {key!r} has type {value.type}, expected a string")
    return str(value.data.string.decode())


def job_size() -> int:
    """Processes of this job, as the launcher's server says."""
    value = _get("pmix.job.size", _RANK_WILDCARD, 30.0)
    if value.type != _TYPE_UINT32:
        raise UnavailableError(f"PMIx: the job's size has type {value.type}, expected uint32")
    return int(value.data.uint32)
