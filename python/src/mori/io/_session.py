"""IOEngineSession: one local and one remote region, and transfers between them."""

from __future__ import annotations

from typing import Any

from mori._raw import io as raw
from mori.errors import StateError
from mori.io._stats import Stats
from mori.io._status import TransferStatus
from mori.io._transfers import READ, WRITE, Channel, batch, one


class IOEngineSession:
    """Made by IOEngine.create_session. Offsets and sizes are bytes within the two regions.

    Every transfer takes `transfer_uid`, which names it to the peer (None: a new one), and
        priority    "normal", "latency", "bulk"; None: the session's
        timeout_s   it fails after that; None: never, but for a peer that falls silent
        metadata    at most 1024 bytes that go with the peer's notification
        notify      False: the peer is not notified
        completion  True: it also goes to engine.completions(), with `tag`, any object
    and returns a TransferStatus at once. What lies outside a region is a status that has failed
    already; wrong types and lists of different lengths raise InvalidError, a closed session or
    engine StateError.
    """

    def __init__(self, engine: Any, channel: Channel) -> None:
        self._engine, self._channel = engine, channel

    def read(
        self,
        local_offset: int,
        remote_offset: int,
        size: int,
        transfer_uid: int | None = None,
        **how: Any,
    ) -> TransferStatus:
        """Copies `size` bytes from the peer's region to the local one."""
        piece = local_offset, remote_offset, size
        return one(self._engine, self._live(), READ, piece, transfer_uid, how)

    def write(
        self,
        local_offset: int,
        remote_offset: int,
        size: int,
        transfer_uid: int | None = None,
        **how: Any,
    ) -> TransferStatus:
        """Copies `size` bytes from the local region to the peer's."""
        piece = local_offset, remote_offset, size
        return one(self._engine, self._live(), WRITE, piece, transfer_uid, how)

    def batch_read(
        self,
        local_offsets: Any,
        remote_offsets: Any,
        sizes: Any,
        transfer_uid: int | None = None,
        **how: Any,
    ) -> TransferStatus:
        """Reads many pieces as one transfer. Lists, or faster numpy arrays of uint64 or int64."""
        lists = local_offsets, remote_offsets, sizes
        return batch(self._engine, self._live(), READ, lists, transfer_uid, how)

    def batch_write(
        self,
        local_offsets: Any,
        remote_offsets: Any,
        sizes: Any,
        transfer_uid: int | None = None,
        **how: Any,
    ) -> TransferStatus:
        """Writes many pieces as one transfer. Lists, or faster numpy arrays of uint64 or int64."""
        lists = local_offsets, remote_offsets, sizes
        return batch(self._engine, self._live(), WRITE, lists, transfer_uid, how)

    def allocate_transfer_uid(self) -> int:
        """A uid that this process has not used."""
        return self._engine.allocate_transfer_uid()

    def alive(self) -> bool:
        """Whether a transfer could work: regions registered, a way in order, peer not dead."""
        try:
            return self.stats().is_alive
        except StateError:
            return False

    def stats(self) -> Stats:
        """Counters of this session, and by which backend it goes."""
        return Stats.of_report(raw.mori_io_session_stats(self._live().handle))

    def close(self) -> None:
        """Ends the session; its transfers go on."""
        self._channel = None  # type: ignore[assignment]

    def _live(self) -> Channel:
        self._engine.refuse_dead()
        channel = self._channel
        if channel is None:
            raise StateError("this io session was closed")
        return channel

    def __enter__(self) -> IOEngineSession:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._channel is None:
            return "<mori.io.IOEngineSession: closed>"
        try:
            stats = self.stats()
        except StateError as error:
            return f"<mori.io.IOEngineSession: {error}>"
        return (
            f"<mori.io.IOEngineSession: over {stats.backend.name}, "
            f"{'alive' if stats.is_alive else 'not alive'}>"
        )
