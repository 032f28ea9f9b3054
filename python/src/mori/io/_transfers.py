"""Submitting transfers to a session of the library: the one path of sessions and engines.

A thread fills the same structs again for each call, so that a submission makes nothing but its
status. Range errors come back as a status that has failed already; what is no number, lists of
different lengths, and dead engines or sessions raise.
"""

from __future__ import annotations

import os
import threading
from typing import Any, NoReturn

from mori._enums import MemoryLocationType
from mori._ffi import constant, ffi
from mori._raw import CData, new, number
from mori._raw import io as raw
from mori._values import timeout_ns, value_of
from mori.errors import InvalidError, MoriError, NotFoundError, StateError
from mori.io._pieces import NAMES, RangeError, negative_in, words
from mori.io._status import TransferStatus, refused, started

READ, WRITE = constant("MORI_IO_READ"), constant("MORI_IO_WRITE")
PRIORITIES = {n: constant(f"MORI_IO_PRIORITY_{n.upper()}") for n in ("normal", "latency", "bulk")}
_METADATA_BYTES = 1024
_WORD = ffi.typeof("uint64_t[1]")


class _ThisThread(threading.local):
    """The structs of each thread."""

    def __init__(self) -> None:
        self.request = new("mori_io_request")
        self.out = ffi.new("mori_io_transfer **")
        self.piece = ffi.new(_WORD), ffi.new(_WORD), ffi.new(_WORD)
        self.is_plain = True


_this_thread = _ThisThread()


class Channel:
    """A session of the library. It ends with its last reference; its transfers go on."""

    __slots__ = ("__weakref__", "handle", "on_gpu", "process")

    def __init__(self, handle: CData, location: MemoryLocationType) -> None:
        self.handle, self.on_gpu = handle, location is MemoryLocationType.GPU
        self.process = os.getpid()

    def __del__(self, _destroy: Any = raw.mori_io_session_destroy, _pid: Any = os.getpid) -> None:
        if _pid() == self.process:
            _destroy(self.handle)


def one(
    engine: Any,
    channel: Channel,
    operation: int,
    piece: tuple[Any, Any, Any],
    uid: int | None,
    how: dict[str, Any],
) -> TransferStatus:
    """Submits one piece: local offset, remote offset, size."""
    local, remote, size = arrays = _this_thread.piece
    try:
        local[0], remote[0], size[0] = [value.__index__() for value in piece]
    except (AttributeError, TypeError, OverflowError):
        return _not_words(piece)
    return _submit(engine, channel, operation, (1, *arrays), uid, how)


def _not_words(piece: tuple[Any, Any, Any]) -> TransferStatus:
    """What is wrong with a piece whose numbers do not fit."""
    for name, value in zip(("local_offset", "remote_offset", "size"), piece, strict=True):
        try:
            number(value, name)
        except InvalidError as error:
            if hasattr(value, "__index__"):
                return refused(error)
            raise
    raise AssertionError(piece)


def batch(
    engine: Any,
    channel: Channel,
    operation: int,
    lists: tuple[Any, Any, Any],
    uid: int | None,
    how: dict[str, Any],
) -> TransferStatus:
    """Submits many pieces as one transfer: local offsets, remote offsets, sizes."""
    try:
        local = words(lists[0], "local_offsets")
        remote = words(lists[1], "remote_offsets")
        sizes = words(lists[2], "sizes")
    except RangeError as error:
        return refused(error)
    count = len(sizes)
    if len(local) != count or len(remote) != count:
        _lengths_differ(local, remote, sizes)
    status = _submit(engine, channel, operation, (count, local, remote, sizes), uid, how)
    if status._error and (better := negative_in(*lists)):
        status.SetMessage(better)
    return status


def _lengths_differ(*arrays: CData) -> NoReturn:
    lengths = ", ".join(f"{name} {len(array)}" for name, array in zip(NAMES, arrays, strict=True))
    raise InvalidError(f"lengths differ: {lengths}")


def _submit(
    engine: Any,
    channel: Channel,
    operation: int,
    pieces: tuple[Any, ...],
    uid: int | None,
    how: dict[str, Any],
) -> TransferStatus:
    this = _this_thread
    request = this.request
    if uid is None:
        uid = engine.allocate_transfer_uid()
    try:
        request.uid = uid
    except (TypeError, OverflowError):
        request.uid = number(uid, "transfer_uid")
    request.operation = operation
    (
        request.piece_count,
        request.in_local_offsets,
        request.in_remote_offsets,
        request.in_sizes_bytes,
    ) = pieces
    tag, kept = 0, None
    if how or not this.is_plain:
        tag, kept = _set_how(this, request, engine, **how)
    try:
        raw.mori_io_submit(channel.handle, request, this.out)
    except (StateError, NotFoundError):
        raise
    except MoriError as error:
        return refused(error)
    del kept
    status = started(this.out[0], engine, channel.on_gpu)
    if tag:
        engine.events.expect(tag, status, how.get("tag"))
    return status


def _set_how(
    this: _ThisThread,
    request: CData,
    engine: Any,
    *,
    priority: str | int | None = None,
    timeout_s: float | None = None,
    metadata: Any = b"",
    notify: bool = True,
    completion: bool = False,
    tag: Any = None,
) -> tuple[int, Any]:
    """Sets what most calls leave at its default. Returns the tag of a wanted completion, and what
    must live until the submission."""
    del tag  # looked up by the caller
    data = _metadata(metadata)
    wanted = 0 if priority is None else value_of(priority, PRIORITIES, "priority")
    limit = timeout_ns(timeout_s, "timeout_s")
    kept = ffi.from_buffer(data) if data else ffi.NULL
    number_of_tag = engine.events.new_tag() if completion else 0
    request.priority, request.timeout_ns = wanted, limit
    request.in_metadata, request.metadata_bytes = kept, len(data)
    request.disable_notification = int(not notify)
    request.tag, request.enqueue_completion = number_of_tag, int(bool(completion))
    this.is_plain = not (wanted or limit or data or not notify or completion)
    return number_of_tag, kept


def _metadata(value: Any) -> bytes:
    try:
        data = value if isinstance(value, bytes) else bytes(memoryview(value))
    except TypeError:
        raise InvalidError(
            f"metadata is a {type(value).__name__}, expected a bytes-like object"
        ) from None
    if len(data) > _METADATA_BYTES:
        raise InvalidError(f"metadata has {len(data)} bytes, at most {_METADATA_BYTES} are allowed")
    return data
