"""Arrays over memory from mori_io_alloc, which engines of the same node can map.

An array keeps its engine, and is freed with its last view. Regions in it hold the memory too: what
is still registered when the last view goes is freed when it is deregistered.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

import numpy as np

from mori._arrays import NUMPY
from mori._raw import CData, number
from mori._raw import io as raw
from mori.errors import InvalidError, NotFoundError, StateError


class _Block:
    """What all views of one allocation keep."""

    def __init__(self, engine: Any, ending: Any, *arguments: Any) -> None:
        self._engine = engine
        weakref.finalize(self, ending, *arguments).atexit = False


class Allocations:
    """Those of one engine."""

    def __init__(self, handle: CData) -> None:
        self._handle, self._process = handle, os.getpid()
        self._sizes: dict[int, int] = {}
        self._left: set[int] = set()  # without views, but registered
        self._lock = threading.Lock()

    def array(self, engine: Any, size_bytes: int) -> np.ndarray:
        """New memory as uint8 [size_bytes], zeroed."""
        size = number(size_bytes, "size")
        if size == 0:
            raise InvalidError("size is 0, expected at least 1")
        address = raw.mori_io_alloc(self._handle, size)
        with self._lock:
            self._sizes[address] = size
        block = _Block(engine, self._free, address)
        return NUMPY.view(address, block, np.uint8, (size,))

    def hold(self, address: int) -> bool:
        """Whether memory at this address is of such an allocation."""
        with self._lock:
            return any(0 <= address - start < size for start, size in self._sizes.items())

    def count_viewed(self) -> int:
        """Allocations that are in use."""
        with self._lock:
            return len(self._sizes) - len(self._left)

    def free_left(self) -> None:
        """Frees what was registered when its last view went, and is no more."""
        with self._lock:
            left = list(self._left)
        for address in left:
            self._free(address)

    def _free(self, address: int) -> None:
        if os.getpid() != self._process:
            return
        try:
            raw.mori_io_free(self._handle, address)
        except (StateError, NotFoundError):
            # Registered: deregistering frees it. Or the engine has ended, and with it the memory.
            with self._lock:
                self._left.add(address)
            return
        with self._lock:
            self._sizes.pop(address, None)
            self._left.discard(address)
