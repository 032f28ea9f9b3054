"""mori: symmetric memory, expert-parallel dispatch and combine, one-sided transfers of KV caches.

Over three C libraries:

mori.shmem    symmetric memory: contexts, allocation, puts, gets, signals, barriers
mori.ir       device bitcode for kernels of other compilers; mori.ir.triton for Triton's
mori.ops      dispatch and combine for mixture-of-experts layers
mori.io       engines that read and write each other's registered memory
mori.cpp      enumerations and types under the names that frameworks import
mori.errors   the exceptions; all derive from mori.MoriError

`import mori` loads no library and imports no framework; a submodule loads its library when it is
first used, also as an attribute (`mori.shmem...`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mori.errors import MoriError

if TYPE_CHECKING:
    from mori import cpp, io, ir, ops, shmem

__version__ = "0.1.0"
__all__ = ["MoriError", "__version__", "cpp", "errors", "io", "ir", "ops", "shmem"]

_SUBMODULES = ("cpp", "errors", "io", "ir", "ops", "shmem")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"mori.{name}")
    raise AttributeError(f"module 'mori' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES})
