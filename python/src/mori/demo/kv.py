"""The KV cache of the demonstration, made from a text and a seed: what prefill computes, and what
decode compares with.

In the shape of DeepSeek-V3's latent attention: 61 layers, 576 bfloat16 values for each token, in
blocks of 64 tokens. A value comes of its word, layer, position and place in the vector by integer
arithmetic alone, so it is the same bits in every process, and no two tokens have the same vector: a
block that lands in the wrong place is noticed.
"""

from __future__ import annotations

import hashlib

import numpy as np

from mori.demo import model

LAYERS = 61
WIDTH = 576  # 512 of the latent, 64 that carry the position
BLOCK_TOKENS = 64
TOKEN_BYTES = 2 * WIDTH
BLOCK_BYTES = BLOCK_TOKENS * TOKEN_BYTES
POISON = 0xA5A5  # what no block of the text holds: where nothing may be written


def words_as_numbers(words: list[str], seed: int) -> np.ndarray:
    """A number for each token, equal for equal words: uint64 [len(words)]."""
    known: dict[str, int] = {}
    for word in words:
        if word not in known:
            digest = hashlib.blake2b(f"{seed}\0kv\0{word}".encode(), digest_size=8).digest()
            known[word] = int.from_bytes(digest, "little")
    return np.array([known[word] for word in words], np.uint64)


def _mixed(values: np.ndarray) -> np.ndarray:
    """A bijection that spreads each bit over all: multiply and shift, as splitmix64 ends."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def layer_bits(numbers: np.ndarray, layer: int, first: int = 0) -> np.ndarray:
    """One layer's vectors of tokens whose first has position `first`: bfloat16 bits uint16
    [len(numbers), WIDTH], values in -1 .. 1."""
    positions = np.arange(first, first + len(numbers), dtype=np.uint64)
    rows = _mixed(numbers ^ _mixed(positions * np.uint64(LAYERS) + np.uint64(layer)))
    # Four values of 16 bits come of each number.
    columns = np.arange(WIDTH // 4, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    whole = _mixed(rows[:, None] + columns[None, :])
    halves = whole.view(np.uint16).reshape(len(numbers), WIDTH)
    # 16 random bits as a number in -1 .. 1, exact in float32 and then rounded.
    return model.to_bf16((halves.astype(np.float32) - np.float32(32767.5)) / np.float32(32768))


def block_table(blocks: int, room: int, seed: int) -> np.ndarray:
    """Where an engine keeps the text's blocks among `room`: shuffled, as a busy cache is."""
    return np.random.default_rng(seed).permutation(room)[:blocks]


def cache_shape(room: int) -> tuple[int, ...]:
    """Of one engine's cache with room for so many blocks a layer."""
    return LAYERS, room, BLOCK_TOKENS, WIDTH
