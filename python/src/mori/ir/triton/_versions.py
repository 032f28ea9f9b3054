"""Which releases of Triton this package knows: those that its tests compile kernels with."""

from __future__ import annotations

import os

TESTED = ("3.6", "3.8")


def check(version: str) -> None:
    """ImportError for a release that the tests do not run with; MORI_TRITON_ANY=1 takes it."""
    if os.environ.get("MORI_TRITON_ANY") == "1":
        return
    if ".".join(version.split(".")[:2]) not in TESTED:
        raise ImportError(
            f"mori.ir.triton is tested with Triton {' and '.join(TESTED)}, this is {version}; "
            "MORI_TRITON_ANY=1 takes it all the same"
        )
