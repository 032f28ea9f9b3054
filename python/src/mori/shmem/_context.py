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
from types import TracebackType
from typing import Any

from mori._arrays import Kinds, Place, kinds_at
from mori._raw import CData
from mori._raw import shmem as raw
from mori._values import timeout_ns, value_of
from mori.errors import StateError
from mori.shmem._backend import bind_device, chosen_backend, place_of
from mori.shmem._facts import HEAP_MODES, ContextInfo, PeerInfo
from mori.shmem._lease import Lease, end
from mori.shmem._memory import Memory
from mori.shmem._team import Teams
from mori.shmem._transfers import Transfers

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


class Context(Memory, Transfers, Teams):
    """One PE of a group. Collective: all `pe_count` PEs make theirs, with one `unique_id`.

    unique_id            128 bytes from `Context.unique_id()`, made by one of the PEs
    pe, pe_count         this PE, 0 .. pe_count - 1, and how many there are
    heap_bytes           symmetric heap per PE; 0: MORI_SHMEM_HEAP_SIZE, else 4 GiB, for vmm 16 GiB
    heap_mode            "static", "vmm" (takes memory as it is allocated), "isolation" (own pages
                         for each allocation); "default": MORI_SHMEM_MODE, else static
    backend              "host", "amd", "nvidia"; "auto": MORI_BACKEND, else the GPU if torch is in
                         the process and has one, else the host. A GPU is the calling thread's
                         current one: torch's current device if torch is there
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
        backend = chosen_backend(backend)
        bind_device(backend)
        handle = raw.mori_shmem_create(
            unique_id,
            pe=pe,
            pe_count=pe_count,
            heap_bytes=heap_bytes,
            heap_mode=value_of(heap_mode, HEAP_MODES, "heap_mode"),
            backend=backend,
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
        self._leave = weakref.finalize(self, end, raw.mori_shmem_destroy, handle, os.getpid(), None)
        self._leave.atexit = False
        self._lease: Lease | None = Lease(
            raw.mori_shmem_lease_destroy, raw.mori_shmem_lease_create(handle)
        )
        self._kinds = kinds_at(place_of(self.info()))
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
        return f"<mori.shmem.Context: PE {self._pe} of {self._pe_count} on {self.place.name}>"

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

    @property
    def place(self) -> Place:
        """Where its memory is and its kernels run; `place.name` is "cpu", "cuda:0" or "hip:0"."""
        return self._kinds.place

    @property
    def kinds(self) -> Kinds:
        """The arrays that it takes and gives."""
        return self._kinds

    def info(self) -> ContextInfo:
        """Facts and heap statistics of this PE."""
        return ContextInfo.of_report(raw.mori_shmem_info(self._live()))

    def peer_info(self, pe: int) -> PeerInfo:
        """How PE `pe` is reached and why."""
        return PeerInfo.of_report(raw.mori_shmem_peer_info(self._live(), pe))

    # Modules of other compilers

    def module_init(self, module: int) -> None:
        """Gives this PE to a loaded GPU module (CUmodule, hipModule_t) that is linked with the
        device bitcode; finalize() marks it dead.

        Raises NotFoundError when the module holds no state of mori.shmem, StateError when it is
        another PE's of this process, UnavailableError on the host backend.
        """
        raw.mori_shmem_module_init(self._live(), module)

    def module_forget(self, module: int) -> None:
        """To be called before such a module is unloaded. NotFoundError: it was not initialised."""
        raw.mori_shmem_module_forget(self._live(), module)

    def check(self) -> None:
        """Raises the context's sticky fault, if there is one."""
        raw.mori_shmem_check(self._live())

    def abort(self) -> None:
        """Ends each wait of the group, on all PEs, with AbortedError."""
        raw.mori_shmem_abort(self._live())
