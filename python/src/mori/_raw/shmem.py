"""The C functions of mori/shmem.h under their own names; see mori/_raw/__init__.py.

A handle is the `mori_shmem *` itself; the library checks that it is alive. Addresses are
integers. What each function does, blocks on and fails with stands in the header.
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

_lib = load("shmem").lib
_status_name = _lib.mori_shmem_status_name
UNIQUE_ID_BYTES = constant("MORI_SHMEM_UNIQUE_ID_BYTES")


def _check(status: int) -> None:
    if status:
        check(status, _status_name)


def mori_shmem_version() -> int:
    return int(_lib.mori_shmem_version())


def mori_shmem_abi_level() -> int:
    return int(_lib.mori_shmem_abi_level())


def mori_shmem_status_name(status: int) -> str:
    return ffi.string(_status_name(number(status, "status", "int32_t"))).decode()


def mori_shmem_log_set_level(level: int) -> None:
    _check(_lib.mori_shmem_log_set_level(number(level, "level", "int32_t"), error_record()))


def mori_shmem_log_next() -> CData:
    """A mori_log_record, or None when the queue is empty."""
    return next_log_record(_lib.mori_shmem_log_next, _status_name)


def mori_shmem_unique_id_create() -> bytes:
    out = ffi.new("mori_shmem_unique_id *")
    _check(_lib.mori_shmem_unique_id_create(out, error_record()))
    return bytes(ffi.buffer(out))


def mori_shmem_create(unique_id: bytes, **options: Any) -> CData:
    """`options` are the fields of mori_shmem_options."""
    try:
        # Not bytes() alone: it makes zeros of an integer.
        given = bytes(memoryview(unique_id))
    except TypeError:
        raise InvalidError(
            f"unique_id is a {type(unique_id).__name__}, expected a bytes-like object"
        ) from None
    if len(given) != UNIQUE_ID_BYTES:
        raise InvalidError(f"unique_id has {len(given)} bytes, expected {UNIQUE_ID_BYTES}")
    identity = ffi.new("mori_shmem_unique_id *")
    ffi.memmove(identity, given, UNIQUE_ID_BYTES)
    struct = fill(new("mori_shmem_options"), "mori_shmem_options", options)
    out = ffi.new("mori_shmem **")
    _check(_lib.mori_shmem_create(identity, struct, out, error_record()))
    return out[0]


def mori_shmem_destroy(handle: CData) -> None:
    _lib.mori_shmem_destroy(handle)


def mori_shmem_lease_create(handle: CData) -> CData:
    out = ffi.new("mori_shmem_lease **")
    _check(_lib.mori_shmem_lease_create(handle, out, error_record()))
    return out[0]


def mori_shmem_lease_destroy(lease: CData) -> None:
    _lib.mori_shmem_lease_destroy(lease)


def mori_shmem_my_pe(handle: CData) -> int:
    out = ffi.new("int32_t *")
    _check(_lib.mori_shmem_my_pe(handle, out, error_record()))
    return int(out[0])


def mori_shmem_pe_count(handle: CData) -> int:
    out = ffi.new("int32_t *")
    _check(_lib.mori_shmem_pe_count(handle, out, error_record()))
    return int(out[0])


def mori_shmem_info(handle: CData) -> CData:
    """A mori_shmem_report."""
    report = new("mori_shmem_report")
    _check(_lib.mori_shmem_info(handle, report, error_record()))
    return report


def mori_shmem_peer_info(handle: CData, pe: int) -> CData:
    """A mori_shmem_peer_report."""
    report = new("mori_shmem_peer_report")
    pe = number(pe, "pe", "int32_t")
    _check(_lib.mori_shmem_peer_info(handle, pe, report, error_record()))
    return report


def mori_shmem_check(handle: CData) -> None:
    _check(_lib.mori_shmem_check(handle, error_record()))


def mori_shmem_abort(handle: CData) -> None:
    _check(_lib.mori_shmem_abort(handle, error_record()))


def mori_shmem_malloc(handle: CData, size_bytes: int) -> int:
    out = ffi.new("void **")
    size_bytes = number(size_bytes, "size")
    _check(_lib.mori_shmem_malloc(handle, size_bytes, out, error_record()))
    return address_of(out[0])


def mori_shmem_malloc_align(handle: CData, alignment_bytes: int, size_bytes: int) -> int:
    out = ffi.new("void **")
    alignment_bytes = number(alignment_bytes, "alignment")
    size_bytes = number(size_bytes, "size")
    _check(_lib.mori_shmem_malloc_align(handle, alignment_bytes, size_bytes, out, error_record()))
    return address_of(out[0])


def mori_shmem_malloc_with_flags(handle: CData, size_bytes: int, flags: int) -> int:
    out = ffi.new("void **")
    size_bytes, flags = number(size_bytes, "size"), number(flags, "flags", "uint32_t")
    _check(_lib.mori_shmem_malloc_with_flags(handle, size_bytes, flags, out, error_record()))
    return address_of(out[0])


def mori_shmem_heap_stats(handle: CData) -> CData:
    """A mori_shmem_heap_report."""
    report = new("mori_shmem_heap_report")
    _check(_lib.mori_shmem_heap_stats(handle, report, error_record()))
    return report


def mori_shmem_free(handle: CData, address: int) -> None:
    _check(_lib.mori_shmem_free(handle, pointer(address, "ptr"), error_record()))


def mori_shmem_ptr_p2p(handle: CData, address: int, pe: int) -> int:
    out = ffi.new("void **")
    pe = number(pe, "pe", "int32_t")
    _check(_lib.mori_shmem_ptr_p2p(handle, pointer(address, "ptr"), pe, out, error_record()))
    return address_of(out[0])


def mori_shmem_buffer_register(handle: CData, address: int, size_bytes: int) -> None:
    size_bytes = number(size_bytes, "size")
    target = pointer(address, "ptr")
    _check(_lib.mori_shmem_buffer_register(handle, target, size_bytes, error_record()))


def mori_shmem_buffer_deregister(handle: CData, address: int, size_bytes: int) -> None:
    size_bytes = number(size_bytes, "size")
    target = pointer(address, "ptr")
    _check(_lib.mori_shmem_buffer_deregister(handle, target, size_bytes, error_record()))


def mori_shmem_barrier_all(handle: CData) -> None:
    _check(_lib.mori_shmem_barrier_all(handle, error_record()))


def mori_shmem_barrier_on_stream(handle: CData, stream: int) -> None:
    _check(_lib.mori_shmem_barrier_on_stream(handle, pointer(stream, "stream"), error_record()))


def mori_shmem_put(handle: CData, target: int, source: int, size_bytes: int, pe: int) -> None:
    size_bytes, pe = number(size_bytes, "size_bytes"), number(pe, "pe", "int32_t")
    to, start = pointer(target, "target"), pointer(source, "source")
    _check(_lib.mori_shmem_put(handle, to, start, size_bytes, pe, error_record()))


def mori_shmem_get(handle: CData, target: int, source: int, size_bytes: int, pe: int) -> None:
    size_bytes, pe = number(size_bytes, "size_bytes"), number(pe, "pe", "int32_t")
    to, start = pointer(target, "target"), pointer(source, "source")
    _check(_lib.mori_shmem_get(handle, to, start, size_bytes, pe, error_record()))


def mori_shmem_put_signal(handle: CData, **arguments: Any) -> None:
    """`arguments` are the fields of mori_shmem_put_signal_args."""
    struct = fill(new("mori_shmem_put_signal_args"), "mori_shmem_put_signal_args", arguments)
    _check(_lib.mori_shmem_put_signal(handle, struct, error_record()))


def mori_shmem_atomic(handle: CData, **arguments: Any) -> int:
    """`arguments` are the fields of mori_shmem_atomic_args; returns the value before."""
    struct = fill(new("mori_shmem_atomic_args"), "mori_shmem_atomic_args", arguments)
    out = ffi.new("uint64_t *")
    _check(_lib.mori_shmem_atomic(handle, struct, out, error_record()))
    return int(out[0])


def mori_shmem_wait_until(handle: CData, **arguments: Any) -> int:
    """`arguments` are the fields of mori_shmem_wait_args; returns the value seen."""
    struct = fill(new("mori_shmem_wait_args"), "mori_shmem_wait_args", arguments)
    out = ffi.new("uint64_t *")
    _check(_lib.mori_shmem_wait_until(handle, struct, out, error_record()))
    return int(out[0])


def mori_shmem_quiet(handle: CData) -> None:
    _check(_lib.mori_shmem_quiet(handle, error_record()))


def mori_shmem_fence(handle: CData) -> None:
    _check(_lib.mori_shmem_fence(handle, error_record()))


def mori_shmem_module_init(handle: CData, module: int) -> None:
    _check(_lib.mori_shmem_module_init(handle, pointer(module, "module"), error_record()))


def mori_shmem_module_forget(handle: CData, module: int) -> None:
    _check(_lib.mori_shmem_module_forget(handle, pointer(module, "module"), error_record()))


def _team(make: Any, handle: CData, *arguments: Any) -> CData:
    out = ffi.new("mori_shmem_team **")
    _check(make(handle, *arguments, out, error_record()))
    return out[0]


def mori_shmem_team_by_color(handle: CData, color: int) -> CData:
    return _team(_lib.mori_shmem_team_by_color, handle, number(color, "color", "int32_t"))


def mori_shmem_team_by_node(handle: CData) -> CData:
    return _team(_lib.mori_shmem_team_by_node, handle)


def mori_shmem_team_strided(handle: CData, first_pe: int, stride: int, pe_count: int) -> CData:
    first_pe = number(first_pe, "first_pe", "int32_t")
    stride, pe_count = number(stride, "stride", "int32_t"), number(pe_count, "pe_count", "int32_t")
    return _team(_lib.mori_shmem_team_strided, handle, first_pe, stride, pe_count)


def mori_shmem_team_of_list(handle: CData, pes: list[int]) -> CData:
    return _team(_lib.mori_shmem_team_of_list, handle, ffi.new("int32_t[]", pes), len(pes))


def mori_shmem_team_destroy(team: CData) -> None:
    _lib.mori_shmem_team_destroy(team)


def mori_shmem_team_info(team: CData) -> CData:
    """A mori_shmem_team_report."""
    report = new("mori_shmem_team_report")
    _check(_lib.mori_shmem_team_info(team, report, error_record()))
    return report


def mori_shmem_team_group_pe(team: CData, pe: int) -> int:
    out = ffi.new("int32_t *")
    pe = number(pe, "pe", "int32_t")
    _check(_lib.mori_shmem_team_group_pe(team, pe, out, error_record()))
    return int(out[0])


def mori_shmem_team_translate(team: CData | None, pe: int, to: CData | None) -> int:
    """None is the whole group, not for both."""
    out = ffi.new("int32_t *")
    pe = number(pe, "pe", "int32_t")
    source, target = (ffi.NULL if each is None else each for each in (team, to))
    _check(_lib.mori_shmem_team_translate(source, pe, target, out, error_record()))
    return int(out[0])


def mori_shmem_team_ptr_p2p(team: CData, address: int, pe: int) -> int:
    out = ffi.new("void **")
    pe = number(pe, "pe", "int32_t")
    _check(_lib.mori_shmem_team_ptr_p2p(team, pointer(address, "ptr"), pe, out, error_record()))
    return address_of(out[0])


def mori_shmem_team_barrier(team: CData) -> None:
    _check(_lib.mori_shmem_team_barrier(team, error_record()))


def mori_shmem_device_state(handle: CData, level: int) -> CData:
    """The mori_shmem_device_state_v<level> of the context."""
    try:
        state = ffi.new(f"mori_shmem_device_state_v{number(level, 'level', 'uint32_t')} *")
    except ffi.error:
        known = constant("MORI_SHMEM_DEVICE_LEVEL")
        raise InvalidError(f"level is {level}, this package knows 1 .. {known}") from None
    size = ffi.sizeof(state[0])
    _check(_lib.mori_shmem_device_state(handle, level, state, size, error_record()))
    return state
