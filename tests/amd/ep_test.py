#!/usr/bin/env python3
"""ep's kernels in the emulator: dispatch and combine of every element type on 2 to 4 PEs whose
waves take turns in random order, against the reference and, byte by byte, the host's kernels.

usage: ep_test.py HOST_LIBRARY EMULATOR_LIBRARY RECORD OBJECT ...
"""

import sys

from ep_calls import (
    BAD_IDS,
    COUNT_EXPERTS,
    DTYPES,
    ELEMENT_BYTES,
    FOREIGN,
    IN_PLACE,
    REGISTERED,
    SCALES,
    WEIGHTS,
    Geometry,
    Ranks,
)
from execution_case import Cases

cases = Cases(__doc__)
TIMEOUT = 5
OP_EP_COUNT = 8
# Blocks and lanes: one block; some; more blocks than tokens; many waves for few tokens.
GEOMETRIES = (Geometry(1, 64), Geometry(3, 128), Geometry(7, 64), Geometry(2, 512))


def options(seed, chance, dtype):
    """A small operator; a row is a multiple of 16 bytes."""
    unit = 16 // ELEMENT_BYTES[dtype]
    return {
        "seed": seed,
        "hidden_dim": unit * chance.choice((1, 3, 8, 67)),
        "scale_dim": chance.choice((1, 5, 8)),
        "scale_elem_bytes": chance.choice((1, 4)),
        "max_input_token_count": chance.choice((1, 7, 70)),
        "expert_per_rank_count": chance.choice((1, 3)),
        "expert_per_token_count": chance.choice((1, 2, 5)),
        "registered_input": 1,
    }


@cases.each("calls", DTYPES)
def calls(stage, dtype):
    """Three pairs of calls in a row on one operator: words of earlier epochs are in place."""
    for seed in cases.seeds(3):
        chance = cases.random(seed)
        pe_count = 2 + seed % 3
        with Ranks(stage, pe_count, **options(seed, chance, dtype)) as ranks:
            for turn, how in enumerate((0, IN_PLACE, REGISTERED)):
                geometry = chance.choice(GEOMETRIES)
                shape = sum(f for f in (WEIGHTS, SCALES, COUNT_EXPERTS) if chance.random() < 0.7)
                one = ranks.dispatch(dtype, shape)
                ranks.run_one(one, 100 * seed + turn, geometry, f"dispatch on {pe_count} PEs")
                one = ranks.combine(dtype, how | chance.choice((0, WEIGHTS)))
                ranks.run_one(one, 100 * seed + 50 + turn, geometry, f"combine on {pe_count} PEs")


@cases.each("calls that overtake", DTYPES)
def calls_that_overtake(stage, dtype):
    """All calls are enqueued at once: fast ranks are in a later one while slow ones still read."""
    for seed in cases.seeds(6):
        chance = cases.random(seed)
        pe_count = 2 + seed % 3
        given = {**options(seed, chance, dtype), "call_count": 8}
        with Ranks(stage, pe_count, **given) as ranks:
            numbers = []
            for turn in range(3):
                numbers.append(ranks.dispatch(dtype, WEIGHTS | SCALES if turn else 0))
                numbers += [ranks.combine(dtype, WEIGHTS) for _ in range(1 + turn % 2)]
            geometry = chance.choice(GEOMETRIES)
            ranks.run(numbers, seed, geometry)
            ranks.check(numbers, f"seed {seed}, {pe_count} PEs, {geometry}")


@cases.one("verdicts and mistakes of callers")
def mistakes(stage):
    """Found in the kernel, put into the record in the same words as on the host."""
    chance = cases.random(1)
    small = {**options(1, chance, "f32"), "hidden_dim": 4, "max_input_token_count": 20}
    geometry = Geometry(2, 128)
    with Ranks(stage, 2, **small, max_total_recv_token_count=4) as ranks:
        ranks.run([ranks.dispatch("f32")], 1, geometry)
        first, second = ranks.mishaps()
        assert first == second, (first, second)
        assert "would receive" in first, first
        assert "the capacity is 4" in first, first
    with Ranks(stage, 2, **small) as ranks:
        ranks.run([ranks.dispatch("f32", BAD_IDS)], 2, geometry)
        said = ranks.mishaps()
        limit = 2 * small["expert_per_rank_count"]
        assert any(f"is not below {limit}" in each for each in said), said
    with Ranks(stage, 2, **{**small, "drop_invalid_experts": 1}) as ranks:
        ranks.run_one(ranks.dispatch("f32", BAD_IDS), 3, geometry, "dropped ids")
        ranks.run([ranks.combine("f32", FOREIGN)], 4, geometry)
        assert "are not the routing of the last dispatch" in ranks.mishaps()[0]


@cases.one("a rank that does not come")
def missing_rank(stage):
    """The wait ends when the budget has passed, and the fault names the rank."""
    with Ranks(stage, 2, **options(5, cases.random(5), "f16")) as ranks:
        ranks.world.set_wait_budget(5_000_000)
        ranks.host.mori_amd_ep_destroy(ranks.handle)
        ranks.create()
        here = ranks.world.pes[0]
        ranks.run([ranks.dispatch("f16", WEIGHTS)], 1, Geometry(2, 64), [here])
        _, status, operation, whom, _, awaited, seen = here.read_fault()
        assert (status, operation, whom) == (TIMEOUT, OP_EP_COUNT, 1), here.read_fault()
        assert (awaited, seen) == (1, 0), here.read_fault()


if __name__ == "__main__":
    sys.exit(cases.main())
