"""The log of libmori-shmem; see mori/_log.py."""

from __future__ import annotations

from mori._log import LogRecord, drained, level_of
from mori._raw import shmem as raw


def set_log_level(level: str | int) -> None:
    """What is logged: "off", "error", "warn" (the default), "info", "debug", "trace"."""
    raw.mori_shmem_log_set_level(level_of(level))


def drain_log() -> list[LogRecord]:
    """Takes what the library has logged since the last call, at most its 1024 latest records."""
    return drained(raw.mori_shmem_log_next)
