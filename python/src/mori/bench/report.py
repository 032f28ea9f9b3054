"""Rows of a benchmark as they are measured: a table on a terminal, JSON, CSV, a picture."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mori.bench import plot


class BenchError(Exception):
    """It cannot run; the message is for the user."""


@dataclass(frozen=True)
class Column:
    """A column: its title, the row's field, how a number is written."""

    title: str
    key: str
    style: str


class Report:
    """Takes rows, shows each at once, and at the end writes what was asked for.

    settings  what the run was, for JSON
    columns   of the table; CSV has them all by their keys, JSON every field
    picture   what plot.py shows
    """

    def __init__(
        self,
        options: argparse.Namespace,
        title: str,
        settings: dict[str, Any],
        columns: tuple[Column, ...],
        picture: plot.Picture,
    ) -> None:
        self._options, self._title, self._settings = options, title, settings
        self._columns, self._picture = columns, picture
        self._rows: list[dict[str, Any]] = []
        # A line that the next one replaces, for whoever waits; nothing in a file or a pipe.
        self._shows_progress = sys.stderr.isatty()
        # What cannot be written is said before anything is measured.
        if options.plot is not None:
            plot.refuse_what_cannot_be(options.plot)
        if options.csv is not None:
            self._write_csv()
        if not options.json:
            print(title)
            print("  ".join(one.title for one in columns), flush=True)

    def progress(self, done: int, of: int, what: str) -> None:
        """What is being measured now."""
        if self._shows_progress:
            bar = ("#" * (20 * done // max(of, 1))).ljust(20, ".")
            print(f"\r[{bar}] {done}/{of} {what}\x1b[K", end="", file=sys.stderr, flush=True)

    def add(self, row: dict[str, Any]) -> None:
        """A measured row."""
        self._rows.append(row)
        if self._shows_progress:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        if not self._options.json:
            cells = (format(row[c.key], c.style).rjust(len(c.title)) for c in self._columns)
            print("  ".join(cells), flush=True)

    def take(self, rows: Iterable[dict[str, Any]], of: int) -> None:
        """All rows as they are measured, then what was asked for."""
        self.progress(0, of, "starting")
        for done, row in enumerate(rows, 1):
            self.add(row)
            self.progress(done, of, "")
        if self._shows_progress:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        self.finish()

    def finish(self) -> None:
        """Everything is measured."""
        if self._options.json:
            print(json.dumps({**self._settings, "rows": self._rows}, indent=1))
        if self._options.csv is not None:
            self._write_csv()
        if self._options.plot is not None:
            plot.write(self._rows, self._title, self._options.plot, self._picture)

    def _write_csv(self) -> None:
        path: Path = self._options.csv
        try:
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, [c.key for c in self._columns], extrasaction="ignore")
                writer.writeheader()
                writer.writerows(self._rows)
        except OSError as error:
            raise BenchError(f"cannot write {path}: {error.strerror}") from None
