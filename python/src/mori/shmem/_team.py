"""Teams: numbered subsets of a context's PEs, with a barrier and peer views under those numbers."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mori._arrays import Array
from mori._raw import CData, number
from mori._raw import shmem as raw
from mori.errors import InvalidError, StateError
from mori.shmem._lease import end

if TYPE_CHECKING:
    from mori.shmem._context import Context


class Team:
    """Some PEs of a context, numbered anew. Made by Context.team, team_by_node, team_strided and
    team_by_color, which are collective over the whole group.

    A PE that is not in the team has one too, with `pe` None: it can translate, but not take part
    in a barrier. free() it on all PEs before the next allocation.
    """

    def __init__(self, context: Context, handle: CData) -> None:
        self._context = context
        self._handle: CData | None = handle
        self._end = weakref.finalize(
            self, end, raw.mori_shmem_team_destroy, handle, os.getpid(), None
        )
        self._end.atexit = False
        report = raw.mori_shmem_team_info(handle)
        self._pe, self._pe_count = int(report.pe), int(report.pe_count)
        self._pes = tuple(raw.mori_shmem_team_group_pe(handle, pe) for pe in range(self._pe_count))
        self._barrier = threading.Lock()

    def _live(self) -> CData:
        if self._handle is None:
            raise StateError("this team was freed")
        self._context.refuse_dead()
        return self._handle

    def free(self) -> None:
        """Returns its words to the heap, as Context.free does. Calling it again does nothing."""
        self._handle = None
        self._end()

    def __repr__(self) -> str:
        return f"<mori.shmem.Team: PE {self.pe} of {self._pe_count}>"

    @property
    def pe(self) -> int | None:
        """Own number in the team; None: not in it."""
        return None if self._pe < 0 else self._pe

    @property
    def pe_count(self) -> int:
        """PEs of the team."""
        return self._pe_count

    @property
    def pes(self) -> tuple[int, ...]:
        """The members' numbers in the context, in order of their numbers in the team."""
        return self._pes

    def group_pe(self, pe: int) -> int:
        """Number in the context of PE `pe` of the team."""
        return raw.mori_shmem_team_group_pe(self._live(), pe)

    def translate(self, pe: int, to: Team | None = None) -> int | None:
        """Number in team `to` (None: in the context) of PE `pe` of this team; None: not in it."""
        target = None if to is None else to._live()
        there = raw.mori_shmem_team_translate(self._live(), pe, target)
        return None if there < 0 else there

    def peer_view(self, block: Array, pe: int) -> Array:
        """The memory of PE `pe` of the team that corresponds to `block`; see Context.peer_view."""
        return self._context.peer_view(block, self.group_pe(pe))

    def barrier(self) -> None:
        """All PEs of the team wait for each other; puts issued before are complete."""
        with self._barrier:
            raw.mori_shmem_team_barrier(self._live())


class Teams:
    """The part of Context that makes teams. Collective over all its PEs."""

    def _live(self) -> CData:
        raise StateError("this shmem context was finalized")

    def team(self, pes: Iterable[int]) -> Team:
        """The PEs of a list, the same on all PEs; their places are their numbers."""
        numbers = [number(pe, "pe", "int32_t") for pe in pes]
        if not numbers:
            raise InvalidError("pes is empty, expected at least one PE")
        return self._made(raw.mori_shmem_team_of_list(self._live(), numbers))

    def team_strided(self, first_pe: int, stride: int, pe_count: int) -> Team:
        """PEs first_pe, first_pe + stride, ...: pe_count of them."""
        return self._made(raw.mori_shmem_team_strided(self._live(), first_pe, stride, pe_count))

    def team_by_node(self) -> Team:
        """The PEs of this PE's node."""
        return self._made(raw.mori_shmem_team_by_node(self._live()))

    def team_by_color(self, color: int) -> Team:
        """PEs that give an equal color, in order of their numbers; a negative one: no team."""
        return self._made(raw.mori_shmem_team_by_color(self._live(), color))

    def _made(self, handle: CData) -> Team:
        return Team(self, handle)  # type: ignore[arg-type]
