"""The library's log: the level of what goes to stderr, and the records as Python objects."""

from __future__ import annotations

from dataclasses import dataclass

from mori._ffi import constant
from mori._raw import number, text
from mori._raw import shmem as raw
from mori.errors import InvalidError

_LEVELS = {
    name: constant(f"MORI_LOG_{name.upper()}")
    for name in ("off", "error", "warn", "info", "debug", "trace")
}
_QUEUE_COUNT = 1024  # capacity of the library's queue; bounds a drain while others log


@dataclass(frozen=True)
class LogRecord:
    """One line of the log. time_ns counts from 1970; dropped_count records were lost before."""

    level: int
    time_ns: int
    os_thread_id: int
    dropped_count: int
    message: str


def set_log_level(level: str | int) -> None:
    """What is logged: "off", "error", "warn" (the default), "info", "debug", "trace"."""
    if isinstance(level, str):
        known = _LEVELS.get(level.lower())
        if known is None:
            raise InvalidError(f"level is {level!r}, expected one of {', '.join(_LEVELS)}")
        level = known
    raw.mori_shmem_log_set_level(number(level, "level", "int32_t"))


def drain_log() -> list[LogRecord]:
    """Takes what the library has logged since the last call, at most its 1024 latest records."""
    records: list[LogRecord] = []
    while len(records) < _QUEUE_COUNT and (record := raw.mori_shmem_log_next()) is not None:
        records.append(
            LogRecord(
                record.level,
                record.time_ns,
                record.os_thread_id,
                record.dropped_count,
                text(record.message),
            )
        )
    return records
