"""IOEngine: memory of this process that peers may read and write, and transfers with theirs.

Lifetime. An engine keeps what is registered with it alive, sessions and statuses in flight keep
their engine. It ends with close(), at the end of a `with` block, with its last reference, or when
the interpreter exits: transfers in flight then fail, and later calls raise StateError.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from mori._enums import BackendType, MemoryLocationType, StatusCode
from mori._ffi import constant
from mori._raw import CData, number
from mori._raw import io as raw
from mori._values import value_of
from mori.errors import InvalidError, MoriError, NotFoundError, StateError
from mori.io._allocations import Allocations
from mori.io._config import BackendConfig, IOEngineConfig, backend_of, backend_options
from mori.io._descriptors import EngineDesc, MemoryDesc, refuse_other
from mori.io._events import Completions, Events, Inbound
from mori.io._memory import describe
from mori.io._session import IOEngineSession
from mori.io._stats import Stats, merged_metrics
from mori.io._status import TransferStatus, ended, refused, wait_all
from mori.io._transfers import PRIORITIES, READ, WRITE, Channel, batch, one

_ACCESS = {
    "read": constant("MORI_IO_ACCESS_READ"),
    "write": constant("MORI_IO_ACCESS_WRITE"),
    "read_write": constant("MORI_IO_ACCESS_READ") | constant("MORI_IO_ACCESS_WRITE"),
}
_CALLER = constant("MORI_IO_PROGRESS_CALLER")
_CHANNELS = 65536  # sessions that an engine keeps for its own read and write calls

_engines: weakref.WeakSet[IOEngine] = weakref.WeakSet()
_engines_lock = threading.Lock()


def _renew_lock() -> None:
    """In a forked child, where a thread that held the lock does not exist."""
    global _engines_lock
    _engines_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def living_engines() -> list[IOEngine]:
    """The engines of this process that are not closed."""
    with _engines_lock:
        known = list(_engines)
    return [e for e in known if not e.closed and e.process == os.getpid()]


def _close_all() -> None:
    for engine in living_engines():
        engine.close()


# Hooks run in reverse order; weakref's own, which ends all finalizers, registers itself with the
# first finalizer of the process. This one has to come before it.
weakref.finalize(_close_all, _renew_lock).detach()
atexit.register(_close_all)


def _end(
    handle: CData, process: int, events: Events, allocations: Allocations, kept: dict[int, Any]
) -> None:
    """Ends an engine, then lets go of what was registered with it."""
    if os.getpid() == process:
        events.close()
        raw.mori_io_destroy(handle)
        allocations.end()
    kept.clear()


class IOEngine:
    """An engine: a name unique among its peers, a listener, backends, registered memory.

    Make one on either side, create backends, register memory, exchange the packed descriptors by
    any means, register each other, then read and write. All calls may come from any thread.

    The read and write calls take the same further arguments as IOEngineSession's; each pair of
    regions gets a session of its own in the engine.
    """

    def __init__(self, key: str, config: IOEngineConfig | None = None) -> None:
        self._handle: CData | None = None
        if not isinstance(key, str):
            raise InvalidError(f"key is a {type(key).__name__}, expected a str")
        config = IOEngineConfig() if config is None else config
        if not isinstance(config, IOEngineConfig):
            raise InvalidError(f"config is a {type(config).__name__}, expected an IOEngineConfig")
        options = config.options()
        handle = raw.mori_io_create(key, str(config.host), **options)
        self._handle, self.process, self._key = handle, os.getpid(), key
        caller_driven = options["progress"] == _CALLER
        self.drive: Callable[[], None] | None = self._drive if caller_driven else None
        try:
            self.events = Events(
                handle,
                (lambda limit: raw.mori_io_progress(handle, limit)) if caller_driven else None,
            )
        except BaseException:
            raw.mori_io_destroy(handle)
            raise
        # What is registered, by id: the memory's owner, or None where the caller keeps it.
        self._kept: dict[int, Any] = {}
        self._allocations = Allocations(handle)
        self._channels: dict[tuple[bytes, bytes], Channel] = {}
        self._lock = threading.Lock()
        self._closing = weakref.finalize(
            self, _end, handle, self.process, self.events, self._allocations, self._kept
        )
        self._closing.atexit = False
        with _engines_lock:
            _engines.add(self)

    # Lifetime

    def close(self) -> None:
        """Ends the engine; transfers in flight fail with ERR_BAD_STATE. Again: does nothing.

        Arrays from alloc() stay safe to touch.
        """
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None:
            self._channels.clear()
            self._closing()

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._handle is None

    @property
    def key(self) -> str:
        """Its name."""
        return self._key

    def refuse_dead(self) -> None:
        """StateError after close or in a forked child."""
        self._live()

    def _live(self) -> CData:
        handle = self._handle
        if handle is None:
            raise StateError("this io engine was closed")
        if self.process != os.getpid():
            raise StateError(
                f"this io engine was made by process {self.process} before fork(); process "
                f"{os.getpid()} must make its own"
            )
        return handle

    def __enter__(self) -> IOEngine:
        self._live()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else f"{len(self._kept)} regions"
        return f"<mori.io.IOEngine: {self._key!r}, {state}>"

    # Backends and peers

    def get_engine_desc(self) -> EngineDesc:
        """What peers need to register this engine. It holds no secret."""
        return EngineDesc(raw.mori_io_desc(self._live()))

    def create_backend(self, type: BackendType, config: BackendConfig | None = None) -> None:
        """Makes a backend, before or after memory and peers are registered.

        A second one of a kind is ignored with a warning. Raises UnavailableError (no device, with
        the reason), UnsupportedError (FABRIC), InvalidSetupError (the configuration).
        """
        kind = backend_of(type)
        raw.mori_io_backend_create(self._live(), int(kind), **backend_options(kind, config))

    def remove_backend(self, type: BackendType) -> None:
        """Takes it out; its transfers go on by another one or fail. NotFoundError if not there."""
        raw.mori_io_backend_remove(self._live(), int(backend_of(type)))

    def backend_stats(self, type: BackendType) -> Stats:
        """Counters of a backend; `reason` says why it is or is not there."""
        return Stats.of_report(raw.mori_io_backend_stats(self._live(), int(backend_of(type))))

    def register_remote_engine(self, engine_desc: EngineDesc) -> None:
        """Makes a peer known. One with the same key as an earlier one replaces it."""
        refuse_other(engine_desc, EngineDesc, "engine_desc")
        raw.mori_io_remote_register(self._live(), engine_desc.pack())

    def deregister_remote_engine(self, engine_desc: EngineDesc | str) -> None:
        """Forgets a peer, by its descriptor or key; transfers with it fail."""
        if not isinstance(engine_desc, str):
            refuse_other(engine_desc, EngineDesc, "engine_desc")
        key = engine_desc if isinstance(engine_desc, str) else engine_desc.key
        raw.mori_io_remote_deregister(self._live(), key)
        self._drop_channels(lambda _local, remote: MemoryDesc(remote).engine_key == key)

    # Memory

    def register_memory(
        self,
        ptr: int,
        size: int,
        device_id: int = -1,
        loc: MemoryLocationType = MemoryLocationType.CPU,
        *,
        access: str | int = "read_write",
    ) -> MemoryDesc:
        """Registers memory that the caller keeps valid until it is deregistered.

        ptr, size   address and bytes
        device_id   of the GPU; -1: host memory
        loc         where it is; Unknown: the GPU driver is asked, where there is one
        access      what peers may do: "read", "write", "read_write"
        """
        return self._register(ptr, size, device_id, loc, access, None)

    def register_torch_tensor(self, tensor: Any, *, access: str | int = "read_write") -> MemoryDesc:
        """Registers the memory of a tensor, a numpy array, an array that speaks DLPack or
        __cuda_array_interface__, or a writable buffer; the engine keeps it until deregistered.

        InvalidSetupError, which is a RuntimeError, unless contiguous and writable.
        """
        self._live()
        found = describe(tensor, "tensor")
        return self._register(
            found.address, found.size_bytes, found.device, found.location, access, found.keep
        )

    def _register(
        self, address: int, size: int, device: int, location: Any, access: str | int, keep: Any
    ) -> MemoryDesc:
        handle = self._live()
        try:
            location = MemoryLocationType(location)
        except ValueError:
            raise InvalidError(f"loc is {location!r}, expected a MemoryLocationType") from None
        region = raw.mori_io_memory_register(
            handle,
            address,
            size,
            location=int(location),
            device=device,
            access=value_of(access, _ACCESS, "access"),
        )
        # Our own allocations live until they are deregistered: see mori/io/_allocations.py.
        self._kept[region] = None if self._allocations.hold(address) else keep
        return MemoryDesc(raw.mori_io_memory_desc(handle, region))

    def deregister_memory(self, mem_desc: MemoryDesc) -> None:
        """Revokes it: when this returns, peers no longer touch the memory, and this engine's
        transfers with it have failed. NotFoundError if it is not registered. A timeout error names
        a peer of this node that has attached the memory and did not answer for 2 s: it is revoked,
        but that peer may still touch it, so this engine keeps it."""
        handle = self._live()
        refuse_other(mem_desc, MemoryDesc, "mem_desc")
        self._own(mem_desc, "mem_desc")
        raw.mori_io_memory_deregister(handle, mem_desc.id)
        self._kept.pop(mem_desc.id, None)
        packed = mem_desc.pack()
        self._drop_channels(lambda local, _remote: local == packed)
        self._allocations.free_left()

    def alloc(self, size: int) -> np.ndarray:
        """Host memory as a uint8 array, zeroed, that engines of this node can map: the fastest
        between processes. Register it like any other. It is freed with its last view; until then
        it keeps the engine."""
        self._live()
        return self._allocations.array(self, size)

    def _own(self, desc: MemoryDesc, name: str) -> None:
        if desc.engine_key != self._key:
            raise NotFoundError(
                f"{name} is memory of engine {desc.engine_key!r}, this is {self._key!r}"
            )
        if desc.id not in self._kept:
            raise NotFoundError(f"{name} is region {desc.id}, which is not registered here")

    # Transfers

    def allocate_transfer_uid(self) -> int:
        """A uid that this process has not used."""
        return raw.mori_io_allocate_uid(self._live())

    def create_session(
        self,
        local_mem: MemoryDesc,
        remote_mem: MemoryDesc,
        *,
        backend: BackendType | None = None,
        priority: str | int = "normal",
        required: bool = False,
    ) -> IOEngineSession | None:
        """Joins a local and a remote region. None when no backend reaches from one to the other;
        `required` raises StateError, which has the reasons.

        backend   pins one; None: the best that reaches, and the next when it fails
        priority  of its transfers: "normal", "latency", "bulk"

        Does not wait for the peer. NotFoundError for memory or an engine that is not registered.
        """
        pinned = BackendType.Unknown if backend is None else backend_of(backend)
        wanted = value_of(priority, PRIORITIES, "priority")
        self._live()
        try:
            channel = self._new_channel(local_mem, remote_mem, int(pinned), wanted)
        except StateError:
            self._live()
            if required:
                raise
            return None
        return IOEngineSession(self, channel)

    def _new_channel(
        self, local_mem: MemoryDesc, remote_mem: MemoryDesc, backend: int, priority: int
    ) -> Channel:
        handle = self._live()
        refuse_other(local_mem, MemoryDesc, "local_mem")
        refuse_other(remote_mem, MemoryDesc, "remote_mem")
        self._own(local_mem, "local_mem")
        session = raw.mori_io_session_create(
            handle, local_mem.id, remote_mem.pack(), backend=backend, priority=priority
        )
        return Channel(session, local_mem.loc)

    def _channel(self, local_mem: Any, remote_mem: Any) -> Channel | TransferStatus:
        """The engine's own session between two regions; a failed status where there is none."""
        self._live()
        try:
            pair = local_mem._packed, remote_mem._packed
            found = self._channels.get(pair)
        except AttributeError:
            found = None
        if found is not None:
            return found
        try:
            made = self._new_channel(local_mem, remote_mem, 0, 0)
        except InvalidError:
            raise
        except MoriError as error:
            self._live()
            if isinstance(error, NotFoundError):
                self._own(local_mem, "local_mem")  # the caller's own memory: raises
            return refused(error)
        with self._lock:
            while len(self._channels) >= _CHANNELS:
                del self._channels[next(iter(self._channels))]
            return self._channels.setdefault(pair, made)

    def _drop_channels(self, is_gone: Callable[[bytes, bytes], bool]) -> None:
        with self._lock:
            gone = [pair for pair in self._channels if is_gone(*pair)]
            dropped = [self._channels.pop(pair) for pair in gone]
        del dropped

    def read(
        self,
        local_mem: MemoryDesc,
        local_offset: int,
        remote_mem: MemoryDesc,
        remote_offset: int,
        size: int,
        transfer_uid: int | None = None,
        **how: Any,
    ) -> TransferStatus:
        """Copies `size` bytes from the peer's region to the local one."""
        piece = local_offset, remote_offset, size
        return self._one(READ, local_mem, remote_mem, piece, transfer_uid, how)

    def write(
        self,
        local_mem: MemoryDesc,
        local_offset: int,
        remote_mem: MemoryDesc,
        remote_offset: int,
        size: int,
        transfer_uid: int | None = None,
        **how: Any,
    ) -> TransferStatus:
        """Copies `size` bytes from the local region to the peer's."""
        piece = local_offset, remote_offset, size
        return self._one(WRITE, local_mem, remote_mem, piece, transfer_uid, how)

    def _one(
        self,
        operation: int,
        local_mem: Any,
        remote_mem: Any,
        piece: tuple[Any, Any, Any],
        uid: int | None,
        how: dict[str, Any],
    ) -> TransferStatus:
        channel = self._channel(local_mem, remote_mem)
        if isinstance(channel, TransferStatus):
            return channel
        return one(self, channel, operation, piece, uid, how)

    def batch_read(
        self,
        local_mem: Any,
        local_offsets: Any,
        remote_mem: Any,
        remote_offsets: Any,
        sizes: Any,
        transfer_uid: Any = None,
        **how: Any,
    ) -> Any:
        """Many pieces as one transfer, and one status. With a list of regions on either side, and
        lists of what belongs to each pair: one transfer and status for each pair."""
        lists = local_offsets, remote_offsets, sizes
        return self._batches(READ, local_mem, remote_mem, lists, transfer_uid, how)

    def batch_write(
        self,
        local_mem: Any,
        local_offsets: Any,
        remote_mem: Any,
        remote_offsets: Any,
        sizes: Any,
        transfer_uid: Any = None,
        **how: Any,
    ) -> Any:
        """As batch_read, from the local regions to the peers'."""
        lists = local_offsets, remote_offsets, sizes
        return self._batches(WRITE, local_mem, remote_mem, lists, transfer_uid, how)

    def _batches(
        self, operation: int, local: Any, remote: Any, lists: Any, uids: Any, how: dict[str, Any]
    ) -> Any:
        if isinstance(local, MemoryDesc):
            return self._batch(operation, local, remote, lists, uids, how)
        columns = {"local_mem": local, "remote_mem": remote}
        columns |= dict(zip(("local_offsets", "remote_offsets", "sizes"), lists, strict=True))
        if uids is not None:
            columns["transfer_uids"] = uids
        for name, column in columns.items():
            if not isinstance(column, Sequence | np.ndarray):
                raise InvalidError(f"{name} is a {type(column).__name__}, expected a list")
        if len({len(column) for column in columns.values()}) > 1:
            lengths = ", ".join(f"{name} {len(column)}" for name, column in columns.items())
            raise InvalidError(f"lengths differ: {lengths}")
        for name in ("local_mem", "remote_mem"):
            for index, desc in enumerate(columns[name]):
                refuse_other(desc, MemoryDesc, f"{name}[{index}]")
        named = [None] * len(local) if uids is None else [number(u, "transfer_uid") for u in uids]
        rows = zip(local, remote, zip(*lists, strict=True), named, strict=True)
        return [self._batch(operation, *row, how) for row in rows]

    def _batch(
        self, operation: int, local: Any, remote: Any, lists: Any, uid: Any, how: dict[str, Any]
    ) -> TransferStatus:
        channel = self._channel(local, remote)
        if isinstance(channel, TransferStatus):
            return channel
        return batch(self, channel, operation, lists, uid, how)

    def wait_all(self, statuses: Iterable[TransferStatus], timeout_ms: float = -1) -> StatusCode:
        """See mori.io.wait_all."""
        return wait_all(statuses, timeout_ms)

    # Events

    def pop_inbound_transfer_status(
        self, remote_key: str, transfer_uid: int
    ) -> TransferStatus | None:
        """A status that has succeeded, once that peer's transfer has been delivered; then and
        before it None. Each is popped once."""
        return (
            None
            if self.pop_inbound(remote_key, transfer_uid) is None
            else ended(StatusCode.SUCCESS)
        )

    def pop_inbound(
        self, remote_key: str | None = None, transfer_uid: int | None = None
    ) -> Inbound | None:
        """The notification of that peer's transfer, or the oldest of any; None when there is none.
        Each is popped once."""
        self._live()
        self._one_or_any(remote_key, transfer_uid)
        if self.drive is not None:
            self.drive()
        return self.events.take_inbound(remote_key, transfer_uid)

    def wait_inbound(
        self,
        remote_key: str | None = None,
        transfer_uid: int | None = None,
        timeout_s: float | None = None,
    ) -> Inbound | None:
        """The same, but waits for it; None when the time was up."""
        self._live()
        self._one_or_any(remote_key, transfer_uid)
        return self.events.wait(
            lambda: self.events.take_inbound(remote_key, transfer_uid), timeout_s
        )

    async def inbound(
        self, remote_key: str | None = None, transfer_uid: int | None = None
    ) -> Inbound:
        """The same in asyncio."""
        self._live()
        self._one_or_any(remote_key, transfer_uid)
        return await self.events.wait_async(
            lambda: self.events.take_inbound(remote_key, transfer_uid)
        )

    @staticmethod
    def _one_or_any(remote_key: str | None, transfer_uid: int | None) -> None:
        if (remote_key is None) != (transfer_uid is None):
            raise InvalidError("remote_key and transfer_uid must both be given, or neither")
        if remote_key is not None and not isinstance(remote_key, str):
            raise InvalidError(f"remote_key is a {type(remote_key).__name__}, expected a str")
        if transfer_uid is not None:
            number(transfer_uid, "transfer_uid")

    def completions(self) -> Completions:
        """The queue of transfers that were submitted with `completion=True`."""
        self._live()
        return Completions(self.events, self)

    def progress(self, timeout_s: float = 0.0) -> None:
        """Makes progress until something was done, at most so long. Needed with
        `progress="caller"` only; waits do it themselves."""
        raw.mori_io_progress(self._live(), max(0, round(timeout_s * 1e9)))

    def _drive(self) -> None:
        handle = self._handle
        if handle is not None:
            with contextlib.suppress(StateError):
                raw.mori_io_progress(handle, 0)

    def metrics_text(self) -> str:
        """Its counters as Prometheus text."""
        return raw.mori_io_metrics(self._live())


def metrics_text() -> str:
    """Counters of all engines of this process as Prometheus text."""
    texts = []
    for engine in living_engines():
        with contextlib.suppress(StateError):  # closed meanwhile
            texts.append(engine.metrics_text())
    return merged_metrics(texts)
