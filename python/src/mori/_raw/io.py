"""The C functions of mori/io.h under their own names; see mori/_raw/__init__.py.

What is called for each transfer takes structs that the caller makes once and fills again; the rest
takes keyword arguments. Descriptors are `bytes`.
"""

from __future__ import annotations

from typing import Any

from mori._ffi import constant, ffi, load
from mori._raw import (
    CData,
    address_of,
    check,
    error_record,
    fill,
    new,
    next_log_record,
    number,
    pointer,
)
from mori.errors import InvalidError

_lib = load("io").lib
_status_name = _lib.mori_io_status_name
_AGAIN = constant("MORI_E_AGAIN")
_TIMEOUT = constant("MORI_E_TIMEOUT")
FOREVER_NS = (1 << 64) - 1


def _check(status: int) -> None:
    if status:
        check(status, _status_name)


def _bytes(value: Any, name: str) -> bytes:
    """A bytes-like object as bytes; InvalidError for anything else."""
    if isinstance(value, bytes):
        return value
    try:
        # Not bytes() alone: it makes zeros of an integer.
        return bytes(memoryview(value))
    except TypeError:
        raise InvalidError(
            f"{name} is a {type(value).__name__}, expected a bytes-like object"
        ) from None


# Texts of counters grow between the call that asks for their size and the one that fills them.
_SPARE_BYTES = 256
_SIZED_TRIES = 8


def _sized(call: Any) -> bytes:
    """What a function gives that says its size when it is called without room."""
    size = ffi.new("uint64_t *")
    for left in reversed(range(_SIZED_TRIES)):
        _check(call(ffi.NULL, size, error_record()))
        size[0] += _SPARE_BYTES
        room = ffi.new("char[]", size[0])
        try:
            _check(call(room, size, error_record()))
        except InvalidError:
            if left == 0:
                raise
        else:
            return bytes(ffi.buffer(room, size[0]))
    raise AssertionError


def mori_io_version() -> int:
    return int(_lib.mori_io_version())


def mori_io_abi_level() -> int:
    return int(_lib.mori_io_abi_level())


def mori_io_status_name(status: int) -> str:
    """ "MORI_E_?" for an unknown one."""
    return ffi.string(_status_name(number(status, "status", "int32_t"))).decode()


def mori_io_log_set_level(level: int) -> None:
    _check(_lib.mori_io_log_set_level(number(level, "level", "int32_t"), error_record()))


def mori_io_log_next() -> CData:
    """A mori_log_record, or None when the queue is empty."""
    return next_log_record(_lib.mori_io_log_next, _status_name)


# Engines


def mori_io_create(key: str, host: str, **options: Any) -> CData:
    """`options` are the other fields of mori_io_options."""
    struct = fill(new("mori_io_options"), "mori_io_options", options)
    texts = [ffi.new("char[]", text.encode()) for text in (key, host)]
    struct.in_key = texts[0]
    if host:
        struct.in_host = texts[1]
    out = ffi.new("mori_io **")
    _check(_lib.mori_io_create(struct, out, error_record()))
    return out[0]


def mori_io_destroy(handle: CData) -> None:
    _lib.mori_io_destroy(handle)


def mori_io_desc(handle: CData) -> bytes:
    return _sized(lambda out, size, error: _lib.mori_io_desc(handle, out, size, error))


def mori_io_desc_inspect(desc: bytes) -> CData:
    """A mori_io_engine_report."""
    desc, report = _bytes(desc, "desc"), new("mori_io_engine_report")
    _check(_lib.mori_io_desc_inspect(desc, len(desc), report, error_record()))
    return report


def mori_io_backend_create(handle: CData, backend: int, **options: Any) -> None:
    """`options` are the fields of mori_io_backend_options."""
    struct = fill(new("mori_io_backend_options"), "mori_io_backend_options", options)
    backend = number(backend, "backend", "int32_t")
    _check(_lib.mori_io_backend_create(handle, backend, struct, error_record()))


def mori_io_backend_remove(handle: CData, backend: int) -> None:
    backend = number(backend, "backend", "int32_t")
    _check(_lib.mori_io_backend_remove(handle, backend, error_record()))


def mori_io_backend_stats(handle: CData, backend: int) -> CData:
    """A mori_io_stats."""
    stats = new("mori_io_stats")
    backend = number(backend, "backend", "int32_t")
    _check(_lib.mori_io_backend_stats(handle, backend, stats, error_record()))
    return stats


def mori_io_remote_register(handle: CData, desc: bytes) -> None:
    desc = _bytes(desc, "desc")
    _check(_lib.mori_io_remote_register(handle, desc, len(desc), error_record()))


def mori_io_remote_deregister(handle: CData, key: str) -> None:
    _check(_lib.mori_io_remote_deregister(handle, key.encode(), error_record()))


def mori_io_metrics(handle: CData) -> str:
    """Without the terminating zero."""
    text = _sized(lambda out, size, error: _lib.mori_io_metrics(handle, out, size, error))
    return text.rstrip(b"\0").decode("utf-8", "replace")


