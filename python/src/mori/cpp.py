"""Names that frameworks import from `mori.cpp`, MORI's binding module.

They are the same objects as in mori.ops, mori.shmem and mori.io. Enumerations and flags need no
library; the io types load libmori-io when they are first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mori._enums import (
    MORI_SHMEM_INIT_WITH_MPI_COMM,
    MORI_SHMEM_INIT_WITH_UNIQUEID,
    BackendType,
    EpDispatchCombineKernelType,
    EpDispatchCombineQuantType,
    MemoryLocationType,
    PollCqMode,
    StatusCode,
)

if TYPE_CHECKING:
    from mori.io import (
        BackendConfig,
        EngineDesc,
        FabricBackendConfig,
        IOEngine,
        IOEngineConfig,
        IOEngineSession,
        MemoryDesc,
        RdmaBackendConfig,
        TcpBackendConfig,
        TransferStatus,
        XgmiBackendConfig,
        set_log_level,
    )

__all__ = [
    "MORI_SHMEM_INIT_WITH_MPI_COMM",
    "MORI_SHMEM_INIT_WITH_UNIQUEID",
    "BackendConfig",
    "BackendType",
    "EngineDesc",
    "EpDispatchCombineKernelType",
    "EpDispatchCombineQuantType",
    "FabricBackendConfig",
    "IOEngine",
    "IOEngineConfig",
    "IOEngineSession",
    "MemoryDesc",
    "MemoryLocationType",
    "PollCqMode",
    "RdmaBackendConfig",
    "StatusCode",
    "TcpBackendConfig",
    "TransferStatus",
    "XgmiBackendConfig",
    "set_log_level",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("mori.io"), name)
    raise AttributeError(f"module 'mori.cpp' has no attribute {name!r}")
