"""Context: one PE's membership of one group, and the memory it shares with the others.

A process may hold several contexts (PEs as threads, groups side by side). Functions that mirror
MORI's global ones use a default per thread, kept in mori/shmem/_default.py. Everything here goes
to the C library through mori/_raw/shmem.py; what each call blocks on and fails with stands in
mori/shmem.h.

Lifetime. `finalize()` ends the context: the other PEs learn at once that this one has left, and
each later call raises StateError. Arrays and tensors that view its memory stay safe to read and
write: they hold a lease, and the memory is unmapped when the lease ends, that is at once when there
are no views, else with the last view. A context that is dropped without finalize() ends likewise.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from mori._arrays import (
    NUMPY,
    Array,
    DType,
    Framework,
    checked_shape,
    framework_of,
    framework_of_dtype,
    import_torch,
    required_framework_of,
    size_bytes_of,
    span_of,
)
from mori._ffi import constant
from mori._raw import CData, memory, number, text
from mori._raw import shmem as raw
from mori.errors import InvalidError, StateError, UnavailableError

_BACKENDS = {n: constant(f"MORI_BACKEND_{n.upper()}") for n in ("auto", "host", "amd", "nvidia")}
_HEAP_MODES = {
    "default": constant("MORI_SHMEM_HEAP_DEFAULT"),
    "static": constant("MORI_SHMEM_HEAP_STATIC"),
    "vmm": constant("MORI_SHMEM_HEAP_VMM"),
    "isolation": constant("MORI_SHMEM_HEAP_ISOLATION"),
}
_TRANSPORTS = {
    constant(f"MORI_SHMEM_TRANSPORT_{n.upper()}"): n for n in ("none", "p2p", "rdma", "tcp")
}
_SIGNALS = {n: constant(f"MORI_SHMEM_SIGNAL_{n.upper()}") for n in ("set", "add")}
_COMPARISONS = {
    n: constant(f"MORI_SHMEM_CMP_{n.upper()}") for n in ("eq", "ne", "gt", "ge", "lt", "le")
}
_ATOMICS = {
    n: constant(f"MORI_SHMEM_AMO_{n.upper()}")
    for n in (
        *("inc", "set", "add", "and", "or", "xor", "fetch", "fetch_inc", "fetch_add"),
        *("fetch_and", "fetch_or", "fetch_xor", "swap", "compare_swap"),
    )
}


def _named(value: str | int, names: dict[str, int], what: str) -> int:
    """The C value of a name; integers go through for the library to judge."""
    if isinstance(value, str):
        if value not in names:
            raise InvalidError(f"{what} is {value!r}, expected one of {', '.join(names)}")
        return names[value]
    return number(value, what, "int32_t")


def _name_of(value: int, names: dict[str, int]) -> str:
    return next((name for name, known in names.items() if known == value), str(value))


def timeout_ns(seconds: float | None, name: str) -> int:
    """Seconds as nanoseconds for C, where 0 is the default; None selects that."""
    if seconds is None:
        return 0
    try:
        nanoseconds = round(float(seconds) * 1e9)
    except (TypeError, ValueError, OverflowError):
        raise InvalidError(f"{name} is {seconds!r}, expected seconds") from None
    if not 0 < nanoseconds < 1 << 63:
        raise InvalidError(f"{name} is {seconds} s, expected more than 0 and less than {2**63} ns")
    return nanoseconds


@dataclass(frozen=True)
class ContextInfo:
    """Facts and heap statistics of this PE; sizes in bytes, the timeout in seconds."""

    pe: int
    pe_count: int
    node: int
    node_count: int
    local_pe: int
    local_pe_count: int
    backend: str
    heap_mode: str
    heap_bytes: int
    used_bytes: int
    peak_bytes: int
    largest_free_bytes: int
    queue_pair_per_pe_count: int
    worker_count: int
    wait_timeout_s: float


@dataclass(frozen=True)
class PeerInfo:
    """How a PE is reached (`transport`: none, p2p, rdma or tcp), and why so."""

    pe: int
    node: int
    transport: str
    os_process_id: int
    reason: str


class Lease:
    """Keeps a C handle alive: it is destroyed when the last reference to its lease is gone."""

    def __init__(self, destroy: Any, handle: CData, keep: object = None) -> None:
        ending = weakref.finalize(self, _end, destroy, handle, os.getpid(), keep)
        # At exit the operating system cleans up; until then views stay readable.
        ending.atexit = False


def _end(destroy: Any, handle: CData, process: int, _keep: object) -> None:
    # The library answers a forked child, but the handle is the parent's to end.
    if os.getpid() == process:
        destroy(handle)


_contexts: weakref.WeakSet[Context] = weakref.WeakSet()
_contexts_lock = threading.Lock()


def _renew_lock() -> None:
    """In a forked child, where a thread that held the lock does not exist."""
    global _contexts_lock
    _contexts_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def living_contexts() -> list[Context]:
    """The contexts of this process that are not finalized."""
    with _contexts_lock:
        known = list(_contexts)
    return [c for c in known if not c.finalized and c.process == os.getpid()]


def _finalize_all() -> None:
    """So that the library's threads end before the process tears itself down, and the other PEs
    see that this one has left. Views of the memory may be read until the very end."""
    for context in living_contexts():
        context.finalize()


# Hooks run in reverse order, and after weakref's own no finalizer, thus no lease, acts any more.
# weakref registers its hook with the first finalizer of the process: make sure there was one.
weakref.finalize(_finalize_all, _renew_lock).detach()
atexit.register(_finalize_all)


class Context:
    """One PE of a group. Collective: all `pe_count` PEs make theirs, with one `unique_id`.

    unique_id            128 bytes from `Context.unique_id()`, made by one of the PEs
    pe, pe_count         this PE, 0 .. pe_count - 1, and how many there are
    heap_bytes           symmetric heap per PE; 0: MORI_SHMEM_HEAP_SIZE, else 4 GiB
    heap_mode            "static", "vmm", "isolation"; "default": MORI_SHMEM_MODE, else static
    backend              "host", "amd", "nvidia"; "auto" picks the host
    bootstrap_timeout_s  longest wait for all PEs to join; None: MORI_BOOTSTRAP_TIMEOUT, else 300
    wait_timeout_s       longest wait of a collective or device operation; None:
                         MORI_TIMEOUT_MS, else 300
    heartbeat_timeout_s  silence after which a PE counts as dead; None:
                         MORI_HEARTBEAT_TIMEOUT_MS, else 10
    disable_p2p          True: map no peer's memory
    worker_count         host: threads that run kernels; 0: cores / PEs on this node

    Raises InvalidError, MismatchError (PEs disagree), WaitTimeoutError, AuthError, NotFoundError
    (an id of another run), PeerDeadError, NoMemoryError, UnavailableError, OsError.

    A context manager: leaving the block finalizes it. Methods may be called from any thread;
    only one thread may be in `barrier_all` at a time.
    """

    def __init__(
        self,
        unique_id: bytes,
        pe: int,
        pe_count: int,
        *,
        heap_bytes: int = 0,
        heap_mode: str | int = "default",
        backend: str | int = "auto",
        bootstrap_timeout_s: float | None = None,
        wait_timeout_s: float | None = None,
        heartbeat_timeout_s: float | None = None,
        disable_p2p: bool = False,
        worker_count: int = 0,
    ) -> None:
        self._handle: CData | None = None
        handle = raw.mori_shmem_create(
            unique_id,
            pe=pe,
            pe_count=pe_count,
            heap_bytes=heap_bytes,
            heap_mode=_named(heap_mode, _HEAP_MODES, "heap_mode"),
            backend=_named(backend, _BACKENDS, "backend"),
            bootstrap_timeout_ns=timeout_ns(bootstrap_timeout_s, "bootstrap_timeout_s"),
            wait_timeout_ns=timeout_ns(wait_timeout_s, "wait_timeout_s"),
            heartbeat_timeout_ns=timeout_ns(heartbeat_timeout_s, "heartbeat_timeout_s"),
            disable_p2p=int(bool(disable_p2p)),
            worker_count=worker_count,
        )
        self._handle = handle
        self._pe, self._pe_count = int(pe), int(pe_count)
        self.process = os.getpid()
        # Leaving and unmapping are two things: views keep the memory, not the membership.
        self._leave = weakref.finalize(
            self, _end, raw.mori_shmem_destroy, handle, os.getpid(), None
        )
        self._leave.atexit = False
        self._lease: Lease | None = Lease(
            raw.mori_shmem_lease_destroy, raw.mori_shmem_lease_create(handle)
        )
        self._operators: weakref.WeakSet[Any] = weakref.WeakSet()
        self._barrier = threading.Lock()
        self._lock = threading.Lock()
        with _contexts_lock:
            _contexts.add(self)

    @staticmethod
    def unique_id() -> bytes:
        """Makes the id of a new group: 128 bytes that let their holder join; keep them private.

        The process that calls this must create one of the group's contexts.
        """
        return raw.mori_shmem_unique_id_create()

    # Lifetime

    def finalize(self) -> None:
        """Leaves the group; see the module's text on lifetime. Calling it again does nothing.

        Operators built on this context are closed first. Not a barrier.
        """
        with self._lock:
            lease, self._lease, self._handle = self._lease, None, None
        if lease is not None:
            for operator in list(self._operators):
                operator.close()
            self._leave()
            # With no view left this is the last reference: the memory is unmapped here.
            del lease

    @property
    def finalized(self) -> bool:
        """True after finalize()."""
        return self._handle is None

    def __enter__(self) -> Context:
        self._live()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.finalize()

    def __repr__(self) -> str:
        if self._handle is None:
            return "<mori.shmem.Context: finalized>"
        return f"<mori.shmem.Context: PE {self._pe} of {self._pe_count}>"

    def refuse_dead(self) -> None:
        """StateError after finalize or in a forked child."""
        self._live()

    def handle(self) -> CData:
        """The `mori_shmem *`, for what is built on this context."""
        return self._live()

    def add_operator(self, operator: Any) -> None:
        """Remembers an object with close(), to be called by finalize()."""
        self._operators.add(operator)

    def _live(self) -> CData:
        """The handle; StateError after finalize or in a forked child."""
        handle = self._handle
        if handle is None:
            raise StateError("this shmem context was finalized")
        if self.process != os.getpid():
            raise StateError(
                f"this shmem context was made by process {self.process} before fork(); process "
                f"{os.getpid()} must make its own"
            )
        return handle

    def lease(self) -> Lease:
        """What keeps the context's memory mapped; held by views and operators."""
        lease = self._lease
        if lease is None:
            raise StateError("this shmem context was finalized")
        return lease

    # Facts

    @property
    def pe(self) -> int:
        """Number of this PE, 0 .. pe_count - 1."""
        self._live()
        return self._pe

    @property
    def pe_count(self) -> int:
        """Number of PEs of the group."""
        self._live()
        return self._pe_count

    def info(self) -> ContextInfo:
        """Facts and heap statistics of this PE."""
        report = raw.mori_shmem_info(self._live())
        fields = {
            name: getattr(report, name)
            for name in ContextInfo.__dataclass_fields__
            if name not in ("backend", "heap_mode", "wait_timeout_s")
        }
        return ContextInfo(
            backend=_name_of(report.backend, _BACKENDS),
            heap_mode=_name_of(report.heap_mode, _HEAP_MODES),
            wait_timeout_s=report.wait_timeout_ns / 1e9,
            **fields,
        )

    def peer_info(self, pe: int) -> PeerInfo:
        """How PE `pe` is reached and why."""
        report = raw.mori_shmem_peer_info(self._live(), pe)
        transport = _TRANSPORTS.get(report.transport, str(report.transport))
        return PeerInfo(
            report.pe, report.node, transport, report.os_process_id, text(report.reason)
        )

    def check(self) -> None:
        """Raises the context's sticky fault, if there is one."""
        raw.mori_shmem_check(self._live())

    def abort(self) -> None:
        """Ends each wait of the group, on all PEs, with AbortedError."""
        raw.mori_shmem_abort(self._live())

    # Memory

    def malloc(self, size_bytes: int) -> int:
        """Address of new symmetric memory, aligned to 256 bytes; 0 for size 0. Collective.

        Raises MismatchError (PEs ask for different sizes), NoMemoryError (on all PEs).
        """
        return raw.mori_shmem_malloc(self._live(), size_bytes)

    def malloc_align(self, alignment_bytes: int, size_bytes: int) -> int:
        """As malloc, at a multiple of `alignment_bytes`, a power of two up to 1 GiB."""
        return raw.mori_shmem_malloc_align(self._live(), alignment_bytes, size_bytes)

    def free(self, block: int | Array) -> None:
        """Returns a block to the heap: its address, or the array or tensor made over it.

        All PEs must free the same blocks before the next malloc. 0 is accepted; a pointer that is
        no live allocation raises NotFoundError. Views of the block stay safe to touch, but their
        contents may be those of a later allocation.
        """
        address, size = _span_or_address(block, "ptr")
        raw.mori_shmem_free(self._live(), 0 if size == 0 else address)

    def array(self, shape: int | Sequence[int], dtype: DType = "float32") -> Array:
        """A numpy array in new symmetric memory, zero at first use of it. Collective.

        Free it with `free(array)` on all PEs; dropping it does not.
        """
        framework, kind = framework_of_dtype(dtype)
        # Checked before anything is allocated: the other PEs' heaps would go out of step.
        framework.refuse_unusable_dtype(kind, "array")
        return self._allocated(checked_shape(shape), framework, kind)

    def tensor(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """A torch CPU tensor in new symmetric memory. Collective. See `array`."""
        torch = import_torch("Context.tensor")
        if not isinstance(dtype, torch.dtype):
            raise InvalidError(f"dtype is {dtype!r}, expected a torch.dtype")
        return self.array(shape, dtype)

    def _allocated(self, shape: tuple[int, ...], framework: Framework, dtype: DType) -> Array:
        address = self.malloc(size_bytes_of(shape, framework, dtype))
        try:
            return self.view(address, shape, dtype)
        except BaseException:
            self.free(address)
            raise

    def view(self, address: int, shape: int | Sequence[int], dtype: DType) -> Array:
        """An array or tensor (by the kind of `dtype`) over memory of the own heap.

        Raises NotFoundError when part of it is outside the heap.
        """
        framework, kind = framework_of_dtype(dtype)
        framework.refuse_unusable_dtype(kind, "view")
        extents = checked_shape(shape)
        size = size_bytes_of(extents, framework, kind)
        if size == 0:
            return framework.empty(kind, extents)
        self._in_heap(address, size, self.pe)
        return framework.view(memory(address, size, self.lease()), kind, extents)

    def peer_view(self, array: Array, pe: int) -> Array:
        """The memory of PE `pe` that corresponds to a symmetric array of this one.

        Same kind, shape and dtype. Raises UnavailableError when that PE is not mapped here,
        NotFoundError when the array is not in the own heap.
        """
        framework = required_framework_of(array, "array")
        address, size = span_of(array, "array")
        if size == 0:
            return array
        there = self._in_heap(address, size, pe)
        if there == 0:
            raise UnavailableError(
                f"the memory of PE {pe} is not mapped by PE {self.pe}: {self.peer_info(pe).reason}"
            )
        return framework.view(memory(there, size, self.lease()), array.dtype, tuple(array.shape))

    def _in_heap(self, address: int, size: int, pe: int) -> int:
        """Address at PE `pe` of a range of the own heap, after checking both of its ends."""
        there = self.ptr_p2p(address, pe)
        self.ptr_p2p(address + size - 1, pe)
        return there

    def ptr_p2p(self, address: int, pe: int) -> int:
        """Address at which this PE can touch the corresponding memory of `pe`; 0: not mapped."""
        return raw.mori_shmem_ptr_p2p(self._live(), address, pe)

    def buffer_register(self, buffer: int | Array, size_bytes: int | None = None) -> None:
        """Makes a private buffer a legal source of puts and target of gets."""
        address, size = self._span(buffer, size_bytes, "buffer")
        raw.mori_shmem_buffer_register(self._live(), address, size)

    def buffer_deregister(self, buffer: int | Array, size_bytes: int | None = None) -> None:
        """Undoes buffer_register of exactly this range; NotFoundError for any other."""
        address, size = self._span(buffer, size_bytes, "buffer")
        raw.mori_shmem_buffer_deregister(self._live(), address, size)

    # Communication

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

    def barrier_on_stream(self, stream: int = 0) -> None:
        """The same on a stream; the host backend has none, so `stream` must be 0."""
        raw.mori_shmem_barrier_on_stream(self._live(), stream)

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
            signal_op=_named(op, _SIGNALS, "op"),
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
            op=_named(op, _ATOMICS, "op"),
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
            compare=_named(compare, _COMPARISONS, "compare"),
            pe=pe,
            timeout_ns=timeout_ns(timeout_s, "timeout_s"),
        )

    def quiet(self) -> None:
        """All puts and atomics issued before are complete at their targets."""
        raw.mori_shmem_quiet(self._live())

    def fence(self) -> None:
        """All puts and atomics issued before are ordered before later ones to the same PE."""
        raw.mori_shmem_fence(self._live())

    # Arguments

    @staticmethod
    def _word(value: Any, size_bytes: int | None, name: str) -> tuple[int, int]:
        """Address and size of one word; the library judges sizes other than 4 and 8."""
        address, size = _span_or_address(value, name)
        if size_bytes is None:
            framework = framework_of(value)
            item = 8 if framework is None else framework.itemsize(value.dtype)
            wanted = item if item in (4, 8) else 8
        else:
            wanted = number(size_bytes, "size_bytes")
        if 0 <= size < wanted:
            raise InvalidError(f"{name} has {size} bytes, expected a word of {wanted}")
        return address, wanted

    @staticmethod
    def _span(value: int | Array, size_bytes: int | None, name: str) -> tuple[int, int]:
        address, size = _span_or_address(value, name)
        if size_bytes is not None:
            wanted = number(size_bytes, "size_bytes")
            if size >= 0 and wanted > size:
                raise InvalidError(f"size_bytes is {wanted}, {name} has {size} bytes")
            return address, wanted
        if size < 0:
            raise InvalidError(f"{name} is an address, so size_bytes must be given")
        return address, size

    def _transfer(
        self, target: int | Array, source: int | Array, size_bytes: int | None
    ) -> tuple[int, int, int]:
        to, room = _span_or_address(target, "target")
        start, given = _span_or_address(source, "source")
        if size_bytes is None:
            known = [size for size in (room, given) if size >= 0]
            if not known:
                raise InvalidError("target and source are addresses, so size_bytes must be given")
            if len(set(known)) > 1:
                raise InvalidError(f"target has {room} bytes, source has {given}")
            return to, start, known[0]
        size = number(size_bytes, "size_bytes")
        for name, limit in (("target", room), ("source", given)):
            if 0 <= limit < size:
                raise InvalidError(f"size_bytes is {size}, {name} has {limit} bytes")
        return to, start, size

    @staticmethod
    def _refuse_read_only(target: int | Array) -> None:
        if isinstance(target, int | np.integer):
            return
        framework = framework_of(target)
        writeable = target.flags.writeable if framework is NUMPY else True
        if framework is None:
            writeable = not memoryview(target).readonly
        if not writeable:
            raise InvalidError("target is read-only")


def _span_or_address(value: int | Array, name: str) -> tuple[int, int]:
    """Address and size of an array; a plain address has size -1, for not known."""
    if isinstance(value, int | np.integer):
        return int(value), -1
    return span_of(value, name)
