"""`mori run-tests`: whether this installation works here, in half a minute: each library does what
it is for between processes of this machine, and the bytes are compared. The tests of the source
tree are another matter (`bash tests/run.sh`).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import time
from collections.abc import Callable
from typing import Any

_EXAMPLES = """examples:
  mori run-tests                everything
  mori run-tests --only io      names of --list, or what they begin with

exit status: 0 all passed, 1 one failed, 2 wrong use or nothing of that name"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `mori run-tests`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    parser.add_argument("--only", metavar="NAME", default="", help="tests that begin so")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--json", action="store_true", help="for programs: one JSON object")


def _bench(what: str, *arguments: str) -> str:
    """A benchmark at its smallest, which checks its values; what it measured, in words."""
    import importlib

    from mori.cli import parser

    options = parser().parse_args(["bench", what, *arguments, "--json"])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        importlib.import_module(f"mori.bench.{what}").main(options)
    rows = json.loads(printed.getvalue())["rows"]
    return f"{len(rows)} sizes, values right"


def _libraries() -> str:
    from mori._ffi import load

    loaded = [load(name) for name in ("shmem", "ep", "io")]
    return ", ".join(f"{one.name} {'.'.join(map(str, one.version))}" for one in loaded)


_SHMEM = ("shmem", "--sizes", "8,65536", "--iters", "5")
_EP = (
    "ep",
    "--tokens",
    "1,33",
    "--hidden",
    "256",
    "--experts",
    "4",
    "--top-k",
    "3",
    "--iters",
    "2",
)
_IO = ("io", "--sizes", "8,65536", "--batches", "1,8", "--iters", "3")
TESTS: dict[str, Callable[[], str]] = {
    "libraries": _libraries,
    "shmem-mapped": lambda: _bench(*_SHMEM),
    "shmem-network": lambda: _bench(*_SHMEM, "--network"),
    "ep-two-pes": lambda: _bench(*_EP),
    "ep-four-pes": lambda: _bench(*_EP, "--pes", "4"),
    "io-tcp-write": lambda: _bench(*_IO),
    "io-tcp-read": lambda: _bench(*_IO, "--op", "read"),
    "io-encrypted": lambda: _bench(*_IO, "--security", "encrypt"),
    "io-same-node": lambda: _bench(*_IO, "--backend", "XGMI"),
}


def _outcome(name: str) -> dict[str, Any]:
    start = time.monotonic()
    try:
        found, passed = TESTS[name](), True
    except Exception as error:  # whatever it is, the other tests are to run
        found, passed = f"{type(error).__name__}: {error}", False
    return {"name": name, "passed": passed, "found": found, "seconds": time.monotonic() - start}


def main(options: argparse.Namespace) -> int:
    """Returns the exit status: 0 all passed, 1 one failed, 2 nothing of that name."""
    import sys

    names = [name for name in TESTS if name.startswith(options.only)]
    if not names:
        known = ", ".join(TESTS)
        print(f"mori run-tests: no test begins with {options.only!r}: {known}", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(names))
        return 0
    outcomes = []
    for name in names:
        outcomes.append(_outcome(name))
        if not options.json:
            mark = "ok" if outcomes[-1]["passed"] else "not ok"
            took = f"{outcomes[-1]['seconds']:.1f} s"
            print(f"{mark} - {name}: {outcomes[-1]['found']} ({took})", flush=True)
    passed = sum(one["passed"] for one in outcomes)
    if options.json:
        print(json.dumps({"ok": passed == len(outcomes), "tests": outcomes}, indent=1))
    else:
        print(f"{passed} passed, {len(outcomes) - passed} failed")
    return 0 if passed == len(outcomes) else 1
