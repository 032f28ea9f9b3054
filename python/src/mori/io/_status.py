"""TransferStatus: one transfer's state, under MORI's names, and waiting for many.

A status owns its transfer: it may be dropped in flight, and the transfer goes on. While the
transfer is in flight the status keeps the engine, and with it the registered memory, alive. It may
be used from any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mori._enums import BackendType, StatusCode
from mori._ffi import constant, ffi
from mori._raw import CData, new, text
from mori._raw import io as raw
from mori.errors import InvalidError, MoriError, StateError, error_for

# What a mori_status is to MORI's users. All that the way between the engines did wrong is
# ERR_RDMA_OP there, whatever the way was.
_CODES = {
    constant(f"MORI_{name}"): code
    for code, names in {
        StatusCode.SUCCESS: ("OK",),
        StatusCode.ERR_INVALID_ARGS: ("E_INVALID", "E_UNSUPPORTED"),
        StatusCode.ERR_NOT_FOUND: ("E_NOT_FOUND",),
        StatusCode.ERR_BAD_STATE: ("E_STATE", "E_CANCELLED", "E_ABORTED", "E_AGAIN", "E_NO_MEMORY"),
        StatusCode.ERR_RDMA_OP: (
            *("E_TIMEOUT", "E_PEER_DEAD", "E_OS", "E_PROTOCOL", "E_AUTH", "E_MISMATCH"),
            *("E_UNAVAILABLE", "E_VERSION", "E_OVERFLOW", "E_INTERNAL"),
        ),
    }.items()
    for name in names
}
# On a GPU's memory the same may be the GPU's fault.
_GPU_FAULTS = {constant(f"MORI_E_{name}") for name in ("OS", "UNAVAILABLE", "INTERNAL")}
_XGMI = constant("MORI_IO_BACKEND_XGMI")
_OF_CODE = {
    StatusCode.ERR_INVALID_ARGS: "MORI_E_INVALID",
    StatusCode.ERR_NOT_FOUND: "MORI_E_NOT_FOUND",
    StatusCode.ERR_BAD_STATE: "MORI_E_STATE",
}
# A wait in C is cut into pieces, between which Ctrl-C takes effect.
_SLICE_NS = 200_000_000
_IN_PROGRESS, _INIT, _SUCCESS = StatusCode.IN_PROGRESS, StatusCode.INIT, StatusCode.SUCCESS
_UNKNOWN_FAILURE, _ERR_BEGIN = StatusCode.ERR_RDMA_OP, StatusCode.ERR_BEGIN
_changed = threading.Condition()  # of a code that was set by hand


class _ThisThread(threading.local):
    """Structs of each thread, so that asking and waiting allocate nothing."""

    def __init__(self) -> None:
        self.report = new("mori_io_transfer_report")
        self.one = ffi.new("mori_io_transfer *[1]")


_this_thread = _ThisThread()


@dataclass(frozen=True)
class TransferInfo:
    """Facts of a transfer. `backend`: that carried it; duration: to its end, or until now."""

    uid: int
    size_bytes: int
    backend: BackendType
    retry_count: int
    duration_s: float


class TransferStatus:
    """State of one transfer. Made without one, it is what SetCode and Update make of it.

    A failure is final: Update() does not change it, SetCode() does.
    """

    __slots__ = (
        *("_code", "_error", "_facts", "_keep", "_message", "_on_gpu", "_transfer"),
        "__weakref__",
    )

    def __init__(self) -> None:
        self._code: StatusCode = _INIT
        self._message = ""
        self._transfer: CData | None = None
        self._keep: Any = None
        self._error: int = 0  # the mori_status behind a failure
        self._facts: tuple[int, ...] | None = None
        self._on_gpu = False

    # State

    def Code(self) -> StatusCode:  # noqa: N802
        """The state now; never blocks."""
        if self._transfer is not None:
            self._poll()
        return self._code

    def Message(self) -> str:  # noqa: N802
        """Why it failed."""
        if self._transfer is not None:
            self._poll()
        return self._message

    def Init(self) -> bool:  # noqa: N802
        """No transfer was started."""
        return self.Code() is _INIT

    def InProgress(self) -> bool:  # noqa: N802
        """In flight."""
        return self.Code() is _IN_PROGRESS

    def Succeeded(self) -> bool:  # noqa: N802
        """Delivered."""
        return self.Code() is _SUCCESS

    def Failed(self) -> bool:  # noqa: N802
        """Ended otherwise; Message() says why."""
        return self.Code() > _ERR_BEGIN

    def Wait(self) -> StatusCode:  # noqa: N802
        """Until it has ended; the GIL is free meanwhile, Ctrl-C ends the wait."""
        return (
            self._code
            if self._transfer is None and self._code is not _IN_PROGRESS
            else (self._wait(None))
        )

    def WaitFor(self, timeout_ms: int = -1) -> StatusCode:  # noqa: N802
        """The same, at most so long: IN_PROGRESS when the time was up; negative: no limit."""
        return self._wait(deadline_of(timeout_ms))

    # Setting it by hand

    def Update(self, code: StatusCode, message: str = "") -> None:  # noqa: N802
        """Sets code and message, unless it has failed."""
        if not self.Failed():
            self._set(code, message)

    def SetCode(self, code: StatusCode) -> None:  # noqa: N802
        """Sets the code, whatever it was."""
        self._set(code, self._message)

    def SetMessage(self, message: str) -> None:  # noqa: N802
        """Sets the message."""
        self._message = str(message)

    def _set(self, code: StatusCode, message: str) -> None:
        try:
            known = StatusCode(code)
        except ValueError:
            raise InvalidError(f"code is {code!r}, expected a StatusCode") from None
        keep = self._keep  # ends after the lock
        with _changed:
            # What somebody set is what it says from now on.
            self._release()
            self._message, self._code, self._error = str(message), known, 0
            _changed.notify_all()
        del keep

    # Beyond MORI

    def cancel(self) -> None:
        """Asks to end it. It is over when its state says so: ERR_BAD_STATE, or as it went."""
        transfer = self._transfer
        if transfer is None:
            return
        try:
            raw.mori_io_transfer_cancel(transfer)
        except StateError:
            if self._transfer is not None:  # else another thread has seen its end meanwhile
                raise

    def info(self) -> TransferInfo | None:
        """Facts of the transfer; None when there is none."""
        facts = self._poll() if self._transfer is not None else None
        facts = facts or self._facts
        if facts is None:
            return None
        uid, size_bytes, backend, retry_count, duration_ns = facts
        return TransferInfo(uid, size_bytes, BackendType(backend), retry_count, duration_ns / 1e9)

    def error(self) -> MoriError | None:
        """A failure as the exception that it would be; None when it has not failed."""
        if not self.Failed():
            return None
        status = self._error or constant(_OF_CODE.get(self._code, "MORI_E_INTERNAL"))
        return error_for(status, raw.mori_io_status_name(status), self._message)

    def check(self) -> None:
        """Raises error(), if there is one."""
        error = self.error()
        if error is not None:
            raise error

    def __repr__(self) -> str:
        code = self.Code()
        return f"<mori.io.TransferStatus: {code.name}{': ' * bool(self._message)}{self._message}>"

    def __reduce__(self) -> Any:
        raise TypeError("a TransferStatus belongs to its process and cannot be pickled")

    def __del__(self, _release: Any = raw.mori_io_transfer_release) -> None:
        transfer = getattr(self, "_transfer", None)
        if transfer is not None:
            _release(transfer)

    # The transfer

    def _poll(self) -> tuple[int, ...] | None:
        """Takes over the end of the transfer, if it has come; else its facts so far."""
        transfer, keep, report = self._transfer, self._keep, _this_thread.report
        if transfer is None or keep is None:
            return None
        try:
            if keep.drive is not None:
                keep.drive()
            raw.mori_io_transfer_info(transfer, report)
        except StateError:
            if self._transfer is None:  # another thread has seen its end, and stored it
                return None
            raise
        if not report.is_done:
            return _facts_of(report)
        self._end(report)
        return None

    def _end(self, report: CData) -> None:
        status = report.status
        code = _CODES.get(status, _UNKNOWN_FAILURE)
        if self._on_gpu and report.backend == _XGMI and status in _GPU_FAULTS:
            code = StatusCode.ERR_GPU_OP
        keep = self._keep  # ends after the lock
        with _changed:
            if self._transfer is None:  # set by hand, or ended by another thread
                return
            if status:
                self._error, self._message = status, text(report.message)
            self._facts = _facts_of(report)
            self._code = code
            self._release()
        del keep

    def _release(self) -> None:
        transfer, self._transfer, self._keep = self._transfer, None, None
        if transfer is not None:
            raw.mori_io_transfer_release(transfer)

    def _wait(self, deadline: float | None) -> StatusCode:
        while (transfer := self._transfer) is not None:
            one = _this_thread.one
            one[0] = transfer
            left = _SLICE_NS if deadline is None else _left_ns(deadline)
            raw.mori_io_transfer_wait(one, 1, min(left, _SLICE_NS))
            self._poll()
            if left == 0:
                break
        if self._transfer is None and self._code is _IN_PROGRESS:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            with _changed:
                _changed.wait_for(lambda: self._code is not _IN_PROGRESS, left)
        return self.Code()


def _facts_of(report: CData) -> tuple[int, ...]:
    """What TransferInfo is made of, when somebody asks."""
    return report.uid, report.size_bytes, report.backend, report.retry_count, report.duration_ns


def deadline_of(timeout_ms: float) -> float | None:
    """When a time in milliseconds is up; None: never, for a negative one."""
    try:
        return None if timeout_ms < 0 else time.monotonic() + timeout_ms / 1e3
    except TypeError:
        raise InvalidError(f"timeout_ms is {timeout_ms!r}, expected a number") from None


def _left_ns(deadline: float | None) -> int:
    if deadline is None:
        return raw.FOREVER_NS
    return max(0, round((deadline - time.monotonic()) * 1e9))


def started(transfer: CData, keep: Any, on_gpu: bool) -> TransferStatus:
    """The status of a transfer that was submitted; `keep` is its engine."""
    status = TransferStatus()
    status._transfer, status._keep, status._on_gpu = transfer, keep, on_gpu
    status._code = _IN_PROGRESS
    return status


def ended(code: StatusCode, message: str = "") -> TransferStatus:
    """A status that says how something went."""
    status = TransferStatus()
    status._code, status._message = code, message
    return status


def refused(error: MoriError) -> TransferStatus:
    """The status of a transfer that was refused with this error."""
    status = ended(_CODES.get(error.status, StatusCode.ERR_RDMA_OP), str(error))
    status._error = error.status
    return status


def wait_all(statuses: Iterable[TransferStatus], timeout_ms: float = -1) -> StatusCode:
    """Waits until all have succeeded or one has failed, and returns that one's code.

    timeout_ms: for all of them together; negative: no limit, 0: just looks. IN_PROGRESS when the
    time was up, SUCCESS for an empty list.
    """
    deadline = deadline_of(timeout_ms)
    pending = list(statuses)
    for index, status in enumerate(pending):
        if not isinstance(status, TransferStatus):
            raise InvalidError(
                f"statuses[{index}] is a {type(status).__name__}, expected a TransferStatus"
            )
    fresh = False
    while True:
        left: list[TransferStatus] = []
        for status in pending:
            code = status.Code()
            if code > StatusCode.ERR_BEGIN:
                return code
            if code is _IN_PROGRESS:
                left.append(status)
            elif code is _INIT:
                fresh = True
        pending = left
        if not pending:
            return _INIT if fresh else _SUCCESS
        left_ns = _left_ns(deadline)
        if left_ns == 0:
            return _IN_PROGRESS
        # Taken once each: another thread may see an end meanwhile.
        transfers = [t for t in (status._transfer for status in pending) if t is not None]
        if len(transfers) < len(pending):
            left_ns = min(left_ns, 1_000_000)  # some are set by hand
        if transfers:
            array = ffi.new("mori_io_transfer *[]", transfers)
            raw.mori_io_transfer_wait(array, len(transfers), min(left_ns, _SLICE_NS))
        else:
            with _changed:
                _changed.wait(min(left_ns, _SLICE_NS) / 1e9)
