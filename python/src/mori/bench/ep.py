"""`mori bench ep`: dispatch and combine of all PEs, for growing numbers of tokens.

Routing is random and the same in each run. Times are PE 0's, from a barrier on; a PE waits for the
slowest in each of them. Combined values are checked: with experts that change nothing a token comes
back once for each PE that it went to.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from mori.bench import plot
from mori.bench.pes import pe_count, rows_of, shows_rows
from mori.bench.report import BenchError, Column, Report
from mori.shmem import Context

_WARM_UP = 2
_SEED = 1
_ELEMENT_BYTES = 4
_COLUMNS = (
    Column("Tokens", "token_count", "d"),
    Column("Rows in", "received_count", "d"),
    Column("Dispatch (us)", "dispatch_avg_us", ".1f"),
    Column("Min (us)", "dispatch_min_us", ".1f"),
    Column("Combine (us)", "combine_avg_us", ".1f"),
    Column("Min (us)", "combine_min_us", ".1f"),
    Column("Dispatch (GB/s)", "dispatch_gb_per_s", ".3f"),
    Column("Combine (GB/s)", "combine_gb_per_s", ".3f"),
)
_PICTURE = plot.Picture(
    ("token_count", "tokens of each PE"),
    (
        plot.Panel(
            "bandwidth, GB/s", (("dispatch_gb_per_s", "dispatch"), ("combine_gb_per_s", "combine"))
        ),
        plot.Panel(
            "time, us", (("dispatch_avg_us", "dispatch"), ("combine_avg_us", "combine")), True
        ),
    ),
)


def _routing(context: Context, job: dict[str, Any], tokens: int) -> np.ndarray:
    """Distinct experts of each token, [tokens, top_k]."""
    generator = np.random.default_rng([_SEED, context.pe, tokens])
    experts = job["experts"] * context.pe_count
    scores = generator.random((tokens, experts))
    return np.argsort(scores, axis=1)[:, : job["top_k"]].astype(np.int32)


def _operator(context: Context, job: dict[str, Any]) -> Any:
    from mori.ops import EpDispatchCombineConfig, EpDispatchCombineOp

    config = EpDispatchCombineConfig(
        rank=context.pe,
        world_size=context.pe_count,
        hidden_dim=job["hidden"],
        scale_dim=0,
        scale_type_size=0,
        max_token_type_size=_ELEMENT_BYTES,
        max_num_inp_token_per_rank=max(job["tokens"]),
        num_experts_per_rank=job["experts"],
        num_experts_per_token=job["top_k"],
    )
    return EpDispatchCombineOp(config, context=context)


def _row(context: Context, op: Any, job: dict[str, Any], tokens: int) -> dict[str, Any]:
    routing = _routing(context, job, tokens)
    inputs = np.ones((tokens, job["hidden"]), np.float32)
    inputs *= np.arange(1, tokens + 1, dtype=np.float32)[:, None] % 7 + 1
    dispatches, combines, received = [], [], 0
    for turn in range(_WARM_UP + job["iters"]):
        context.barrier_all()
        start = time.perf_counter_ns()
        out, _, _, _, count = op.dispatch(inputs, None, None, routing)
        dispatched = time.perf_counter_ns()
        received = int(count[0])
        outputs = out[:received].copy()
        context.barrier_all()
        before = time.perf_counter_ns()
        combined, _ = op.combine(outputs, None, routing)
        after = time.perf_counter_ns()
        if turn >= _WARM_UP:
            dispatches.append((dispatched - start) / 1e3)
            combines.append((after - before) / 1e3)
    ranks = np.sort(routing // job["experts"], axis=1)
    distinct = 1 + np.count_nonzero(ranks[:, 1:] != ranks[:, :-1], axis=1)
    if not (combined[:tokens] == inputs * distinct[:, None]).all():
        raise BenchError(f"wrong values after combine of {tokens} tokens")
    row_bytes = job["hidden"] * _ELEMENT_BYTES
    dispatch, combine = sum(dispatches) / len(dispatches), sum(combines) / len(combines)
    return {
        "token_count": tokens,
        "received_count": received,
        "dispatch_avg_us": dispatch,
        "dispatch_min_us": min(dispatches),
        "combine_avg_us": combine,
        "combine_min_us": min(combines),
        "dispatch_gb_per_s": received * row_bytes / dispatch / 1e3,
        "combine_gb_per_s": int(distinct.sum()) * row_bytes / combine / 1e3,
    }


def rows(context: Context, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What every PE does; each measures its own calls."""
    op = _operator(context, job)
    for tokens in job["tokens"]:
        yield _row(context, op, job, tokens)
    context.barrier_all()
    del op


def main(options: argparse.Namespace) -> int:
    """Returns the exit status: 0 fine; raises BenchError and PlotError."""
    pes = pe_count(options.pes)
    if options.top_k > pes * options.experts:
        total = pes * options.experts
        raise BenchError(f"--top-k is {options.top_k}, there are {total} experts")
    names = ("tokens", "hidden", "experts", "top_k", "iters")
    job = {name: getattr(options, name) for name in names}
    # A PE receives at most what all send, in and out, beside what the operator keeps.
    largest = max(options.tokens) * pes * options.hidden * _ELEMENT_BYTES
    heap = {"heap_bytes": 4 * largest + (64 << 20)}
    measured = rows_of("mori.bench.ep", rows, pes, {**job, **heap})
    if not shows_rows():
        for _ in measured:
            """Another process shows them."""
        return 0
    title = (
        f"{pes} PEs of the host back end, hidden {options.hidden} float32, "
        f"top {options.top_k} of {options.experts} experts each"
    )
    report = Report(options, title, {"pes": pes, **job}, _COLUMNS, _PICTURE)
    report.take(measured, len(options.tokens))
    return 0
