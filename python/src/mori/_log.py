"""The log of a library: the levels of what goes to stderr, and the records as Python objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mori._ffi import constant
from mori._raw import CData, number, text
from mori.errors import InvalidError

LEVELS = {
    name: constant(f"MORI_LOG_{name.upper()}")
    for name in ("off", "error", "warn", "info", "debug", "trace")
}
# As other loggers say it.
_OTHER_NAMES = {"warning": "warn", "err": "error", "critical": "error"}
_QUEUE_COUNT = 1024  # capacity of the library's queue; bounds a drain while others log


@dataclass(frozen=True)
class LogRecord:
    """One line of the log. time_ns counts from 1970; dropped_count records were lost before."""

    level: int
    time_ns: int
    os_thread_id: int
    dropped_count: int
    message: str


def level_of(level: str | int) -> int:
    """The C value of a level; InvalidError for an unknown name."""
    if not isinstance(level, str):
        return number(level, "level", "int32_t")
    name = level.lower()
    known = LEVELS.get(_OTHER_NAMES.get(name, name))
    if known is None:
        raise InvalidError(f"level is {level!r}, expected one of {', '.join(LEVELS)}")
    return known


def drained(next_record: Callable[[], CData]) -> list[LogRecord]:
    """Takes records until there is none, at most a queue's worth."""
    records: list[LogRecord] = []
    while len(records) < _QUEUE_COUNT and (record := next_record()) is not None:
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
