"""The target of `mori bench io`, in a process of its own: an engine with memory, until the starter
closes its standard input. Says one line of JSON: its descriptors, or an error; reads one: the
initiator's.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from mori.errors import MoriError
from mori.io import BackendType, EngineDesc, IOEngine, IOEngineConfig, MemoryDesc


def engine_with_memory(name: str, job: dict[str, Any]) -> tuple[IOEngine, np.ndarray, MemoryDesc]:
    """An engine, its memory and the memory's descriptor, as the job says."""
    config = IOEngineConfig(job["host"], security=job["security"], spin_us=job["spin_us"])
    engine = IOEngine(name, config)
    engine.create_backend(BackendType[job["backend"]])
    memory = engine.alloc(job["bytes"]) if job["alloc"] else np.zeros(job["bytes"], np.uint8)
    return engine, memory, engine.register_torch_tensor(memory)


def _say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def main() -> int:
    job = json.loads(sys.argv[1])
    try:
        engine, memory, region = engine_with_memory("bench-target", job)
        with engine:
            memory[:] = 2
            _say(engine=engine.get_engine_desc().pack().hex(), memory=region.pack().hex())
            engine.register_remote_engine(EngineDesc.unpack(bytes.fromhex(sys.stdin.readline())))
            _say(ready=True)
            sys.stdin.read()
            del memory
    except (MoriError, ValueError) as error:
        _say(error=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
