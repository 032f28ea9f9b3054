"""Completions and inbound notifications of one engine: taking them, waiting for them in threads,
with poll or epoll, and in asyncio.

The library has one descriptor for both queues, readable while either has something. Whoever waits
for one thing here therefore takes everything (`_drain`) and leaves the rest for others, else a
notification that nobody has asked for yet would keep an event loop spinning. Of threads that wait
at once, one polls and the others sleep on the condition. Callers who poll for themselves get a
descriptor that is readable for what lies here, too.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
import os
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from mori._ffi import constant, ffi
from mori._raw import CData, text
from mori._raw import io as raw
from mori.errors import StateError
from mori.io._status import TransferStatus

T = TypeVar("T")

_ENTRIES = 64  # taken from the library at a time
_SLICE_S = 0.2  # a wait is cut into such pieces, between which Ctrl-C takes effect
_OPERATIONS = {constant("MORI_IO_READ"): "read", constant("MORI_IO_WRITE"): "write"}


@dataclass(frozen=True)
class Completion:
    """A transfer that has ended. `tag`: what it was submitted with."""

    status: TransferStatus
    uid: int
    tag: Any
    size_bytes: int
    operation: str


@dataclass(frozen=True)
class Inbound:
    """A peer's transfer with memory of this engine has been delivered. `operation`: the peer's."""

    peer_key: str
    uid: int
    size_bytes: int
    operation: str
    memory_id: int
    metadata: bytes


class Events:
    """The two queues of one engine. `drive`: makes progress for a time in ns, where the callers
    are to do so; None else."""

    def __init__(self, handle: CData, drive: Callable[[int], None] | None) -> None:
        self._handle, self._drive = handle, drive
        # A descriptor of our own: it stays valid in an event loop while the engine ends.
        self.fd = os.dup(raw.mori_io_event_fd(handle))
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._kept = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # readable: something is here
        self._says_kept = False
        self._outer: select.epoll | None = None
        self._changed = threading.Condition()
        self._is_polled = self._is_closed = False
        self._entries = ffi.new("mori_io_completion[]", _ENTRIES)
        self._tags = itertools.count(1)
        self._awaited: dict[int, tuple[TransferStatus, Any]] = {}
        self._early: dict[int, tuple[Any, ...]] = {}
        self._completions: collections.deque[Completion] = collections.deque()
        self._inbound: dict[int, Inbound] = {}
        self._arrivals = itertools.count()
        self._by_uid: dict[tuple[str, int], collections.deque[int]] = {}
        self._futures: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._loops: set[asyncio.AbstractEventLoop] = set()

    def fileno(self) -> int:
        """Readable while the library or this object has something."""
        with self._changed:
            self._refuse_closed()
            if self._outer is None:
                self._outer = select.epoll()
                self._outer.register(self.fd, select.EPOLLIN)
                self._outer.register(self._kept, select.EPOLLIN)
            return self._outer.fileno()

    def _say_kept(self) -> None:
        """After something came or went. The lock is held."""
        has_some = bool(self._completions or self._inbound)
        if has_some != self._says_kept and not self._is_closed:
            self._says_kept = has_some
            if has_some:
                os.eventfd_write(self._kept, 1)
            else:
                os.eventfd_read(self._kept)

    # Completions

    def new_tag(self) -> int:
        """For the next transfer whose completion is wanted."""
        return next(self._tags)

    def expect(self, tag: int, status: TransferStatus, user_tag: Any) -> None:
        """A transfer was submitted with this tag; its completion may have been taken already."""
        with self._changed:
            early = self._early.pop(tag, None)
            if early is None:
                self._awaited[tag] = status, user_tag
                return
            uid, size, operation = early
            self._completions.append(Completion(status, uid, user_tag, size, operation))
            self._tell_all()

    def take_completions(self, limit: int) -> list[Completion]:
        """Up to `limit`, oldest first; never blocks."""
        with self._changed:
            if len(self._completions) < limit:
                self._fetch_completions()
            count = min(limit, len(self._completions))
            taken = [self._completions.popleft() for _ in range(count)]
            self._say_kept()
            return taken

    def _fetch_completions(self) -> bool:
        found = False
        while (count := raw.mori_io_completion_next(self._handle, self._entries, _ENTRIES)) > 0:
            found = True
            for entry in self._entries[0:count]:
                facts = entry.uid, entry.size_bytes, _OPERATIONS.get(entry.operation, "")
                known = self._awaited.pop(entry.tag, None)
                if known is None:
                    self._early[entry.tag] = facts
                    continue
                status, user_tag = known
                uid, size, operation = facts
                self._completions.append(Completion(status, uid, user_tag, size, operation))
        return found

    # Inbound notifications

    def take_inbound(self, peer: str | None, uid: int | None) -> Inbound | None:
        """That of this peer and uid; the oldest of any when both are None. Each is taken once."""
        with self._changed:
            if peer is not None and uid is not None:
                kept = self._by_uid.get((peer, uid))
                if kept:
                    return self._forget(kept[0])
                report = raw.mori_io_inbound_pop(self._handle, peer, uid)
            else:
                if self._inbound:
                    return self._forget(next(iter(self._inbound)))
                report = raw.mori_io_inbound_next(self._handle)
            return None if report is None else _inbound_of(report)

    def _forget(self, arrival: int) -> Inbound:
        found = self._inbound.pop(arrival)
        of_uid = self._by_uid[found.peer_key, found.uid]
        of_uid.remove(arrival)
        if not of_uid:
            del self._by_uid[found.peer_key, found.uid]
        self._say_kept()
        return found

    def _fetch_inbound(self) -> bool:
        found = False
        while (report := raw.mori_io_inbound_next(self._handle)) is not None:
            found, one, arrival = True, _inbound_of(report), next(self._arrivals)
            self._inbound[arrival] = one
            self._by_uid.setdefault((one.peer_key, one.uid), collections.deque()).append(arrival)
        return found

    # Waiting

    def _drain(self) -> None:
        """Takes all there is. The lock is held."""
        found = self._fetch_completions()
        if self._fetch_inbound() or found:
            self._tell_all()

    def _tell_all(self) -> None:
        """Wakes whoever waits. The lock is held."""
        self._say_kept()
        self._changed.notify_all()
        if self._is_polled:
            os.eventfd_write(self._wake, 1)
        futures, self._futures = self._futures, []
        for loop, future in futures:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_resolve, future)

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise StateError("this io engine was closed")

    def wait(self, take: Callable[[], T | None], timeout_s: float | None) -> T | None:
        """What `take` gives, as soon as it gives something; None when the time was up."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self._changed:
                self._refuse_closed()
                found = take()
                left = _SLICE_S if deadline is None else deadline - time.monotonic()
                if found or left <= 0:
                    return found or None
                left = min(left, _SLICE_S)
                if self._is_polled:
                    self._changed.wait(left)
                    continue
                self._is_polled = True
            try:
                self._poll(left)
            finally:
                with self._changed:
                    self._is_polled = False
                    if not self._is_closed:
                        self._drain()
                    self._changed.notify_all()

    def _poll(self, left_s: float) -> None:
        if self._drive is not None:
            self._drive(round(left_s * 1e9))
            return
        fd, wake = self.fd, self._wake
        if fd < 0:
            return
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.register(wake, select.POLLIN)
        poll.poll(left_s * 1e3)
        with contextlib.suppress(OSError):  # nothing to read, or closed meanwhile
            os.eventfd_read(wake)

    async def wait_async(self, take: Callable[[], T | None]) -> T:
        """The same in asyncio; the event loop watches the descriptor."""
        loop = asyncio.get_running_loop()
        while True:
            with self._changed:
                self._refuse_closed()
                found = take()
                if found:
                    return found
                future: asyncio.Future[None] = loop.create_future()
                self._futures.append((loop, future))
                if loop not in self._loops:
                    self._loops.add(loop)
                    loop.add_reader(self.fd, self._readable, loop)
            try:
                await future
            except asyncio.CancelledError:
                with self._changed:
                    self._futures = [pair for pair in self._futures if pair[1] is not future]
                raise

    def _readable(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called by an event loop. Watches no longer: the next who waits will have it so again."""
        with self._changed:
            self._loops.discard(loop)
            loop.remove_reader(self.fd)
            if not self._is_closed:
                self._drain()

    def close(self) -> None:
        """Ends all waits with StateError; the queues can no longer be used."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            loops, self._loops = self._loops, set()
            self._awaited.clear()
            self._tell_all()
        if not loops:
            self._close_descriptors()
        for loop in loops:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._leave, loop)

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self.fd)

    def _close_descriptors(self) -> None:
        with self._changed:
            descriptors = self.fd, self._wake, self._kept
            self.fd = self._wake = self._kept = -1
            outer, self._outer = self._outer, None
        if outer is not None:
            outer.close()
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)

    def __del__(self) -> None:
        if hasattr(self, "_changed"):
            self._close_descriptors()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _inbound_of(report: CData) -> Inbound:
    return Inbound(
        text(report.peer_key),
        report.uid,
        report.size_bytes,
        _OPERATIONS.get(report.operation, ""),
        report.memory_id,
        bytes(ffi.buffer(report.metadata, report.metadata_bytes)),
    )


class Completions:
    """The completion queue of an engine: of transfers submitted with `completion=True`.

    Any of: `poll()` when fileno() is readable, for select, poll and epoll; `wait()` in a thread;
    `await queue.get()` or `async for completion in queue` in asyncio. The descriptor is readable
    for inbound notifications too.
    """

    def __init__(self, events: Events, keep: Any) -> None:
        self._events, self._keep = events, keep

    def fileno(self) -> int:
        """The descriptor; it stays the engine's."""
        return self._events.fileno()

    def poll(self, limit: int = 256) -> list[Completion]:
        """What has ended since, oldest first, at most `limit`; never blocks."""
        return self._events.take_completions(limit)

    def wait(self, timeout_s: float | None = None, limit: int = 256) -> list[Completion]:
        """The same, but waits for the first; an empty list when the time was up."""
        return self._events.wait(lambda: self.poll(limit), timeout_s) or []

    async def get(self) -> Completion:
        """The next one."""
        return (await self._events.wait_async(lambda: self.poll(1)))[0]

    def __aiter__(self) -> Completions:
        return self

    async def __anext__(self) -> Completion:
        return await self.get()
