"""Lease: keeps a C handle alive, and ends it with the last reference. Views hold one."""

from __future__ import annotations

import os
import weakref
from typing import Any

from mori._raw import CData


class Lease:
    """Keeps a C handle alive: it is destroyed when the last reference to its lease is gone."""

    def __init__(self, destroy: Any, handle: CData, keep: object = None) -> None:
        ending = weakref.finalize(self, end, destroy, handle, os.getpid(), keep)
        # At exit the operating system cleans up; until then views stay readable.
        ending.atexit = False


def end(destroy: Any, handle: CData, process: int, _keep: object) -> None:
    """Destroys a handle, unless this is a forked child: the handle is the parent's to end."""
    if os.getpid() == process:
        destroy(handle)
