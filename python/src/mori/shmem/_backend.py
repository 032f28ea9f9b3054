"""Where a context's memory and kernels are to be: the host, or the GPU that torch works on.

What the caller or MORI_BACKEND names is taken. Else it is the GPU when torch is in the process and
has one, for then the arrays will be there, and the host when not. torch is never imported here.
"""

from __future__ import annotations

import os

from mori._arrays import HOST, Place, gpu_backend_of_torch, loaded_torch
from mori._values import value_of
from mori.shmem._facts import BACKENDS, ContextInfo


def is_named_by_environment() -> bool:
    """Whether MORI_BACKEND names one; the library reads it, and refuses what it does not know."""
    return os.environ.get("MORI_BACKEND", "") not in ("", "auto")


def chosen_backend(asked: str | int) -> int:
    """The C value of the backend that a context asked for as `asked` gets."""
    value = value_of(asked, BACKENDS, "backend")
    if value != BACKENDS["auto"] or is_named_by_environment():
        return value
    return BACKENDS[gpu_backend_of_torch() or "host"]


def bind_device(backend: int) -> None:
    """Makes the device that torch works on the calling thread's in the driver's eyes: torch puts
    that off. Without torch it is the caller's choice."""
    wanted = backend
    if wanted == BACKENDS["auto"]:
        wanted = BACKENDS.get(os.environ.get("MORI_BACKEND", ""), BACKENDS["host"])
    found = gpu_backend_of_torch() if wanted in (BACKENDS["amd"], BACKENDS["nvidia"]) else None
    if found is not None and BACKENDS[found] == wanted:
        # A question that needs the device, and that a graph capture elsewhere does not mind.
        loaded_torch().cuda.mem_get_info()


def place_of(info: ContextInfo) -> Place:
    """Where a context's memory is."""
    return HOST if info.backend == "host" else Place(info.backend, info.gpu_ordinal)


class device_guard:
    """Within it the context's GPU is the thread's current one, where torch could have another."""

    def __init__(self, place: Place) -> None:
        torch = None if place.is_host else loaded_torch()
        has_gpu = torch is not None and gpu_backend_of_torch() == place.backend
        self._guard = torch.cuda.device(place.index) if has_gpu else None

    def __enter__(self) -> None:
        if self._guard is not None:
            self._guard.__enter__()

    def __exit__(self, *error: object) -> None:
        if self._guard is not None:
            self._guard.__exit__(*error)
