"""One engine process of the demonstration's second part: prefill computes the cache layer by layer
and writes each layer as soon as it has it, decode checks each when its notification comes.

The protocol with the starter is in group.py. Both share descriptors first; then bytes move between
the two engines alone.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import numpy as np

from mori.demo import kv
from mori.demo.group import listen, say
from mori.io import BackendType, EngineDesc, IOEngine, IOEngineConfig, MemoryDesc, TransferStatus

_CORRUPT_LAYER = kv.LAYERS // 2


def _engine(job: dict[str, Any]) -> tuple[IOEngine, np.ndarray, MemoryDesc]:
    """The engine, its cache, poisoned, and the cache's descriptor."""
    engine = IOEngine(job["name"], IOEngineConfig("127.0.0.1", security=job["security"]))
    engine.create_backend(BackendType[job["backend"]])
    shape = kv.cache_shape(job["room"])
    size = int(np.prod(shape)) * 2
    memory = engine.alloc(size) if job["alloc"] else np.empty(size, np.uint8)
    cache = memory.view(np.uint16).reshape(shape)
    cache[:] = kv.POISON
    return engine, cache, engine.register_torch_tensor(cache)


def _offsets(layer: int, table: np.ndarray, room: int) -> np.ndarray:
    """Byte offsets of the text's blocks of one layer."""
    return ((layer * room + table) * kv.BLOCK_BYTES).astype(np.uint64)


def _prefill(job: dict[str, Any], lines: Any, own: tuple[IOEngine, np.ndarray, MemoryDesc]) -> Any:
    engine, cache, region = own
    say(share={"engine": engine.get_engine_desc().pack().hex(), "name": job["name"]})
    peer = lines.get(timeout=job["timeout_s"])["share"]
    engine.register_remote_engine(EngineDesc.unpack(bytes.fromhex(peer["engine"])))
    session = engine.create_session(
        region, MemoryDesc.unpack(bytes.fromhex(peer["memory"])), required=True
    )
    numbers = kv.words_as_numbers(job["words"], job["seed"])
    blocks = len(numbers) // kv.BLOCK_TOKENS
    table = kv.block_table(blocks, job["room"], job["seed"] + 1)
    remote_table = np.array(peer["table"])
    sizes = np.full(blocks, kv.BLOCK_BYTES, np.uint64)
    statuses: list[TransferStatus] = []
    overlapped, start = 0, time.perf_counter()
    for layer in range(kv.LAYERS):
        bits = kv.layer_bits(numbers, layer)
        cache[layer, table] = bits.reshape(blocks, kv.BLOCK_TOKENS, kv.WIDTH)
        if job["corrupt"] and layer == _CORRUPT_LAYER:
            cache[layer, table[blocks // 2], 7, 11] ^= 1
        overlapped = sum(status.Succeeded() for status in statuses)
        here = _offsets(layer, table, job["room"])
        there = _offsets(layer, remote_table, job["room"])
        statuses.append(session.batch_write(here, there, sizes, layer))
    computed = time.perf_counter()
    engine.wait_all(statuses, round(job["timeout_s"] * 1000))
    ended = time.perf_counter()
    for status in statuses:
        status.check()
    durations = [status.info().duration_s for status in statuses]  # type: ignore[union-attr]
    say(share="all of it has arrived")
    return {
        "backend": session.stats().backend.name,
        "reason": session.stats().reason,
        "compute_s": computed - start,
        "exposed_s": ended - computed,
        "overlapped": overlapped,
        "layer_s": float(np.median(durations)),
        "bytes": kv.LAYERS * blocks * kv.BLOCK_BYTES,
    }


def _decode(job: dict[str, Any], lines: Any, own: tuple[IOEngine, np.ndarray, MemoryDesc]) -> Any:
    engine, cache, region = own
    numbers = kv.words_as_numbers(job["words"], job["seed"])
    blocks = len(numbers) // kv.BLOCK_TOKENS
    table = kv.block_table(blocks, job["room"], job["seed"] + 2)
    say(
        share={
            "engine": engine.get_engine_desc().pack().hex(),
            "memory": region.pack().hex(),
            "table": table.tolist(),
        }
    )
    peer = lines.get(timeout=job["timeout_s"])["share"]
    engine.register_remote_engine(EngineDesc.unpack(bytes.fromhex(peer["engine"])))
    wrong, checked, first_wrong = 0, 0, ""
    for layer in range(kv.LAYERS):
        inbound = engine.wait_inbound(peer["name"], layer, job["timeout_s"])
        if inbound is None:
            raise TimeoutError(f"layer {layer} was not announced within {job['timeout_s']} s")
        found = cache[layer, table].reshape(-1, kv.WIDTH)
        expected = kv.layer_bits(numbers, layer)
        differ = found.view(np.uint8) != expected.view(np.uint8)
        checked += differ.size
        if differ.any():
            wrong += int(np.count_nonzero(differ))
            token, value = (int(i) for i in np.argwhere(found != expected)[0])
            first_wrong = first_wrong or (
                f"layer {layer}, token {token} ({job['words'][token]!r}), value {value}: "
                f"{int(found[token, value]):#06x}, expected {int(expected[token, value]):#06x}"
            )
    rest = np.setdiff1d(np.arange(job["room"]), table)
    strayed = int(np.count_nonzero(cache[:, rest] != kv.POISON))
    # Prefill must have heard of the end of its writes before this engine goes.
    lines.get(timeout=job["timeout_s"])
    return {"wrong": wrong, "checked": checked, "first_wrong": first_wrong, "strayed": strayed}


def main() -> int:
    lines = listen()
    job = lines.get()
    try:
        own = _engine(job)
        with own[0]:
            result = (_prefill if job["role"] == "prefill" else _decode)(job, lines, own)
            say(result=result)
            del own
    except Exception as error:
        second_hand = type(error).__name__ in ("PeerDeadError", "CancelledError")
        say(error=f"{type(error).__name__}: {error}", second_hand=second_hand)
        return 1
    return 0


if __name__ == "__main__":
    # Skips the interpreter's teardown: a thread sits in a read of standard input.
    code = main()
    sys.stdout.flush()
    os._exit(code)
