"""A mixture-of-experts layer in the shape of DeepSeek-V3, made from a text and a seed.

Words become token vectors by a seeded embedding, so equal words are equal tokens, route alike, and
load the experts as unevenly as language is. All weights are seeded; each expert is a matrix of
rank 16. Numbers are numpy's; bfloat16 values travel as uint16 that hold their bits. Nothing here
knows of mori: `reference` is the layer in one process that the distributed one is compared with.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

import numpy as np

HIDDEN = 7168
EXPERTS = 256
TOP_K = 8
RANK = 16  # of an expert's matrix
ROUTED_SCALE = 2.5  # DeepSeek-V3's factor on the normalised router weights

# Unit roundoff of bfloat16: 8 significant bits, round to nearest.
BF16_ROUNDOFF = 2.0**-8
# A float32 sum of n random terms is off by about sqrt(n) * 2^-24 of its size; for n = HIDDEN that
# is under 2^-17. Eight times as much, relative to the row's root mean square.
FLOAT32_SLACK = 2.0**-14

Bits = np.ndarray  # uint16 [.., HIDDEN], bits of bfloat16


def words_of(text: str) -> list[str]:
    """Lower-case words of a text, in order."""
    return re.findall(r"\w+", text.lower())


def to_bf16(values: np.ndarray) -> Bits:
    """float32 to bfloat16 bits, to nearest, ties to even; finite values only."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)


def from_bf16(bits: Bits) -> np.ndarray:
    """bfloat16 bits to float32, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _generator(seed: int, *what: object) -> np.random.Generator:
    """A generator of its own for each named thing: the same in every process."""
    name = "\0".join(map(str, (seed, *what))).encode()
    key = np.frombuffer(hashlib.blake2b(name, digest_size=16).digest(), np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def embed(words: list[str], seed: int) -> Bits:
    """Token vectors of words: bfloat16 bits [len(words), HIDDEN]."""
    tokens = np.empty((len(words), HIDDEN), np.uint16)
    for row, word in enumerate(words):
        vector = _generator(seed, "word", word).standard_normal(HIDDEN, np.float32)
        tokens[row] = to_bf16(vector)
    return tokens


def route(tokens: Bits, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Expert ids int32 [T, TOP_K] and weights float32 [T, TOP_K] of tokens.

    Sigmoid scores, the TOP_K best experts, weights normalised and scaled: DeepSeek-V3's router
    without its expert groups. In double precision, so that the choice does not hang on how a
    matrix product is blocked.
    """
    matrix = _generator(seed, "router").standard_normal((HIDDEN, EXPERTS)) / np.sqrt(HIDDEN)
    scores = 1.0 / (1.0 + np.exp(-(from_bf16(tokens).astype(np.float64) @ matrix)))
    experts = np.argsort(-scores, axis=1, kind="stable")[:, :TOP_K]
    chosen = np.take_along_axis(scores, experts, axis=1)
    weights = ROUTED_SCALE * chosen / chosen.sum(axis=1, keepdims=True)
    return experts.astype(np.int32), weights.astype(np.float32)


@dataclass(frozen=True)
class Expert:
    """y = (x @ down) @ up, a matrix of rank RANK; float32."""

    down: np.ndarray  # [HIDDEN, RANK]
    up: np.ndarray  # [RANK, HIDDEN]


def expert(number: int, seed: int) -> Expert:
    """Expert `number`: scaled so that its outputs are about as large as its inputs."""
    generator = _generator(seed, "expert", number)
    down = generator.standard_normal((HIDDEN, RANK), np.float32) / np.float32(np.sqrt(HIDDEN))
    up = generator.standard_normal((RANK, HIDDEN), np.float32) / np.float32(np.sqrt(RANK))
    return Expert(down, up)


class Reference:
    """The layer in one process, in double precision, from words and seed alone."""

    def __init__(self, seed: int, rank_count: int) -> None:
        self._seed = seed
        self._rank_count = rank_count
        self._experts = [expert(number, seed) for number in range(EXPERTS)]

    def rows(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Expected outputs and their tolerance, float64 [len(words), HIDDEN] both.

        MORI's combine rounds the partial sum p_j of each rank j to bfloat16, adds the rounded
        partials in float32 and rounds once more. With u = BF16_ROUNDOFF an element y = sum p_j
        is off by at most u * sum|p_j| from the partials and u * (|y| + u * sum|p_j|) from the
        last rounding; float32 arithmetic adds FLOAT32_SLACK of the row's size.
        """
        tokens = embed(words, self._seed)
        experts, weights = route(tokens, self._seed)
        inputs = from_bf16(tokens).astype(np.float64)
        total = np.zeros(inputs.shape)
        magnitude = np.zeros(inputs.shape)
        per_rank = EXPERTS // self._rank_count
        for rank in range(self._rank_count):
            partial = np.zeros(inputs.shape)
            for number in range(rank * per_rank, (rank + 1) * per_rank):
                row, slot = np.nonzero(experts == number)
                if row.size:
                    one = self._experts[number]
                    hidden = weights[row, slot, None] * (inputs[row] @ one.down)
                    partial[row] += hidden @ one.up
            total += partial
            magnitude += np.abs(partial)
        size = np.sqrt(np.mean(magnitude**2, axis=1, keepdims=True))
        tolerance = BF16_ROUNDOFF * ((1 + BF16_ROUNDOFF) * magnitude + np.abs(total))
        return total, tolerance + FLOAT32_SLACK * size
