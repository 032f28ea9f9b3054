"""The command: checks this node, or this node and another one, and prints what was found."""

from __future__ import annotations

import argparse
import json
import sys

from mori.doctor import node, pair
from mori.doctor.answer import FAIL, Answer

EXAMPLES = """examples:
  mori doctor                          this node
  mori doctor --listen 7000            on one node, then on another one
  mori doctor --connect node1:7000     both print what they found

exit status: 0 nothing failed (there may be warnings), 1 a check failed or the other node was not
reached, 2 wrong use"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `mori doctor`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--listen", metavar="[HOST:]PORT", help="wait for the other node's --connect"
    )
    which.add_argument("--connect", metavar="HOST:PORT", help="the node that listens")
    parser.add_argument("--wait", type=float, default=60.0, help="seconds to listen (60)")
    parser.add_argument("--json", action="store_true", help="for programs: one JSON object")


def _print(title: str, answers: list[Answer]) -> None:
    print(title)
    width = max(len(one.name) for one in answers)
    for one in answers:
        print(f"  {one.state:4s}  {one.name.ljust(width)}  {one.found}")
        if one.fix:
            print(f"  {'':4s}  {'':{width}}  -> {one.fix}")


def _say_port(port: int) -> None:
    print(f"listening on port {port}", file=sys.stderr, flush=True)


def main(options: argparse.Namespace) -> int:
    """Returns the exit status: 0 nothing failed, 1 something did."""
    groups = {"node": node.check_node()}
    problem = ""
    try:
        if options.listen:
            groups["pair"] = pair.listen(options.listen, options.wait, _say_port)
        elif options.connect:
            groups["pair"] = pair.connect(options.connect)
    except pair.PairError as error:
        problem = str(error)
    failed = bool(problem) or any(a.state == FAIL for many in groups.values() for a in many)
    if options.json:
        report = {name: [one.fields() for one in many] for name, many in groups.items()}
        print(json.dumps({"ok": not failed, "problem": problem, **report}, indent=1))
    else:
        _print("this node", groups["node"])
        if "pair" in groups:
            _print("this node and the other", groups["pair"])
    if problem:
        print(f"mori doctor: {problem}", file=sys.stderr)
    return 1 if failed else 0
