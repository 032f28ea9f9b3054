"""What a context's methods take as memory: an address, or an array whose address and size count."""

from __future__ import annotations

from typing import Any

import numpy as np

from mori._arrays import Array, Kinds, memory_of, size_bytes_of, span_of
from mori._raw import CData, number
from mori.errors import InvalidError, StateError


class Addresses:
    """Base of what Context is made of; Context has the handle and knows where its memory is."""

    _kinds: Kinds

    def _live(self) -> CData:
        raise StateError("this shmem context was finalized")

    def _word(self, value: Any, size_bytes: int | None, name: str) -> tuple[int, int]:
        """Address and size of one word; the library judges sizes other than 4 and 8."""
        if _is_address(value):
            return int(value), 8 if size_bytes is None else number(size_bytes, "size_bytes")
        framework, array = memory_of(value, name, self._kinds)
        item = framework.itemsize(array.dtype)
        size = size_bytes_of(tuple(array.shape), framework, array.dtype)
        wanted = item if item in (4, 8) else 8
        if size_bytes is not None:
            wanted = number(size_bytes, "size_bytes")
        if size < wanted:
            raise InvalidError(f"{name} has {size} bytes, expected a word of {wanted}")
        return framework.address(array), wanted

    def _span_or_address(self, value: int | Array, name: str) -> tuple[int, int]:
        """Address and size of an array; a plain address has size -1, for not known."""
        return (int(value), -1) if _is_address(value) else span_of(value, name, self._kinds)

    def _span(self, value: int | Array, size_bytes: int | None, name: str) -> tuple[int, int]:
        address, size = self._span_or_address(value, name)
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
        to, room = self._span_or_address(target, "target")
        start, given = self._span_or_address(source, "source")
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

    def _refuse_read_only(self, target: int | Array) -> None:
        if _is_address(target):
            return
        framework, array = memory_of(target, "target", self._kinds)
        if framework.is_read_only(array):
            raise InvalidError("target is read-only")


def _is_address(value: Any) -> bool:
    return isinstance(value, int | np.integer)
