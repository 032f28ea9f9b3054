"""How many steps a call takes in Python, and that it leaves nothing behind. overhead.py measures
the time of the same calls; times depend on the machine, steps do not."""

import gc
import sys

import numpy as np
import pytest
from mori.ops import EpDispatchCombineConfig, EpDispatchCombineOp
from mori.shmem import Context
from pes import OPTIONS
from steps import steps_of

TOKENS, HIDDEN, TOP_K, SCALES = 4, 16, 2, 4
# (Python frames, calls into C) of one call; with a few to spare over what it takes. A call into C
# costs 50 to 150 ns, a frame 100 to 400 ns, cffi's conversion of a struct field more.
MOST = {
    ("numpy", "dispatch"): (42, 24),
    ("torch", "dispatch"): (25, 29),
    ("numpy", "combine"): (38, 25),
    ("torch", "combine"): (27, 27),
}


@pytest.fixture
def op():
    with Context(Context.unique_id(), 0, 1, **OPTIONS) as context:
        config = EpDispatchCombineConfig(
            rank=0,
            world_size=1,
            hidden_dim=HIDDEN,
            scale_dim=SCALES,
            scale_type_size=4,
            max_token_type_size=4,
            max_num_inp_token_per_rank=TOKENS,
            num_experts_per_rank=2,
            num_experts_per_token=TOP_K,
        )
        yield EpDispatchCombineOp(config, context=context)


def call_of(op, library, what):
    arrays = [
        np.ones((TOKENS, HIDDEN), np.float32),
        np.ones((TOKENS, TOP_K), np.float32),
        np.ones((TOKENS, SCALES), np.float32),
        np.ones((TOKENS, TOP_K), np.int32),
    ]
    if library == "torch":
        torch = pytest.importorskip("torch")
        arrays = [torch.from_numpy(array) for array in arrays]
    tokens, weights, scales, indices = arrays
    if what == "dispatch":
        return lambda: op.dispatch(tokens, weights, scales, indices)
    op.dispatch(tokens, weights, scales, indices)
    return lambda: op.combine(tokens, weights, indices)


@pytest.mark.parametrize(("library", "what"), MOST)
def test_steps_of_a_call(op, library, what):
    call = call_of(op, library, what)
    call()
    frames, c_calls = steps_of(call)
    most = MOST[library, what]
    assert frames <= most[0], f"{frames} frames"
    assert c_calls <= most[1], f"{c_calls} calls into C"
    assert frames > most[0] // 2, "steps are not seen: the bounds mean nothing"
    # The first call of a kind makes views; later ones do not.
    assert steps_of(call) == (frames, c_calls)


@pytest.mark.parametrize(("library", "what"), MOST)
def test_calls_leave_nothing_behind(op, library, what):
    call = call_of(op, library, what)
    for _ in range(10):
        call()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(300):
        call()
    gc.collect()
    assert sys.getallocatedblocks() - before < 100
