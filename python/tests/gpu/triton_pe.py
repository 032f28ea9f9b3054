"""One PE process of test_gpu_triton.py: `triton_pe.py values|ends RANK WORLD FOLDER`. Prints what
the bodies report as one line of JSON, and on standard error which of them are done."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import mori.ir.triton as device
import triton_bodies
from mori.shmem import Context
from pe_program import Group
from triton_bodies import PROCESS, Pe


def done(name: str) -> None:
    print(f"done: {name}", file=sys.stderr, flush=True)


def values(group: Group) -> dict[str, Any]:
    """All that moves data."""
    found = {}
    with group.join("values") as context:
        pe = Pe(context, PROCESS)
        for name, body in triton_bodies.BODIES.items():
            found[name] = body(pe)
            done(name)
        pe.meet()
    return found


def ends(group: Group) -> dict[str, Any]:
    """What happens when a context ends, and to those that come after it in the same process."""
    found = {}
    with group.join("first") as context:
        found["finalized"] = triton_bodies.finalized(Pe(context, PROCESS))
        done("finalized")
    # Modules that are loaded already.
    with group.join("second") as context:
        pe = Pe(context, PROCESS)
        found["counts"] = triton_bodies.counts(pe)
        done("counts")
        found["refusals"] = triton_bodies.refusals(pe)
        done("refusals")
    options = {"heap_bytes": 1 << 20, "wait_timeout_s": 1.0}
    with Context(Context.unique_id(), 0, 1, **options) as context:
        found["timeouts"] = triton_bodies.timeouts(Pe(context, PROCESS))
    return found


def main() -> int:
    part, rank, world, folder = sys.argv[1:]
    device.install_hook()
    found = {"values": values, "ends": ends}[part](Group(int(rank), int(world), folder))
    print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
