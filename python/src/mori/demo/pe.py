"""One PE of the demonstration: reads its job from standard input, reports on standard output.

The protocol is in group.py; PE 0 shares the unique id, the others hear it. Standard input stays
open for the whole run: when it closes, the starter is gone and so is this process. Output rows go
to the memory file `output_fd`, at this PE's place.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import numpy as np

from mori.demo import model
from mori.demo.group import hear, leave_with_starter, say


def _run_experts(
    rows: np.ndarray, experts: np.ndarray, weights: np.ndarray, first: int, own: list[model.Expert]
) -> np.ndarray:
    """Weighted outputs of this PE's experts for received rows: bfloat16 bits [n, HIDDEN]."""
    outputs = np.empty(rows.shape, np.uint16)
    block = 512  # rows at a time, to keep the float32 working set small
    for start in range(0, len(rows), block):
        inputs = model.from_bf16(rows[start : start + block])
        ids, factors = experts[start : start + block], weights[start : start + block]
        total = np.zeros(inputs.shape, np.float32)
        for number, one in enumerate(own, first):
            row, slot = np.nonzero(ids == number)
            if row.size:
                total[row] += (factors[row, slot, None] * (inputs[row] @ one.down)) @ one.up
        outputs[start : start + block] = model.to_bf16(total)
    return outputs


def _store(descriptor: int, rows: np.ndarray, offset: int) -> None:
    data = np.ascontiguousarray(rows).data.cast("B")
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


def _operator(job: dict[str, Any], context: Any) -> Any:
    from mori.ops import EpDispatchCombineOp

    return EpDispatchCombineOp(
        operator_config(job["pe"], job["pes"], job["words_per_pe"]), context=context
    )


def operator_config(pe: int, pes: int, words_per_pe: int) -> Any:
    """The operator's configuration in DeepSeek-V3's shape."""
    from mori.ops import EpDispatchCombineConfig

    return EpDispatchCombineConfig(
        data_type="bfloat16",
        rank=pe,
        world_size=pes,
        hidden_dim=model.HIDDEN,
        scale_dim=0,
        scale_type_size=0,
        max_token_type_size=2,
        max_num_inp_token_per_rank=words_per_pe,
        num_experts_per_rank=model.EXPERTS // pes,
        num_experts_per_token=model.TOP_K,
    )


def _distinct_ranks(experts: np.ndarray, per_rank: int) -> int:
    """(token, destination rank) pairs: rows that come back to this PE's tokens."""
    ranks = np.sort(experts // per_rank, axis=1)
    return int(ranks.shape[0] + np.count_nonzero(ranks[:, 1:] != ranks[:, :-1]))


def _layer(job: dict[str, Any], context: Any) -> dict[str, Any]:
    """The distributed layer, once to warm up and once measured."""
    seed, words = job["seed"], job["words"]
    vocabulary = sorted(set(words))
    place = {word: row for row, word in enumerate(vocabulary)}
    order = np.array([place[word] for word in words])
    tokens = model.embed(vocabulary, seed)
    experts, weights = (table[order] for table in model.route(tokens, seed))
    tokens = tokens[order]
    per_rank = model.EXPERTS // job["pes"]
    first = job["pe"] * per_rank
    own = [model.expert(number, seed) for number in range(first, first + per_rank)]
    say(phase="has tokens, routing and experts")

    op = _operator(job, context)
    out, _, _, _, count = op.dispatch(tokens, weights, None, experts)
    op.combine(out[: int(count[0])].copy(), None, experts)
    context.barrier_all()
    say(phase="warmed up")

    start = time.perf_counter()
    out, got_weights, _, got_experts, count = op.dispatch(
        tokens, weights, None, experts, call_local_expert_count=True
    )
    dispatched = time.perf_counter()
    received = int(count[0])
    assert got_weights is not None
    assert op.local_expert_count is not None
    expert_rows = int(op.local_expert_count.max())
    if job["corrupt_pe"] == job["pe"]:
        out[received // 2] ^= 0x8000  # flips the signs of one routed row
    before = time.perf_counter()
    outputs = _run_experts(
        out[:received], got_experts[:received], got_weights[:received], first, own
    )
    computed = time.perf_counter()
    say(phase="ran its experts")
    context.barrier_all()
    ready = time.perf_counter()
    result, _ = op.combine(outputs, None, experts)
    combined = time.perf_counter()

    _store(job["output_fd"], result[: len(words)], job["pe"] * job["words_per_pe"] * row_bytes())
    context.barrier_all()
    return {
        "tokens": len(words),
        "rows_in": received,
        "rows_back": _distinct_ranks(experts, per_rank),
        "busiest_expert_rows": expert_rows,
        "dispatch_s": dispatched - start,
        "experts_s": computed - before,
        "combine_s": combined - ready,
    }


def row_bytes() -> int:
    """Bytes of one token."""
    return model.HIDDEN * 2


def main() -> int:
    job = hear()
    try:
        from mori.shmem import Context

        unique_id = Context.unique_id() if job["pe"] == 0 else None
        if unique_id is not None:
            say(share=unique_id.hex())
        else:
            unique_id = bytes.fromhex(hear()["share"])
        leave_with_starter()
        with Context(
            unique_id,
            job["pe"],
            job["pes"],
            backend="host",  # numpy arrays, whatever GPU is here
            heap_bytes=job["heap_bytes"],
            bootstrap_timeout_s=job["timeout_s"],
            wait_timeout_s=job["timeout_s"],
        ) as context:
            say(phase="joined")
            result = _layer(job, context)
        say(result=result)
    except Exception as error:
        second_hand = type(error).__name__ in ("PeerDeadError", "AbortedError")
        say(error=f"{type(error).__name__}: {error}", second_hand=second_hand)
        return 1
    return 0


if __name__ == "__main__":
    # Skips the interpreter's teardown: the watching thread sits in a read of standard input.
    code = main()
    sys.stdout.flush()
    os._exit(code)
