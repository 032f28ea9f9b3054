"""Communication of a context: barriers, puts, gets, signals, atomics and waits.

A target or source is an address, or an array whose address and size are taken. Host calls are not
ordered with streams: on a GPU, wait for the stream that writes what a call reads.
"""

from __future__ import annotations

import threading
from typing import Any

from mori._arrays import Array, stream_handle
from mori._raw import shmem as raw
from mori._values import timeout_ns, value_of
from mori.errors import StateError
from mori.shmem._addresses import Addresses
from mori.shmem._facts import ATOMICS, COMPARISONS, SIGNALS


class Transfers(Addresses):
    """The part of Context that communicates."""

    _barrier: threading.Lock

    def barrier_all(self) -> None:
        """All PEs wait for all PEs; puts issued before are complete at their targets.

        The wait is one C call, so Ctrl-C takes effect when it returns: at the latest at its
        deadline, the context's wait_timeout_s. Choose a shorter one there if 300 s is too long.
        abort() in another thread ends the wait at once.
        """
        handle = self._live()
        if not self._barrier.acquire(blocking=False):
            raise StateError("another thread of this process is in a barrier of this context")
        try:
            raw.mori_shmem_barrier_all(handle)
        finally:
            self._barrier.release()

    def barrier_on_stream(self, stream: Any = None) -> None:
        """The same, enqueued on a stream of the GPU; returns at once.

        stream: a handle or an object of torch, cupy or the like; None: the stream that torch works
        on, the default stream without torch. The host backend has no streams: only None and 0 are
        accepted, and the call blocks.
        """
        handle = self._current_stream() if stream is None else stream_handle(stream)
        raw.mori_shmem_barrier_on_stream(self._live(), handle)

    def _current_stream(self) -> int:
        """Of the library whose arrays this context gives."""
        return self._kinds.results_of(self._kinds.foreign).current_stream()

    def put(
        self, target: int | Array, source: int | Array, pe: int, size_bytes: int | None = None
    ) -> None:
        """Copies `source`, any memory here, to the symmetric `target` at PE `pe`.

        Either may be an address (then give size_bytes) or an array; sizes must agree. Complete at
        the target after `quiet`.
        """
        to, start, size = self._transfer(target, source, size_bytes)
        raw.mori_shmem_put(self._live(), to, start, size, pe)

    def get(
        self, target: int | Array, source: int | Array, pe: int, size_bytes: int | None = None
    ) -> None:
        """Copies the symmetric `source` at PE `pe` to `target` here; complete on return."""
        to, start, size = self._transfer(target, source, size_bytes)
        self._refuse_read_only(target)
        raw.mori_shmem_get(self._live(), to, start, size, pe)

    def put_signal(
        self,
        target: int | Array,
        source: int | Array,
        signal: int | Array,
        value: int,
        pe: int,
        *,
        op: str | int = "set",
        size_bytes: int | None = None,
    ) -> None:
        """As put; then sets ("set") or raises ("add") the 8-byte word `signal` at PE `pe`.

        InvalidError for a signal that is known to be smaller.
        """
        to, start, size = self._transfer(target, source, size_bytes)
        raw.mori_shmem_put_signal(
            self._live(),
            target=to,
            source=start,
            size_bytes=size,
            signal=self._word(signal, 8, "signal")[0],
            signal_value=value,
            signal_op=value_of(op, SIGNALS, "op"),
            pe=pe,
        )

    def atomic(
        self,
        target: int | Array,
        op: str | int,
        value: int = 0,
        *,
        pe: int,
        compare: int = 0,
        size_bytes: int | None = None,
    ) -> int:
        """One atomic on a word of 4 or 8 bytes at PE `pe`; returns the value before.

        size_bytes: None: that of the array's elements if 4 or 8, else 8. InvalidError when the
        array has less.
        op: inc, set, add, and, or, xor, fetch, fetch_inc, fetch_add, fetch_and, fetch_or,
        fetch_xor, swap, compare_swap.
        """
        address, size = self._word(target, size_bytes, "target")
        return raw.mori_shmem_atomic(
            self._live(),
            target=address,
            value=value,
            compare=compare,
            op=value_of(op, ATOMICS, "op"),
            pe=pe,
            size_bytes=size,
        )

    def wait_until(
        self,
        word: int | Array,
        compare: str | int,
        value: int,
        *,
        size_bytes: int | None = None,
        timeout_s: float | None = None,
        pe: int = -1,
    ) -> int:
        """Waits until the own word compares (eq, ne, gt, ge, lt, le) with `value`; returns it.

        size_bytes: None: that of the array's elements if 4 or 8, else 8. InvalidError when the
        array has less. WaitTimeoutError after timeout_s (None: the context's), naming PE `pe` if
        not -1. Ctrl-C takes effect at the end of the wait only, as in barrier_all.
        """
        address, size = self._word(word, size_bytes, "word")
        return raw.mori_shmem_wait_until(
            self._live(),
            address=address,
            size_bytes=size,
            value=value,
            compare=value_of(compare, COMPARISONS, "compare"),
            pe=pe,
            timeout_ns=timeout_ns(timeout_s, "timeout_s"),
        )

    def quiet(self) -> None:
        """All puts and atomics issued before are complete at their targets."""
        raw.mori_shmem_quiet(self._live())

    def fence(self) -> None:
        """All puts and atomics issued before are ordered before later ones to the same PE."""
        raw.mori_shmem_fence(self._live())
