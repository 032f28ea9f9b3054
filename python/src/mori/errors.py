"""Exceptions of the package: one class per status of the C libraries.

All derive from MoriError, and each also from the built-in exception that a caller of the
function in question would expect: a bad argument is a ValueError, a passed deadline a
TimeoutError, an exhausted heap a MemoryError, a refused system call an OSError. Checks made in
Python raise the same classes as the libraries, so that it does not matter who found the fault.
"""

from __future__ import annotations

from typing import Any

from mori._ffi import constant

__all__ = [
    "AbortedError",
    "AgainError",
    "AuthError",
    "CancelledError",
    "InternalError",
    "InvalidError",
    "LibraryError",
    "MismatchError",
    "MoriError",
    "NoMemoryError",
    "NotFoundError",
    "OsError",
    "PeerDeadError",
    "ProtocolError",
    "RecvOverflowError",
    "StateError",
    "UnavailableError",
    "UnsupportedError",
    "VersionError",
    "WaitTimeoutError",
    "error_for",
]


class MoriError(Exception):
    """Root of all errors of this package.

    status       the C status, e.g. 5
    status_name  its name, e.g. "MORI_E_TIMEOUT"
    os_errno     errno of the system call involved, 0 when there was none
    """

    status: int = constant("MORI_E_INTERNAL")
    status_name: str = "MORI_E_INTERNAL"
    os_errno: int = 0

    def __init__(
        self,
        message: str = "",
        *,
        os_errno: int = 0,
        status: int | None = None,
        status_name: str | None = None,
    ) -> None:
        # OSError, when among the bases, takes (errno, text) and derives .errno and .strerror.
        if isinstance(self, OSError) and os_errno:
            super().__init__(os_errno, message)
        else:
            super().__init__(message)
        self.message = message
        self.os_errno = os_errno
        if status is not None:
            self.status = status
        if status_name is not None:
            self.status_name = status_name

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions cross process borders in multiprocessing; keep all fields.
        return _rebuild, (type(self), self.message, self.os_errno, self.status, self.status_name)


def _rebuild(
    kind: type[MoriError], message: str, os_errno: int, status: int, status_name: str
) -> MoriError:
    return kind(message, os_errno=os_errno, status=status, status_name=status_name)


_by_status: dict[int, type[MoriError]] = {}


def _of_status(name: str) -> Any:
    """Class decorator: the class stands for this status."""

    def mark(kind: type[MoriError]) -> type[MoriError]:
        kind.status_name, kind.status = name, constant(name)
        _by_status[kind.status] = kind
        return kind

    return mark


@_of_status("MORI_E_INVALID")
class InvalidError(MoriError, ValueError):
    """An argument is out of range or has the wrong shape, dtype, stride or device."""


@_of_status("MORI_E_STATE")
class StateError(MoriError, RuntimeError):
    """Not initialised, finalized, made before a fork, or called in the wrong order."""


@_of_status("MORI_E_NO_MEMORY")
class NoMemoryError(MoriError, MemoryError):
    """The symmetric heap, host memory, tmpfs or a memory limit is exhausted."""


@_of_status("MORI_E_MISMATCH")
class MismatchError(MoriError, ValueError):
    """The PEs disagree in a collective call."""


@_of_status("MORI_E_TIMEOUT")
class WaitTimeoutError(MoriError, TimeoutError):
    """A deadline passed; the message names the PE that was waited for."""


@_of_status("MORI_E_PEER_DEAD")
class PeerDeadError(MoriError, ConnectionError):
    """A PE died or fell silent; the message names it."""


@_of_status("MORI_E_ABORTED")
class AbortedError(MoriError, RuntimeError):
    """The context was aborted by this or another PE."""


@_of_status("MORI_E_UNSUPPORTED")
class UnsupportedError(MoriError, NotImplementedError):
    """Understood, but not part of this build or back end."""


@_of_status("MORI_E_UNAVAILABLE")
class UnavailableError(MoriError, RuntimeError):
    """No such device, driver or transport on this machine."""


@_of_status("MORI_E_OS")
class OsError(MoriError, OSError):
    """The operating system refused; .errno and .os_errno say why."""


@_of_status("MORI_E_PROTOCOL")
class ProtocolError(MoriError, ConnectionError):
    """Damaged or unexpected bytes from a peer."""


@_of_status("MORI_E_AUTH")
class AuthError(MoriError, PermissionError):
    """The peer does not know the secret of the group."""


@_of_status("MORI_E_OVERFLOW")
class RecvOverflowError(MoriError, OverflowError):
    """A rank would receive more tokens than its capacity."""


@_of_status("MORI_E_NOT_FOUND")
class NotFoundError(MoriError, LookupError):
    """Unknown pointer (foreign, or freed already), id or name."""


@_of_status("MORI_E_VERSION")
class VersionError(MoriError, ValueError):
    """Asks for something newer than the loaded library."""


@_of_status("MORI_E_AGAIN")
class AgainError(MoriError, BlockingIOError):
    """Nothing there yet; try later."""


@_of_status("MORI_E_CANCELLED")
class CancelledError(MoriError, RuntimeError):
    """The caller cancelled the operation."""


@_of_status("MORI_E_INTERNAL")
class InternalError(MoriError, RuntimeError):
    """A fault of the library itself."""


class LibraryError(MoriError, ImportError):
    """A shared library is missing or of a version that this package cannot use."""

    status_name, status = "MORI_E_UNAVAILABLE", constant("MORI_E_UNAVAILABLE")


def error_for(status: int, status_name: str, message: str, os_errno: int = 0) -> MoriError:
    """The exception of a status that a library returned; MoriError itself for an unknown one."""
    kind = _by_status.get(status, MoriError)
    return kind(message, os_errno=os_errno, status=status, status_name=status_name)
