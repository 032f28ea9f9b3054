"""The second part of the demonstration: the KV cache of the text moves from a prefill engine to a
decode engine, once over each backend that this machine has, and every byte is verified.

kv.py says what the cache holds, kv_engine.py what the two processes do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mori.demo import kv
from mori.demo.group import DemoError, Group

_SPARE_BLOCKS = 8  # that nothing may be written to


@dataclass(frozen=True)
class _Way:
    """One row of the table."""

    name: str
    backend: str
    alloc: bool = False
    security: str = "default"


_WAYS = (
    _Way("XGMI, shared memory", "XGMI", alloc=True),
    _Way("XGMI, attached memory", "XGMI"),
    _Way("RDMA", "RDMA"),
    _Way("TCP", "TCP"),
    _Way("TCP, trusted", "TCP", security="trusted"),
)


def _available(way: _Way) -> str:
    """Why this backend cannot be had here; "" if it can."""
    from mori.errors import MoriError
    from mori.io import BackendType, IOEngine, IOEngineConfig

    with IOEngine("demo-probe", IOEngineConfig("127.0.0.1")) as engine:
        try:
            engine.create_backend(BackendType[way.backend])
        except MoriError as error:
            return str(error)
    return ""


def _jobs(way: _Way, words: list[str], options: Any) -> list[dict[str, Any]]:
    room = len(words) // kv.BLOCK_TOKENS + _SPARE_BLOCKS
    return [
        {
            "name": role,
            "role": role,
            "backend": way.backend,
            "alloc": way.alloc,
            "security": way.security,
            "room": room,
            "words": words,
            "seed": options.seed,
            "corrupt": bool(options.corrupt),
            "timeout_s": options.timeout,
        }
        for role in ("prefill", "decode")
    ]


def _row(way: _Way, sent: dict[str, Any], got: dict[str, Any]) -> str:
    rate = sent["bytes"] / kv.LAYERS / sent["layer_s"] / 1e9 if sent["layer_s"] > 0 else 0.0
    wrong = got["wrong"] + got["strayed"]
    return (
        f" {way.name:22s}| {sent['bytes'] / 1e6:7.1f} {sent['compute_s'] * 1e3:8.0f} |"
        f" {sent['layer_s'] * 1e3:8.2f} {rate:6.2f} {sent['overlapped']:6d}/{kv.LAYERS}"
        f" {sent['exposed_s'] * 1e3:8.1f} | {got['checked']:11d} {wrong:6d}"
    )


_HEAD = (
    "                       |      prefill     |    a layer's writes, decode notified    |"
    "      bytes\n"
    " backend               |      MB  compute |       ms   GB/s  behind it  left ms |"
    "    verified  wrong"
)


def memory_bytes(tokens: int) -> int:
    """What the two processes take."""
    blocks = tokens // kv.BLOCK_TOKENS + _SPARE_BLOCKS
    return 2 * (kv.LAYERS * blocks * kv.BLOCK_BYTES + (256 << 20))


def run(words: list[str], options: Any, progress: Callable[[str], None]) -> bool:
    """Over each backend in turn; whether every byte was right everywhere."""
    from mori.info import available_bytes

    need, available = memory_bytes(len(words)), available_bytes()
    if available is not None and need > available:
        raise DemoError(
            f"the KV cache of {len(words)} tokens may take {need / 2**30:.1f} GiB in two "
            f"processes, {available / 2**30:.1f} GiB are available: pass smaller --kv-tokens"
        )
    blocks = len(words) // kv.BLOCK_TOKENS
    progress(
        f"KV cache of {len(words)} tokens: {kv.LAYERS} layers of {blocks} blocks, "
        f"{kv.WIDTH} bfloat16 values a token; a prefill and a decode engine"
    )
    if options.corrupt:
        progress("--corrupt: prefill will flip one bit of one layer's block before it is sent")
    rows, complaints, moved = [], [], 0
    for way in _WAYS:
        reason = _available(way)
        if reason:
            rows.append(f" {way.name:22s}| not here: {reason}")
            continue
        group = Group("mori.demo.kv_engine", "engine", _jobs(way, words, options), options.timeout)
        try:
            sent, got = group.watch(lambda _: None)
        finally:
            group.close()
        moved += 1
        rows.append(_row(way, sent, got))
        if sent["backend"] != way.backend:
            rows.append(f"   went over {sent['backend']}: {sent['reason']}")
        if got["strayed"]:
            complaints.append(f"{way.name}: {got['strayed']} values outside the text's blocks")
        if got["wrong"] or got["checked"] != sent["bytes"]:
            complaints.append(f"{way.name}: {got['first_wrong'] or 'bytes are missing'}")
    print("\n".join((_HEAD, *rows)))
    if not moved:
        raise DemoError("no backend moves bytes here")
    for complaint in complaints:
        print(f"first mismatch over {complaint}")
    progress(f"{moved} of {len(_WAYS)} ways: every byte verified, {len(complaints)} with faults")
    return not complaints
