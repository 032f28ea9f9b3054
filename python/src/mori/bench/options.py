"""The options of `mori bench`; needs no library, so that `mori --help` does not either."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

_DEFAULT_SIZES = tuple(1 << power for power in range(3, 21))
_EXIT = "exit status: 0 fine, 1 failed or a wrong byte, 2 wrong use, 130 interrupted"
_IO_EXAMPLES = """examples:
  mori bench io                                    writes over TCP, 8 bytes to 1 MiB
  mori bench io --backend XGMI --batches 1         within a node
  mori bench io --plot io.svg --csv io.csv
"""
_SHMEM_EXAMPLES = """examples:
  mori bench shmem                                 two PEs of this node through mapped memory
  mori bench shmem --network                       the same two over TCP
  mpirun -n 2 -H a,b mori bench shmem              a PE on each of two hosts
"""
_EP_EXAMPLES = """examples:
  mori bench ep                                    two PEs, 1 to 512 tokens each
  mori bench ep --pes 8 --tokens 128 --json
  torchrun --nproc-per-node 4 -m mori bench ep     PEs that a launcher has started
"""


def _numbers(text: str) -> tuple[int, ...]:
    try:
        values = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} are not whole numbers by commas") from None
    if min(values) < 1:
        raise argparse.ArgumentTypeError(f"{min(values)} is less than 1")
    return values


def _at_least(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r}, expected a number of at least {least}")
        return int(text)

    return read


def _add_outputs(parser: argparse.ArgumentParser, examples: str) -> None:
    parser.add_argument("--json", action="store_true", help="for programs: one JSON object")
    parser.add_argument("--csv", type=Path, metavar="FILE.csv", help="also the table as CSV")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="also a picture; or .png")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"{examples}\n{_EXIT}"


def add_io_options(parser: argparse.ArgumentParser) -> None:
    """The options of `mori bench io`."""
    parser.add_argument("--backend", choices=("XGMI", "RDMA", "TCP"), default="TCP")
    parser.add_argument("--op", choices=("read", "write"), default="write")
    parser.add_argument(
        "--sizes", type=_numbers, default=_DEFAULT_SIZES, help="bytes, by commas; 8 .. 1048576"
    )
    parser.add_argument("--batches", type=_numbers, default=(1, 128), help="1,128")
    parser.add_argument("--iters", type=int, default=128, help="transfers of each kind (128)")
    parser.add_argument("--seconds", type=float, default=2.0, help="at most, for each row (2)")
    parser.add_argument("--host", default="127.0.0.1", help="address of both engines")
    parser.add_argument(
        "--security", choices=("default", "mac", "encrypt", "trusted"), default="default"
    )
    parser.add_argument("--spin-us", type=int, default=0, help="progress polls so long (0)")
    parser.add_argument(
        "--private", action="store_true", help="XGMI: ordinary memory, not the engine's"
    )
    _add_outputs(parser, _IO_EXAMPLES)


def add_shmem_options(parser: argparse.ArgumentParser) -> None:
    """The options of `mori bench shmem`."""
    parser.add_argument("--pes", type=_at_least(2), default=2, help="PEs to start (2)")
    parser.add_argument(
        "--sizes", type=_numbers, default=_DEFAULT_SIZES, help="bytes, by commas; 8 .. 1048576"
    )
    parser.add_argument("--iters", type=_at_least(1), default=200, help="calls of each kind (200)")
    parser.add_argument("--window", type=_at_least(1), default=32, help="puts before a quiet (32)")
    parser.add_argument("--network", action="store_true", help="map no peer: all over TCP")
    _add_outputs(parser, _SHMEM_EXAMPLES)


def add_ep_options(parser: argparse.ArgumentParser) -> None:
    """The options of `mori bench ep`."""
    parser.add_argument("--pes", type=_at_least(1), default=2, help="PEs to start (2)")
    parser.add_argument(
        "--tokens", type=_numbers, default=(1, 8, 64, 512), help="of each PE, by commas; 1 .. 512"
    )
    parser.add_argument("--hidden", type=_at_least(8), default=4096, help="elements a token (4096)")
    parser.add_argument("--experts", type=_at_least(1), default=32, help="of each PE (32)")
    parser.add_argument("--top-k", type=_at_least(1), default=8, help="experts of a token (8)")
    parser.add_argument("--iters", type=_at_least(1), default=20, help="of each kind (20)")
    _add_outputs(parser, _EP_EXAMPLES)
