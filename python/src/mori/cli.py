"""The command-line tool: `mori info` tells what is here, `mori doctor` what stands in the way,
`mori demo` that it works, `mori bench` how fast it is."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Any

import mori
from mori.demo import ONE_BLAS_THREAD

# Before anything imports numpy, which reads them once: the demonstration's matrices are so thin
# that further threads only spin.
for _name, _value in ONE_BLAS_THREAD.items():
    os.environ.setdefault(_name, _value)


def parser() -> argparse.ArgumentParser:
    """What the command understands."""
    made = argparse.ArgumentParser(
        prog="mori",
        description="symmetric memory, expert-parallel dispatch and combine, KV-cache transfer",
    )
    made.add_argument("--version", action="version", version=f"mori {mori.__version__}")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    info = commands.add_parser("info", help="versions, back ends, memory and settings found here")
    info.add_argument("--json", action="store_true", help="for programs: one JSON object")
    doctor = commands.add_parser("doctor", help="what stands in the way here, and what to do")
    from mori.doctor import command

    command.add_options(doctor)
    demo = commands.add_parser(
        "demo",
        help="a mixture-of-experts layer on a real text over 8 processes, and its KV cache moved "
        "between two engines, checked",
    )
    from mori.demo.run import add_options

    add_options(demo)
    bench = commands.add_parser("bench", help="how fast transfers, puts and layers are here")
    _add_bench(bench.add_subparsers(dest="what", required=True, metavar="WHAT"))
    tests = commands.add_parser("run-tests", help="whether this installation works here")
    from mori import self_test

    self_test.add_options(tests)
    return made


def _add_bench(what: Any) -> None:
    # The options alone: the modules that need them load the libraries.
    from mori.bench.options import add_ep_options, add_io_options, add_shmem_options

    add_shmem_options(what.add_parser("shmem", help="puts and gets between two PEs"))
    add_ep_options(what.add_parser("ep", help="dispatch and combine of all PEs"))
    add_io_options(what.add_parser("io", help="transfers between two engines in two processes"))


def _bench(options: argparse.Namespace) -> int:
    from mori.bench.plot import PlotError
    from mori.bench.report import BenchError

    try:
        return importlib.import_module(f"mori.bench.{options.what}").main(options)
    except (BenchError, PlotError, mori.MoriError) as error:
        print(f"mori bench {options.what}: {error}", file=sys.stderr)
        return 1


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0 fine, 1 failed, 2 wrong use, 130 interrupted."""
    options = parser().parse_args(arguments)
    try:
        if options.command == "info":
            from mori import info

            return info.main(options)
        if options.command == "doctor":
            from mori.doctor import command

            return command.main(options)
        if options.command == "run-tests":
            from mori import self_test

            return self_test.main(options)
        if options.command == "bench":
            return _bench(options)
        from mori.demo import run

        return run.main(options)
    except mori.MoriError as error:
        print(f"mori {options.command}: {error} ({error.status_name})", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read the output has seen enough; do not complain while closing it.
        sys.stdout = None  # type: ignore[assignment]
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
