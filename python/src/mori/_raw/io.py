"""The C functions of mori/io.h under their own names; see mori/_raw/__init__.py."""

from __future__ import annotations

from mori._ffi import ffi, load

_lib = load("io").lib


def mori_io_version() -> int:
    """Packed version of the loaded library."""
    return int(_lib.mori_io_version())


def mori_io_abi_level() -> int:
    """ABI level of the loaded library."""
    return int(_lib.mori_io_abi_level())


def mori_io_status_name(status: int) -> str:
    """Name of a status; "MORI_E_?" for an unknown one."""
    return ffi.string(_lib.mori_io_status_name(status)).decode()
