"""What one engine tells another about itself and about its memory: bytes that may be sent, stored
and compared, and the facts in them.

The bytes are the library's, versioned; a newer or damaged one is refused by unpack().
"""

from __future__ import annotations

from typing import Any

from mori._enums import MemoryLocationType
from mori._raw import io as raw
from mori._raw import text
from mori.errors import InvalidError

# MORI's descriptors carry handles of this size; ours carry none: GPU memory is handed over on the
# authenticated connection.
_NO_HANDLE = bytes(64)


class EngineDesc:
    """An engine: key, node_id, hostname, host (addresses, by commas), port, pid, public_key."""

    __slots__ = (
        *("_packed", "host", "hostname", "key", "node_id", "pid", "port", "public_key"),
        "__weakref__",
    )

    def __init__(self, packed: bytes) -> None:
        self._fill(raw.mori_io_desc_inspect(packed), bytes(packed))

    def _fill(self, report: Any, packed: bytes) -> None:
        put = object.__setattr__
        for name in ("key", "node_id", "hostname", "host"):
            put(self, name, text(getattr(report, name)))
        put(self, "port", int(report.port))
        put(self, "pid", int(report.os_process_id))
        put(self, "public_key", bytes(report.public_key))
        put(self, "_packed", packed)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be set: a descriptor is fixed")

    def pack(self) -> bytes:
        """The bytes to send."""
        return self._packed

    @classmethod
    def unpack(cls, packed: bytes) -> EngineDesc:
        """From such bytes; ProtocolError when damaged, VersionError when newer."""
        return cls(packed)

    def __eq__(self, other: object) -> bool:
        return self._packed == other._packed if isinstance(other, EngineDesc) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._packed)

    def __reduce__(self) -> tuple[Any, ...]:
        return EngineDesc, (self._packed,)

    def __repr__(self) -> str:
        return (
            f"<mori.io.EngineDesc: {self.key!r} at {self.host}:{self.port}, process {self.pid} on "
            f"{self.hostname}>"
        )


class MemoryDesc:
    """Registered memory: engine_key, id, device_id (-1: host), device_bus_id, data (its address
    there), size in bytes, loc, numa_node (-1: unknown).

    Whoever has the bytes may use the memory: they carry a capability, which is not shown. An empty
    one, MemoryDesc(), stands for no memory. The fields of MORI's that name GPU handles are there,
    empty.
    """

    __slots__ = (
        *("_packed", "data", "device_bus_id", "device_id", "engine_key", "id", "loc"),
        *("numa_node", "size", "__weakref__"),
    )

    ipc_handle = _NO_HANDLE
    fabric_handle = _NO_HANDLE
    ipc_offset = vpod_id = vpod_ppod_id = fabric_offset = fabric_alloc_size = 0

    def __init__(self, packed: bytes = b"") -> None:
        put = object.__setattr__
        if not isinstance(packed, bytes | bytearray | memoryview):
            raise InvalidError(f"desc is a {type(packed).__name__}, expected a bytes-like object")
        put(self, "_packed", bytes(packed))
        if not self._packed:
            for name, value in _EMPTY.items():
                put(self, name, value)
            return
        report = raw.mori_io_memory_inspect(self._packed)
        put(self, "engine_key", text(report.engine_key))
        put(self, "id", int(report.id))
        put(self, "device_id", int(report.device))
        put(self, "device_bus_id", text(report.device_bus_id))
        put(self, "data", int(report.address))
        put(self, "size", int(report.size_bytes))
        put(self, "loc", MemoryLocationType(report.location))
        put(self, "numa_node", int(report.numa_node))

    __setattr__ = EngineDesc.__setattr__

    def pack(self) -> bytes:
        """The bytes to send. Whoever has them may use the memory."""
        return self._packed

    @classmethod
    def unpack(cls, packed: bytes) -> MemoryDesc:
        """From such bytes; ProtocolError when damaged, VersionError when newer."""
        if not packed:
            raise InvalidError("desc has 0 bytes, expected a packed MemoryDesc")
        return cls(packed)

    def __eq__(self, other: object) -> bool:
        return self._packed == other._packed if isinstance(other, MemoryDesc) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._packed)

    def __reduce__(self) -> tuple[Any, ...]:
        return MemoryDesc, (self._packed,)

    def __repr__(self) -> str:
        if not self._packed:
            return "<mori.io.MemoryDesc: empty>"
        where = "host" if self.loc is MemoryLocationType.CPU else f"GPU {self.device_id}"
        return (
            f"<mori.io.MemoryDesc: {self.size} bytes at {self.data:#x} in {where} memory, region "
            f"{self.id} of {self.engine_key!r}>"
        )


_EMPTY: dict[str, Any] = {
    "engine_key": "",
    "id": 0,
    "device_id": -1,
    "device_bus_id": "",
    "data": 0,
    "size": 0,
    "loc": MemoryLocationType.Unknown,
    "numa_node": -1,
}


def refuse_other(value: Any, kind: type, name: str) -> None:
    """InvalidError unless `value` is a descriptor of this kind."""
    if not isinstance(value, kind):
        raise InvalidError(f"{name} is a {type(value).__name__}, expected a {kind.__name__}")
    if not value.pack():
        raise InvalidError(f"{name} is empty, expected what register_memory or unpack gave")
