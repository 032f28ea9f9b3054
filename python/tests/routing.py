"""What dispatch and combine must do, in plain numpy: meant for reading, and compared with.

One Rank holds a rank's inputs. Expected values are computed from all ranks' inputs at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Rank:
    """Inputs of one rank: tokens [T, H], weights [T, K], scales [T, S] or None, indices [T, K]."""

    tokens: np.ndarray
    weights: np.ndarray
    scales: np.ndarray | None
    indices: np.ndarray


def random_ranks(
    seed: int,
    counts: list[int],
    *,
    hidden: int,
    dtype: object,
    experts_per_rank: int,
    top_k: int,
    scale_dim: int = 0,
    unrouted: float = 0.0,
) -> list[Rank]:
    """Random inputs; `unrouted` is the share of slots that hold -1. Values are small enough that
    sums over all ranks stay finite in 8-bit floats."""
    generator = np.random.default_rng(seed)
    experts = experts_per_rank * len(counts)
    ranks = []
    for count in counts:
        values = generator.uniform(-4, 4, (count, hidden)).astype(np.float32)
        indices = np.array(
            [generator.permutation(experts)[:top_k] for _ in range(count)], np.int32
        ).reshape(count, top_k)
        indices[generator.random(indices.shape) < unrouted] = -1
        scales = None
        if scale_dim:
            scales = generator.random((count, scale_dim), np.float32)
        weights = generator.random((count, top_k), np.float32)
        ranks.append(Rank(values.astype(dtype), weights, scales, indices))
    return ranks


def destinations(indices: np.ndarray, experts_per_rank: int) -> list[int]:
    """Distinct ranks, ascending, that one token with these expert ids goes to."""
    return sorted({int(expert) // experts_per_rank for expert in indices if expert >= 0})


def received_by(rank: int, ranks: list[Rank], experts_per_rank: int) -> list[tuple[int, int]]:
    """(source rank, source token) of each row that `rank` receives, in order."""
    return [
        (source, token)
        for source, inputs in enumerate(ranks)
        for token in range(len(inputs.tokens))
        if rank in destinations(inputs.indices[token], experts_per_rank)
    ]


def expert_counts(rank: int, ranks: list[Rank], experts_per_rank: int) -> np.ndarray:
    """Received (token, slot) pairs for each of a rank's own experts."""
    counts = np.zeros(experts_per_rank, np.int32)
    for inputs in ranks:
        for expert in inputs.indices.ravel():
            if expert >= 0 and expert // experts_per_rank == rank:
                counts[expert % experts_per_rank] += 1
    return counts


def combined(
    rank: int, ranks: list[Rank], outputs: list[np.ndarray], experts_per_rank: int
) -> np.ndarray:
    """Unweighted float32 sums over distinct destination ranks, ascending, rounded once.

    outputs[r] are the rows that rank r gives back, in its receive order.
    """
    rows = {
        (r, source): row
        for r in range(len(ranks))
        for row, source in enumerate(received_by(r, ranks, experts_per_rank))
    }
    own = ranks[rank]
    sums = np.zeros((len(own.tokens), outputs[rank].shape[1]), np.float32)
    for token in range(len(own.tokens)):
        for r in destinations(own.indices[token], experts_per_rank):
            sums[token] += outputs[r][rows[r, (rank, token)]].astype(np.float32)
    return sums.astype(outputs[rank].dtype)
