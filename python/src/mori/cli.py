"""The command-line tool: `mori info` tells what is here, `mori doctor` what stands in the way,
`mori demo` that it works, `mori bench` how fast it is."""

from __future__ import annotations

import argparse
import os
import sys

import mori
from mori.demo import ONE_BLAS_THREAD

# Before anything imports numpy, which reads them once: the demonstration's matrices are so thin
# that further threads only spin.
for _name, _value in ONE_BLAS_THREAD.items():
    os.environ.setdefault(_name, _value)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mori",
        description="symmetric memory, expert-parallel dispatch and combine, KV-cache transfer",
    )
    parser.add_argument("--version", action="version", version=f"mori {mori.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
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
    bench = commands.add_parser("bench", help="how fast transfers are here")
    what = bench.add_subparsers(dest="what", required=True, metavar="WHAT")
    _add_bench_io(what.add_parser("io", help="between two engines in two processes"))
    return parser


def _add_bench_io(parser: argparse.ArgumentParser) -> None:
    # The options alone: the module that has them loads the library.
    from mori.bench.options import add_options

    add_options(parser)


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0 fine, 1 failed, 2 wrong use, 130 interrupted."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "info":
            from mori import info

            return info.main(options)
        if options.command == "doctor":
            from mori.doctor import command

            return command.main(options)
        if options.command == "bench":
            from mori.bench import io

            return io.main(options)
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
