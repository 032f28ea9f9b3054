"""Counters of sessions, backends and engines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mori._enums import BackendType
from mori._raw import CData, text


@dataclass(frozen=True)
class Stats:
    """Counters of a session, or of a backend over all sessions and since it was made.

    backend          the session's at present
    is_alive         both regions registered, some backend in order, peer not known to be dead
    *_count          transfers: submitted, and how they ended; retry and failover of them; inbound:
                     notifications received, and dropped because nobody took them
    read_bytes, written_bytes
    latency_*_s      submission to completion of successful transfers: percentiles within 10 %
    reason           why this backend and not a better one
    """

    backend: BackendType
    is_alive: bool
    transfer_count: int
    success_count: int
    failure_count: int
    cancel_count: int
    retry_count: int
    failover_count: int
    inbound_count: int
    inbound_dropped_count: int
    read_bytes: int
    written_bytes: int
    latency_p50_s: float
    latency_p90_s: float
    latency_p99_s: float
    latency_max_s: float
    reason: str

    @classmethod
    def of_report(cls, report: CData) -> Stats:
        """From a mori_io_stats."""
        converted = {
            "backend": BackendType(report.backend),
            "is_alive": bool(report.is_alive),
            "reason": text(report.reason),
        }
        for name in ("p50", "p90", "p99", "max"):
            converted[f"latency_{name}_s"] = getattr(report, f"latency_{name}_ns") / 1e9
        plain = cls.__dataclass_fields__.keys() - converted.keys()
        return cls(**converted, **{name: int(getattr(report, name)) for name in plain})


def merged_metrics(texts: Iterable[str]) -> str:
    """Prometheus texts of several engines as one: lines of a metric stand together, its HELP and
    TYPE once."""
    heads: dict[str, dict[str, str]] = {}
    samples: dict[str, list[str]] = {}
    for one in texts:
        family = ""
        for line in one.splitlines():
            if line.startswith("# "):
                _, kind, family = line.split(" ", 3)[:3]
                heads.setdefault(family, {}).setdefault(kind, line)
            elif line.strip():
                name = line.split("{", 1)[0].split(" ", 1)[0]
                # A summary's or histogram's samples (_sum, _count, _bucket) belong to it.
                owner = family if family and name.startswith(family) else name
                samples.setdefault(owner, []).append(line)
    lines = []
    for family in {**heads, **samples}:
        lines += [*heads.get(family, {}).values(), *samples.get(family, ())]
    return "".join(f"{line}\n" for line in lines)
