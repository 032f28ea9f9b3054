"""Runs both parts of the demonstration and judges them.

First the PEs (pe.py): outputs come back in an anonymous memory file, so that nothing is left on
disk, and each row is compared with model.Reference. Then the KV cache of the text moves between two
engines: kv_run.py. group.py starts the processes and watches them.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mori.demo import kv, kv_run, model, pe
from mori.demo.group import DemoError, Group

_BLOCK = 256  # unique words compared at a time; bounds the memory of the comparison


def _default_text() -> tuple[str, str]:
    """The project's README and where it was found."""
    try:
        metadata = importlib.metadata.distribution("mori").read_text("METADATA") or ""
        readme = metadata.partition("\n\n")[2]  # headers, an empty line, the README
        if model.words_of(readme):
            return readme, "the README"
    except importlib.metadata.PackageNotFoundError:
        """Run from the source tree."""
    path = Path(__file__).resolve().parents[4] / "README.md"
    if path.exists():
        return path.read_text("utf-8"), "README.md"
    raise DemoError("there is no README to read here: pass --text FILE")


def _text_words(options: argparse.Namespace) -> tuple[list[str], str]:
    """All words of the text, and what it is called."""
    if options.text is None:
        text, name = _default_text()
    else:
        try:
            text, name = options.text.read_text("utf-8", errors="replace"), str(options.text)
        except OSError as error:
            raise DemoError(f"cannot read {options.text}: {error.strerror}") from None
    words = model.words_of(text)
    if not words:
        raise DemoError(f"{name} has no words")
    return words, name


