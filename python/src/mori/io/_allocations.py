"""Arrays over memory from mori_io_alloc, which engines of the same node can map.

The memory is the process's, not the engine's: views stay safe to touch after the engine was closed.
It is freed with its last view. Regions in it hold it too: what is still registered then is freed
when it is deregistered. To free takes an engine, whichever: what outlived all of them is freed when
the next one allocates.
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

_orphans: set[int] = set()  # allocations whose engine had ended when they were to be freed


class _Block:
    """What all views of one allocation keep: while it is used its engine is not collected."""

    def __init__(self, engine: Any, ending: Any, *arguments: Any) -> None:
        self._engine = engine
        weakref.finalize(self, ending, *arguments).atexit = False


class Allocations:
    """Those of one engine."""

    def __init__(self, handle: CData) -> None:
        self._handle, self._process = handle, os.getpid()
        self._sizes: dict[int, int] = {}
        self._left: set[int] = set()  # without views, but registered
        self._is_over = False
        self._lock = threading.Lock()

    def array(self, engine: Any, size_bytes: int) -> np.ndarray:
        """New memory as uint8 [size_bytes], zeroed."""
        size = number(size_bytes, "size")
        if size == 0:
            raise InvalidError("size is 0, expected at least 1")
        address = raw.mori_io_alloc(self._handle, size)
        for orphan in list(_orphans):
            self._free(orphan)
        with self._lock:
            self._sizes[address] = size
        block = _Block(engine, self._free, address)
        return NUMPY.view(address, block, np.uint8, (size,))

    def hold(self, address: int) -> bool:
        """Whether memory at this address is of such an allocation."""
        with self._lock:
            return any(0 <= address - start < size for start, size in self._sizes.items())

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
        except StateError:
            with self._lock:
                self._left.add(address)
                if self._is_over:
                    _orphans.add(address)
            return
        except NotFoundError:
            """Another thread has freed it."""
        _orphans.discard(address)
        with self._lock:
            self._sizes.pop(address, None)
            self._left.discard(address)

    def end(self) -> None:
        """The engine has ended: it holds no region any more."""
        with self._lock:
            self._is_over = True
            _orphans.update(self._left)
