"""The C functions of mori/ep.h under their own names; see mori/_raw/__init__.py.

The argument and result structs of dispatch and combine are made once by the caller (`new`) and
passed again and again, so that a call allocates nothing.
"""

from __future__ import annotations

from typing import Any

from mori._ffi import ffi, load
from mori._raw import CData, address_of, check, error_record, fill, new, next_log_record, number

_lib = load("ep").lib
_status_name = _lib.mori_ep_status_name


def _check(status: int) -> None:
    if status:
        check(status, _status_name)


def mori_ep_version() -> int:
    return int(_lib.mori_ep_version())


def mori_ep_abi_level() -> int:
    return int(_lib.mori_ep_abi_level())


def mori_ep_status_name(status: int) -> str:
    return ffi.string(_status_name(number(status, "status", "int32_t"))).decode()


def mori_ep_log_set_level(level: int) -> None:
    _check(_lib.mori_ep_log_set_level(number(level, "level", "int32_t"), error_record()))


def mori_ep_log_next() -> CData:
    """A mori_log_record, or None when the queue is empty."""
    return next_log_record(_lib.mori_ep_log_next, _status_name)


def mori_ep_memory_query(pe_count: int, **config: Any) -> CData:
    """`config` are the fields of mori_ep_config; returns a mori_ep_memory."""
    struct = fill(new("mori_ep_config"), "mori_ep_config", config)
    memory = new("mori_ep_memory")
    pe_count = number(pe_count, "pe_count", "int32_t")
    _check(_lib.mori_ep_memory_query(struct, pe_count, memory, error_record()))
    return memory


def mori_ep_create(shmem: CData, **config: Any) -> CData:
    """`config` are the fields of mori_ep_config."""
    struct = fill(new("mori_ep_config"), "mori_ep_config", config)
    out = ffi.new("mori_ep **")
    _check(_lib.mori_ep_create(shmem, struct, out, error_record()))
    return out[0]


def mori_ep_destroy(handle: CData) -> None:
    _lib.mori_ep_destroy(handle)


def mori_ep_dispatch(handle: CData, arguments: CData, result: CData) -> None:
    """Takes a mori_ep_dispatch_args and fills a mori_ep_dispatch_result."""
    _check(_lib.mori_ep_dispatch(handle, arguments, result, error_record()))


def mori_ep_combine(handle: CData, arguments: CData, result: CData) -> None:
    """Takes a mori_ep_combine_args and fills a mori_ep_combine_result."""
    _check(_lib.mori_ep_combine(handle, arguments, result, error_record()))


def mori_ep_combine_buffer(handle: CData) -> tuple[int, int]:
    """Address and size in bytes."""
    buffer, size = ffi.new("void **"), ffi.new("uint64_t *")
    _check(_lib.mori_ep_combine_buffer(handle, buffer, size, error_record()))
    return address_of(buffer[0]), int(size[0])


def mori_ep_src_token_positions(handle: CData, address: int, capacity_count: int) -> int:
    """Writes to int32[capacity_count] at `address`; returns the receive count."""
    count = ffi.new("uint64_t *")
    target = ffi.cast("int32_t *", number(address, "address"))
    capacity_count = number(capacity_count, "capacity_count")
    _check(_lib.mori_ep_src_token_positions(handle, target, capacity_count, count, error_record()))
    return int(count[0])


def mori_ep_reset(handle: CData) -> None:
    _check(_lib.mori_ep_reset(handle, error_record()))


def mori_ep_check(handle: CData) -> None:
    _check(_lib.mori_ep_check(handle, error_record()))
