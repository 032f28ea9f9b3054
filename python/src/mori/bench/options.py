"""The options of `mori bench io`; needs no library, so that `mori --help` does not either."""

from __future__ import annotations

import argparse
from pathlib import Path

_DEFAULT_SIZES = tuple(1 << power for power in range(3, 21))


def _numbers(text: str) -> tuple[int, ...]:
    try:
        values = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} are not whole numbers by commas") from None
    if min(values) < 1:
        raise argparse.ArgumentTypeError(f"{min(values)} is less than 1")
    return values


def add_options(parser: argparse.ArgumentParser) -> None:
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
    parser.add_argument("--json", action="store_true", help="for programs: one JSON object")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="also a picture")
