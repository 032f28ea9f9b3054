"""One-sided transfers between registered memory of two processes, made for moving KV caches.

The names are MORI's, what is added stands in the docstrings. Importing this module loads
libmori-io; torch is imported by nobody. On either side:

    from mori.io import BackendType, EngineDesc, IOEngine, IOEngineConfig, MemoryDesc

    engine = IOEngine("prefill-0", IOEngineConfig(host="10.0.0.1"))
    engine.create_backend(BackendType.XGMI)                # within the node
    engine.create_backend(BackendType.TCP)
    memory = engine.register_torch_tensor(kv_cache)        # a tensor or numpy array

and after exchanging `engine.get_engine_desc().pack()` and `memory.pack()`:

    engine.register_remote_engine(EngineDesc.unpack(peer_bytes))
    session = engine.create_session(memory, MemoryDesc.unpack(peer_memory_bytes))
    uid = engine.allocate_transfer_uid()
    status = session.batch_write(local_offsets, remote_offsets, sizes, uid)
    status.Wait()
    assert status.Succeeded(), status.Message()
"""

from __future__ import annotations

from mori._enums import BackendType, MemoryLocationType, PollCqMode, StatusCode
from mori._log import LogRecord, drained, level_of
from mori._raw import io as _raw
from mori.io._config import (
    BackendConfig,
    FabricBackendConfig,
    IOEngineConfig,
    RdmaBackendConfig,
    TcpBackendConfig,
    XgmiBackendConfig,
)
from mori.io._descriptors import EngineDesc, MemoryDesc
from mori.io._engine import IOEngine, metrics_text
from mori.io._errors import InvalidSetupError
from mori.io._events import Completion, Completions, Inbound
from mori.io._fabric import (
    fabric_alloc,
    fabric_free,
    fabric_mem_pool,
    fabric_torch_allocator,
    make_fabric_mem_pool,
    use_fabric_torch_allocator,
)
from mori.io._session import IOEngineSession
from mori.io._stats import Stats
from mori.io._status import TransferInfo, TransferStatus, wait_all

__all__ = [
    "BackendConfig",
    "BackendType",
    "Completion",
    "Completions",
    "EngineDesc",
    "FabricBackendConfig",
    "IOEngine",
    "IOEngineConfig",
    "IOEngineSession",
    "Inbound",
    "InvalidSetupError",
    "LogRecord",
    "MemoryDesc",
    "MemoryLocationType",
    "PollCqMode",
    "RdmaBackendConfig",
    "Stats",
    "StatusCode",
    "TcpBackendConfig",
    "TransferInfo",
    "TransferStatus",
    "XgmiBackendConfig",
    "drain_log",
    "fabric_alloc",
    "fabric_free",
    "fabric_mem_pool",
    "fabric_torch_allocator",
    "make_fabric_mem_pool",
    "metrics_text",
    "set_log_level",
    "use_fabric_torch_allocator",
    "wait_all",
]


def set_log_level(level: str | int) -> None:
    """What is logged: "off", "error", "warn" (the default), "info", "debug", "trace"."""
    _raw.mori_io_log_set_level(level_of(level))


def drain_log() -> list[LogRecord]:
    """Takes what the library has logged since the last call, at most its 1024 latest records."""
    return drained(_raw.mori_io_log_next)
