"""A dispatch, experts that double what they get, and a combine, on either backend, as bits.

Inputs are made on the CPU from a seed, so that each process can make those of all ranks, and the
GPU and the host backend can be given the same.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import routing
import torch
from mori.ops import EpDispatchCombineConfig, EpDispatchCombineOp

COMBINED = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e4m3fnuz")
HIDDEN, TOP_K, EXPERTS_PER_RANK, MOST, SCALES = 256, 4, 8, 48, 4
# Where the context under test has its arrays; the host for a trial of these tests.
DEVICE = "cpu" if os.environ.get("MORI_GPU_TESTS_ON") == "host" else "cuda"


@dataclass
class Inputs:
    """CPU tensors of one rank: tokens [T, H], weights [T, K], scales [T, S], indices [T, K]."""

    tokens: torch.Tensor
    weights: torch.Tensor
    scales: torch.Tensor
    indices: torch.Tensor

    def to(self, device: str) -> Inputs:
        return Inputs(*(part.to(device) for part in vars(self).values()))


def inputs_of(
    rank: int, world: int, seed: int, dtype: str, *, tokens: int = 40, hidden: int = HIDDEN
) -> Inputs:
    """Those of one rank; ranks have different numbers of tokens, and some slots are not routed."""
    ranks = routing.random_ranks(
        seed,
        [max(tokens - 3 * r, 0) for r in range(world)],
        hidden=hidden,
        dtype=np.float32,
        experts_per_rank=EXPERTS_PER_RANK,
        top_k=TOP_K,
        scale_dim=SCALES,
        unrouted=0.1,
    )
    own = ranks[rank]
    return Inputs(
        torch.from_numpy(own.tokens).to(getattr(torch, dtype)),
        torch.from_numpy(own.weights),
        torch.from_numpy(own.scales),
        torch.from_numpy(own.indices),
    )


def op_for(context: Any, **changes: Any) -> EpDispatchCombineOp:
    """An operator for inputs_of."""
    fields = {
        "rank": context.pe,
        "world_size": context.pe_count,
        "hidden_dim": HIDDEN,
        "scale_dim": SCALES,
        "scale_type_size": 4,
        "max_token_type_size": 4,
        "max_num_inp_token_per_rank": MOST,
        "num_experts_per_rank": EXPERTS_PER_RANK,
        "num_experts_per_token": TOP_K,
        "deterministic": True,
    }
    config = EpDispatchCombineConfig(**{**fields, **changes})
    return EpDispatchCombineOp(config, context=context)


def bits(tensor: torch.Tensor | None) -> bytes | None:
    """The bytes of a tensor of any element type, from wherever it is."""
    if tensor is None:
        return None
    return tensor.contiguous().view(torch.uint8).cpu().numpy().tobytes()


def doubled(tokens: torch.Tensor) -> torch.Tensor:
    """Exact in each element type for inputs of this module."""
    return (tokens.float() * 2).to(tokens.dtype)


def dispatched(op: EpDispatchCombineOp, given: Inputs) -> dict[str, Any]:
    """What one dispatch receives, as bits, and the tensors of it."""
    found = op.dispatch(given.tokens, given.weights, given.scales, given.indices, -1, -1, -1, True)
    out, weights, scales, indices, count = found
    received = int(count[0])
    return {
        "received": received,
        "tokens": bits(out[:received]),
        "weights": bits(weights[:received]),
        "scales": bits(scales[:received]),
        "indices": bits(indices[:received]),
        "experts": op.local_expert_count.tolist(),
        "sources": op.get_dispatch_src_token_pos().tolist(),
        "tensors": found,
    }


def layer(op: EpDispatchCombineOp, given: Inputs) -> dict[str, Any]:
    """Bits of all that a dispatch and a combine give."""
    found = dispatched(op, given)
    out, weights, *_ = found.pop("tensors")
    received, own = found["received"], len(given.tokens)
    outputs = doubled(out[:received])
    combined, sums = op.combine(outputs, weights[:received].clone(), given.indices)
    found["combined"], found["sums"] = bits(combined[:own]), bits(sums[:own])
    op.check()
    return found