def _cut(words: list[str], wanted: int) -> list[str]:
    """The words repeated, or cut, to so many."""
    return (words * -(-wanted // len(words)))[:wanted]


def _words(words: list[str], name: str, options: argparse.Namespace) -> list[str]:
    """The words of the first part: --words for each PE."""
    wanted = options.pes * options.words
    used = f"its first {wanted}" if len(words) > wanted else "all of them"
    if len(words) < wanted:
        used = f"repeated to {wanted}"
    distinct = len(set(words[:wanted]))
    _progress(f"text: {name}, {len(words)} words, {used}; {distinct} distinct")
    return _cut(words, wanted)


_started = time.monotonic()


def _progress(text: str) -> None:
    print(f"[{time.monotonic() - _started:5.1f} s] {text}", flush=True)


def _heap_bytes(options: argparse.Namespace) -> int:
    """What the operator takes from the heap, and room for the library's own first bytes.

    DemoError when all PEs together would not fit into this machine's memory.
    """
    from mori.info import available_bytes
    from mori.ops import EpDispatchCombineOp

    need = EpDispatchCombineOp.memory(pe.operator_config(0, options.pes, options.words))
    heap = need.symmetric_bytes + need.symmetric_bytes // 64 + (16 << 20)
    # Beside the heap: the operator's own memory, expert outputs, experts, the interpreter.
    rows = options.words * options.pes
    private = need.private_bytes + rows * pe.row_bytes() + (256 << 20)
    total, available = options.pes * (heap + private), available_bytes()
    if available is not None and total > available:
        raise DemoError(
            f"{options.pes} PEs with {options.words} words each may take {total / 2**30:.1f} GiB, "
            f"{available / 2**30:.1f} GiB are available: pass smaller --words or --pes"
        )
    return heap


def _jobs(
    options: argparse.Namespace, words: list[str], heap_bytes: int, output_fd: int
) -> Iterator[dict[str, Any]]:
    corrupt_pe = -1
    if options.corrupt:
        # The rank of the first word's first expert: it surely receives a row.
        experts, _ = model.route(model.embed(words[:1], options.seed), options.seed)
        corrupt_pe = int(experts[0, 0]) // (model.EXPERTS // options.pes)
        _progress(f"--corrupt: PE {corrupt_pe} will flip the signs of one row that it received")
    for number in range(options.pes):
        first = number * options.words
        yield {
            "name": f"PE {number}",
            "pe": number,
            "pes": options.pes,
            "words": words[first : first + options.words],
            "words_per_pe": options.words,
            "seed": options.seed,
            "corrupt_pe": corrupt_pe,
            "heap_bytes": heap_bytes,
            "timeout_s": options.timeout,
            "output_fd": output_fd,
        }


@dataclass
class _Verdict:
    """What the comparison found. `worst` is the largest error as a share of its tolerance."""

    rows: int = 0
    bad_rows: int = 0
    worst: float = 0.0
    first_bad: str = ""

    def add(self, rows: int, worst: float) -> None:
        """So many rows, whose largest error is `worst` of the tolerance."""
        self.rows += rows
        self.bad_rows += rows if not worst <= 1.0 else 0
        self.worst = max(self.worst, worst)


def _compare(outputs: np.ndarray, words: list[str], options: argparse.Namespace) -> _Verdict:
    """Each row of `outputs` (bfloat16 bits) against the layer computed from words and seed."""
    reference = model.Reference(options.seed, options.pes)
    places: dict[str, list[int]] = {}
    for row, word in enumerate(words):
        places.setdefault(word, []).append(row)
    vocabulary = list(places)
    verdict = _Verdict()
    for start in range(0, len(vocabulary), _BLOCK):
        block = vocabulary[start : start + _BLOCK]
        expected, tolerance = reference.rows(block)
        for at, word in enumerate(block):
            rows = np.array(places[word])
            bits = outputs[rows]
            # Equal words are equal tokens: rows that are bitwise alike share one verdict.
            alike = (bits == bits[0]).all(axis=1)
            for row in [rows[0], *rows[~alike]]:
                judged = np.count_nonzero(alike) if row == rows[0] else 1
                found = model.from_bf16(outputs[row])
                share = np.abs(found - expected[at]) / tolerance[at]
                # A NaN is no number within the tolerance either.
                share = np.nan_to_num(share, nan=np.inf)
                element = int(np.argmax(share))
                verdict.add(int(judged), float(share[element]))
                if not share[element] <= 1.0 and not verdict.first_bad:
                    verdict.first_bad = (
                        f"PE {row // options.words}, token {row % options.words} ({word!r}), "
                        f"element {element}: {found[element]:.6g}, expected "
                        f"{expected[at, element]:.6g} +- {tolerance[at, element]:.2g}"
                    )
    return verdict


def _rate(rows: int, seconds: float) -> str:
    return f"{rows * pe.row_bytes() / seconds / 1e9:6.2f}" if seconds > 0 else "     -"


def _table(results: list[dict[str, Any]]) -> str:
    lines = [
        "          |           dispatch              | experts |           combine",
        " PE tokens|  rows in      MB      ms    GB/s|      ms | rows back   MB      ms    GB/s",
    ]
    megabytes = pe.row_bytes() / 1e6
    for number, one in enumerate(results):
        lines.append(
            f"{number:3d} {one['tokens']:6d}| {one['rows_in']:8d} {one['rows_in'] * megabytes:7.1f}"
            f" {one['dispatch_s'] * 1e3:7.1f}  {_rate(one['rows_in'], one['dispatch_s'])}|"
            f" {one['experts_s'] * 1e3:7.0f} | {one['rows_back']:8d}"
            f" {one['rows_back'] * megabytes:6.1f} {one['combine_s'] * 1e3:7.1f}"
            f"  {_rate(one['rows_back'], one['combine_s'])}"
        )
    return "\n".join(lines)


def _summary(results: list[dict[str, Any]], options: argparse.Namespace) -> str:
    totals = [one["dispatch_s"] + one["experts_s"] + one["combine_s"] for one in results]
    slowest = int(np.argmax(totals))
    rows = [one["rows_in"] for one in results]
    busiest = int(np.argmax(rows))
    hottest = max(one["busiest_expert_rows"] for one in results)
    mean = options.pes * options.words * model.TOP_K / model.EXPERTS
    return (
        f"slowest rank: PE {slowest}, {totals[slowest] * 1e3:.0f} ms for dispatch, experts and "
        f"combine\nload skew: PE {busiest} received {rows[busiest] / np.mean(rows):.2f} times the "
        f"mean, the busiest expert {hottest / mean:.2f} times the mean"
    )


def _layer_part(text: list[str], name: str, options: argparse.Namespace) -> bool:
    """The first part; whether all rows were right."""
    heap_bytes = _heap_bytes(options)
    words = _words(text, name, options)
    total = options.pes * options.words
    output_fd = os.memfd_create("mori-demo-output")
    try:
        os.ftruncate(output_fd, total * pe.row_bytes())
        _progress(
            f"{options.pes} PEs, {options.words} tokens each: hidden {model.HIDDEN}, "
            f"{model.EXPERTS} experts, top-{model.TOP_K}, bfloat16"
        )
        group = Group(
            "mori.demo.pe",
            "PE",
            list(_jobs(options, words, heap_bytes, output_fd)),
            options.timeout,
        )
        try:
            results = group.watch(_progress)
        finally:
            group.close()
        print(_table(results))
        print(_summary(results, options))
        _progress("comparing each row with the layer computed in one process from text and seed")
        outputs = np.memmap(
            f"/proc/self/fd/{output_fd}", np.uint16, "r", shape=(total, model.HIDDEN)
        )
        verdict = _compare(outputs, words, options)
    finally:
        os.close(output_fd)
    _progress(
        f"{verdict.rows} rows compared, {verdict.bad_rows} wrong; largest error "
        f"{verdict.worst:.2f} of what bfloat16 arithmetic explains"
    )
    if verdict.bad_rows or verdict.rows != total:
        print(f"first mismatch: {verdict.first_bad}")
        return False
    return True


def run(options: argparse.Namespace) -> int:
    """The demonstration; returns the exit status."""
    text, name = _text_words(options)
    good = True
    if options.part in ("all", "layer"):
        good = _layer_part(text, name, options)
    if options.part in ("all", "kv"):
        tokens = -(-options.kv_tokens // kv.BLOCK_TOKENS) * kv.BLOCK_TOKENS
        good &= kv_run.run(_cut(text, tokens), options, _progress)
    print("demo: OK" if good else "demo: FAILED")
    return 0 if good else 1


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `mori demo`."""

    def at_least(least: int) -> Callable[[str], int]:
        def parse(text: str) -> int:
            try:
                value = int(text)
            except ValueError:
                raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
            if value < least:
                raise argparse.ArgumentTypeError(f"{value} is less than {least}")
            return value

        return parse

    parser.add_argument("--text", type=Path, metavar="FILE", help="text to read; default: README")
    parser.add_argument("--pes", type=at_least(1), default=8, help="PE processes (8)")
    parser.add_argument("--words", type=at_least(1), default=1024, help="words per PE (1024)")
    parser.add_argument(
        "--kv-tokens", type=at_least(1), default=1024, help="tokens of the KV cache (1024)"
    )
    parser.add_argument(
        "--part", choices=("all", "layer", "kv"), default="all", help="only one of the parts"
    )
    parser.add_argument("--seed", type=at_least(0), default=1, help="of all weights (1)")
    parser.add_argument(
        "--corrupt",
        action="store_true",
        help="flip one routed row, and one bit of the cache, on the way: must be noticed",
    )
    parser.add_argument(
        "--timeout", type=at_least(1), default=300, help="seconds for the PEs together (300)"
    )


def main(options: argparse.Namespace) -> int:
    """`mori demo`; returns the exit status: 0 OK, 1 failed, 2 wrong use."""
    if model.EXPERTS % options.pes:
        print(
            f"mori demo: --pes is {options.pes}, which does not divide {model.EXPERTS} experts",
            file=sys.stderr,
        )
        return 2
    try:
        return run(options)
    except (DemoError, ImportError) as error:
        print(f"mori demo: {error}\ndemo: FAILED", file=sys.stderr)
        return 1