def mori_io_progress(handle: CData, timeout_ns: int) -> None:
    _check(_lib.mori_io_progress(handle, number(timeout_ns, "timeout_ns"), error_record()))


# Memory


def mori_io_memory_register(
    handle: CData, address: int, size_bytes: int, *, location: int, device: int, access: int
) -> int:
    """Returns the region's id."""
    out = ffi.new("uint32_t *")
    status = _lib.mori_io_memory_register(
        handle,
        pointer(address, "ptr"),
        number(size_bytes, "size"),
        number(location, "loc", "int32_t"),
        number(device, "device_id", "int32_t"),
        number(access, "access", "int32_t"),
        out,
        error_record(),
    )
    _check(status)
    return int(out[0])


def mori_io_memory_deregister(handle: CData, region: int) -> None:
    region = number(region, "id", "uint32_t")
    _check(_lib.mori_io_memory_deregister(handle, region, error_record()))


def mori_io_memory_desc(handle: CData, region: int) -> bytes:
    region = number(region, "id", "uint32_t")
    return _sized(
        lambda out, size, error: _lib.mori_io_memory_desc(handle, region, out, size, error)
    )


def mori_io_memory_inspect(desc: bytes) -> CData:
    """A mori_io_memory_report."""
    desc, report = _bytes(desc, "desc"), new("mori_io_memory_report")
    _check(_lib.mori_io_memory_inspect(desc, len(desc), report, error_record()))
    return report


def mori_io_alloc(handle: CData, size_bytes: int) -> int:
    out = ffi.new("void **")
    _check(_lib.mori_io_alloc(handle, number(size_bytes, "size"), out, error_record()))
    return address_of(out[0])


def mori_io_free(handle: CData, address: int) -> None:
    _check(_lib.mori_io_free(handle, pointer(address, "ptr"), error_record()))


# Sessions and transfers


def mori_io_session_create(handle: CData, local_id: int, remote: bytes, **options: Any) -> CData:
    """`options` are the fields of mori_io_session_options."""
    struct = fill(new("mori_io_session_options"), "mori_io_session_options", options)
    out = ffi.new("mori_io_session **")
    local_id, size = number(local_id, "id", "uint32_t"), len(remote)
    _check(_lib.mori_io_session_create(handle, local_id, remote, size, struct, out, error_record()))
    return out[0]


def mori_io_session_destroy(session: CData) -> None:
    _lib.mori_io_session_destroy(session)


def mori_io_session_stats(session: CData) -> CData:
    """A mori_io_stats."""
    stats = new("mori_io_stats")
    _check(_lib.mori_io_session_stats(session, stats, error_record()))
    return stats


def mori_io_allocate_uid(handle: CData) -> int:
    return int(_lib.mori_io_allocate_uid(handle))


def mori_io_submit(session: CData, request: CData, out: CData) -> None:
    """Takes a mori_io_request and a `mori_io_transfer **` to store to."""
    status = _lib.mori_io_submit(session, request, out, error_record())
    if status:
        check(status, _status_name)


def mori_io_transfer_info(transfer: CData, report: CData) -> None:
    """Fills a mori_io_transfer_report."""
    status = _lib.mori_io_transfer_info(transfer, report, error_record())
    if status:
        check(status, _status_name)


def mori_io_transfer_wait(transfers: CData, count: int, timeout_ns: int) -> bool:
    """Takes an array; False when the time was up. A transfer that failed is no error here: its
    state says so."""
    return _lib.mori_io_transfer_wait(transfers, count, timeout_ns, error_record()) != _TIMEOUT


def mori_io_transfer_cancel(transfer: CData) -> None:
    _check(_lib.mori_io_transfer_cancel(transfer, error_record()))


def mori_io_transfer_release(transfer: CData) -> None:
    _lib.mori_io_transfer_release(transfer)


# Events


def mori_io_event_fd(handle: CData) -> int:
    out = ffi.new("int32_t *")
    _check(_lib.mori_io_event_fd(handle, out, error_record()))
    return int(out[0])


def mori_io_completion_next(handle: CData, entries: CData, room: int) -> int:
    """Fills an array of mori_io_completion; returns how many."""
    count = ffi.new("uint64_t *")
    _check(_lib.mori_io_completion_next(handle, entries, room, count, error_record()))
    return int(count[0])


def mori_io_inbound_pop(handle: CData, peer: str, uid: int) -> CData:
    """A mori_io_inbound, or None when it is not there."""
    inbound = new("mori_io_inbound")
    uid = number(uid, "transfer_uid")
    return _taken(
        _lib.mori_io_inbound_pop(handle, peer.encode(), uid, inbound, error_record()), inbound
    )


def mori_io_inbound_next(handle: CData) -> CData:
    """A mori_io_inbound, or None when there is none."""
    inbound = new("mori_io_inbound")
    return _taken(_lib.mori_io_inbound_next(handle, inbound, error_record()), inbound)


def _taken(status: int, inbound: CData) -> CData:
    if status == _AGAIN:
        return None
    _check(status)
    return inbound
