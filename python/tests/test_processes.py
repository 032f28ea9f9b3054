"""PEs as processes: the same calls across address spaces, and a PE that dies."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import routing
from mori.errors import MoriError
from mori.ops import EpDispatchCombineConfig, EpDispatchCombineOp
from mori.shmem import Context
from pes import OPTIONS, on_processes

HIDDEN, EXPERTS_PER_RANK, TOP_K, MOST = 64, 2, 3, 5


def put_to_neighbour(context):
    block = context.array((2, 512), np.float32)
    block[0] = context.pe + 0.5
    context.put(block[1], block[0], pe=(context.pe + 1) % context.pe_count)
    context.barrier_all()
    there = context.peer_view(block, (context.pe + 1) % context.pe_count)
    seen = (float(block[1, 511]), float(there[0, 0]), context.peer_info(0).os_process_id)
    context.barrier_all()
    context.free(block)
    return seen


def test_put_between_processes():
    results = on_processes(3, put_to_neighbour)
    assert [(left, right) for left, right, _ in results] == [(2.5, 1.5), (0.5, 2.5), (1.5, 0.5)]
    assert len({process for _, _, process in results}) == 1


def dispatch_and_combine(context, seed):
    ranks = routing.random_ranks(
        seed,
        [MOST, 0, 3],
        hidden=HIDDEN,
        dtype=np.float32,
        experts_per_rank=EXPERTS_PER_RANK,
        top_k=TOP_K,
        unrouted=0.2,
    )
    config = EpDispatchCombineConfig(
        rank=context.pe,
        world_size=context.pe_count,
        hidden_dim=HIDDEN,
        scale_dim=0,
        scale_type_size=0,
        max_token_type_size=4,
        max_num_inp_token_per_rank=MOST,
        num_experts_per_rank=EXPERTS_PER_RANK,
        num_experts_per_token=TOP_K,
    )
    op, own = EpDispatchCombineOp(config, context=context), ranks[context.pe]
    out, *_, count = op.dispatch(own.tokens, own.weights, None, own.indices)
    sources = routing.received_by(context.pe, ranks, EXPERTS_PER_RANK)
    assert int(count[0]) == len(sources)
    received = [
        np.array([ranks[s].tokens[t] for s, t in routing.received_by(r, ranks, EXPERTS_PER_RANK)])
        for r in range(context.pe_count)
    ]
    assert (out[: len(sources)] == received[context.pe]).all()
    combined, _ = op.combine(out[: len(sources)].copy(), None, own.indices)
    expected = routing.combined(context.pe, ranks, received, EXPERTS_PER_RANK)
    return bool((combined[: len(own.tokens)] == expected).all())


def test_dispatch_between_processes():
    assert on_processes(3, dispatch_and_combine, 21) == [True] * 3


VICTIM = """
import json, sys
import numpy as np
from mori.shmem import Context
from mori.errors import MoriError
pe = int(sys.argv[1])
uid = Context.unique_id() if pe == 0 else None
if uid:
    print(uid.hex(), flush=True)
else:
    uid = bytes.fromhex(sys.stdin.readline())
context = Context(uid, pe, 3, heap_bytes=4 << 20, wait_timeout_s=30, bootstrap_timeout_s=30)
context.barrier_all()
print("ready", flush=True)
try:
    while True:
        context.barrier_all()
        if pe == 2:
            sys.stdin.readline()
except MoriError as error:
    print(json.dumps([type(error).__name__, str(error)]), flush=True)
context.finalize()
with Context(Context.unique_id(), 0, 1, heap_bytes=1 << 20) as again:
    again.barrier_all()
print("again", flush=True)
"""


def test_killed_pe_is_named_and_the_others_go_on():
    def start(pe):
        return subprocess.Popen(
            [sys.executable, "-c", VICTIM, str(pe)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    children = [start(pe) for pe in range(3)]
    try:
        unique_id = children[0].stdout.readline()
        for child in children[1:]:
            child.stdin.write(unique_id)
            child.stdin.flush()
        for child in children:
            assert child.stdout.readline() == "ready\n"
        os.kill(children[2].pid, signal.SIGKILL)
        killed = time.monotonic()
        for child in children[:2]:
            name, message = json.loads(child.stdout.readline())
            assert name == "PeerDeadError"
            assert "PE 2" in message
            assert child.stdout.readline() == "again\n"
            assert child.wait(20) == 0
        assert time.monotonic() - killed < 15
    finally:
        for child in children:
            child.kill()
            child.wait()
            child.stdin.close()
            child.stdout.close()


LEAVER = """
import sys
from mori.shmem import Context
context = Context(bytes.fromhex(sys.argv[1]), 1, 2, heap_bytes=16 << 20, bootstrap_timeout_s=20)
kept = context.array(4, "f4") if sys.argv[2] == "viewed" else context.array(4, "f4").sum()
context.barrier_all()
"""


@pytest.mark.parametrize("memory", ["viewed", "not viewed"])
def test_exit_without_finalize_is_no_death(memory):
    unique_id = Context.unique_id()
    child = subprocess.Popen([sys.executable, "-c", LEAVER, unique_id.hex(), memory])
    try:
        with Context(unique_id, 0, 2, **OPTIONS) as context:
            context.array(4, "f4")
            context.barrier_all()
            assert child.wait(20) == 0
            end = time.monotonic() + 1
            while time.monotonic() < end:
                context.check()
                time.sleep(0.05)
            # It is gone all the same.
            with pytest.raises(MoriError, match="has left"):
                context.barrier_all()
    finally:
        child.kill()
        child.wait()
