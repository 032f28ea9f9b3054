"""The C functions under their own names, one module per library.

A function here takes and returns plain Python values: addresses are integers, byte strings are
`bytes`, options and reports are keyword arguments and cffi structs. It fills in lengths and
struct sizes, and turns a failing status into an exception, in `check`. No other policy: whoever
wants defaults, ownership or arrays reads mori/shmem and mori/ops. cffi gives up the interpreter
lock for the length of each call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from mori._ffi import constant, ffi
from mori.errors import InvalidError, error_for

CData = Any  # what cffi hands out: a handle, a struct, a pointer
_OK = constant("MORI_OK")
_AGAIN = constant("MORI_E_AGAIN")
_ADDRESS_LIMIT = 1 << 64
_NUMBER_LIMITS = {
    "int32_t": (-(1 << 31), (1 << 31) - 1),
    "uint32_t": (0, (1 << 32) - 1),
    "uint64_t": (0, (1 << 64) - 1),
}


class _ErrorRecord(threading.local):
    """One error record per thread, so that no call has to allocate one."""

    def __init__(self) -> None:
        self.pointer = new("mori_error")


def new(name: str) -> CData:
    """A zeroed struct whose first field, struct_size, is set."""
    struct = ffi.new(f"{name} *")
    struct.struct_size = ffi.sizeof(name)
    return struct


_record = _ErrorRecord()


def error_record() -> CData:
    """This thread's record, to be passed last to a C function."""
    return _record.pointer


def check(status: int, status_name: Callable[[int], CData]) -> None:
    """Raises the exception of `status` with the text of this thread's error record."""
    if status == _OK:
        return
    record = _record.pointer
    name = ffi.string(status_name(status)).decode()
    if record.status == status:
        message = ffi.string(record.message).decode("utf-8", "replace")
        os_errno = record.os_errno
    else:
        message, os_errno = "", 0
    record.status = _OK
    raise error_for(status, name, message or name, os_errno)


def number(value: Any, name: str, kind: str = "uint64_t") -> int:
    """`value` as an integer that fits C's `kind`; InvalidError says value and limits if not."""
    low, high = _NUMBER_LIMITS[kind]
    try:
        result = value.__index__()
    except (AttributeError, TypeError):
        raise InvalidError(f"{name} is {value!r}, expected an integer") from None
    if not low <= result <= high:
        raise InvalidError(f"{name} is {result}, expected {low} .. {high}")
    return int(result)


def pointer(address: Any, name: str) -> CData:
    """An address as a C pointer; 0 is NULL."""
    return ffi.cast("void *", number(address, name))


def memory(address: int, size_bytes: int, keep: object) -> CData:
    """A writable buffer over foreign memory that holds `keep` as long as anything views it."""

    def release(_pointer: CData, _keep: object = keep) -> None:
        """Only carries the reference; cffi drops it with the last view of the buffer."""

    return ffi.buffer(ffi.gc(ffi.cast("char *", address), release), size_bytes)


_BYTES = ffi.typeof("char[]")


def buffer_pointer(exporter: Any) -> CData:
    """Start of an object that exports a buffer; keep it while the memory is used."""
    return ffi.from_buffer(_BYTES, exporter)


def words_of(struct: CData) -> CData:
    """A struct as 8-byte words: an address is stored without making a pointer object. Keep the
    struct as long as the words."""
    return ffi.cast("uint64_t *", struct)


def offset_of(name: str, field: str) -> int:
    """Where a field begins in a struct, in bytes."""
    return int(ffi.offsetof(name, field))


def word_of(name: str, field: str) -> int:
    """Number of the word that is this field."""
    return offset_of(name, field) // 8


def bytes_of(struct: CData) -> CData:
    """A struct's bytes, to be sliced; it keeps the struct."""
    return ffi.buffer(struct)


def address_of(cdata: CData) -> int:
    """A C pointer as an integer; NULL is 0."""
    return int(ffi.cast("uintptr_t", cdata))


def text(array: CData) -> str:
    """A terminated char array of a report."""
    return ffi.string(array).decode("utf-8", "replace")


def fill(struct: CData, name: str, fields: dict[str, Any]) -> CData:
    """Stores keyword arguments in a struct after checking that each fits its field."""
    for field, description in ffi.typeof(name).fields:
        if field not in fields:
            continue
        kind = description.type.cname
        value = fields.pop(field)
        if kind in _NUMBER_LIMITS:
            setattr(struct, field, number(value, field, kind))
        else:
            setattr(struct, field, ffi.cast(description.type, number(value, field)))
    if fields:
        raise TypeError(f"{name} has no field {', '.join(map(repr, fields))}")
    return struct


def next_log_record(function: Callable[..., int], status_name: Callable[[int], CData]) -> CData:
    """The oldest record of a library's log queue; None when the queue is empty."""
    record = new("mori_log_record")
    status = function(record, error_record())
    if status == _AGAIN:
        return None
    check(status, status_name)
    return record
