"""One PE process of test_gpu_processes.py: `pe_program.py BODY RANK WORLD FOLDER`.

The unique ids of the groups go through files in FOLDER. Prints one line of JSON when the body has
found all as it should be.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import mori.shmem as shmem
import torch
from layers import COMBINED, DEVICE, bits, doubled, inputs_of, layer, op_for
from mori.errors import MismatchError, RecvOverflowError
from mori.shmem import Context

_DEADLINE_S = 120.0
OPTIONS = {"heap_bytes": 64 << 20, "wait_timeout_s": 60.0, "bootstrap_timeout_s": 90.0}


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


class Group:
    """This process's place, and the ids of the groups it joins."""

    def __init__(self, rank: int, world: int, folder: str) -> None:
        self.rank, self.world, self.folder = rank, world, Path(folder)

    def join(self, name: str, **options: Any) -> Context:
        path = self.folder / f"{name}.id"
        if self.rank == 0:
            made = Context.unique_id()
            part = path.with_suffix(".part")
            part.write_bytes(made)
            part.rename(path)
        end = time.monotonic() + _DEADLINE_S
        while not path.exists():
            if time.monotonic() > end:
                raise TimeoutError(f"no {path} after {_DEADLINE_S} s")
            time.sleep(0.01)
        return Context(path.read_bytes(), self.rank, self.world, **{**OPTIONS, **options})

    def inputs(self, seed: int, dtype: str) -> Any:
        return inputs_of(self.rank, self.world, seed, dtype)


def same(found: Any, expected: Any, what: str) -> None:
    """Raises unless equal, and says which part differs."""
    if found == expected:
        return
    parts = [key for key in expected if found[key] != expected[key]]
    raise AssertionError(f"{what}: {', '.join(parts)} differ from the host's")


def layers(group: Group) -> dict[str, Any]:
    """All element types, several calls each: the same bits as the host backend."""
    calls = 0
    with group.join("gpu") as here, group.join("host", backend="host") as host:
        info = here.info()
        for dtype in COMBINED:
            op, reference = op_for(here), op_for(host)
            for seed in range(4):
                given = group.inputs(seed, dtype)
                expected = layer(reference, given)
                same(layer(op, given.to(DEVICE)), expected, f"{dtype}, seed {seed}")
                calls += 1
            op.close()
            reference.close()
            here.barrier_all()
            host.barrier_all()
        return {"calls": calls, "backend": info.backend, "sharers": info.gpu_sharer_count}


def without_wait(group: Group) -> dict[str, Any]:
    """Many calls in a row on a stream, the device working through them on its own."""
    with group.join("gpu") as here, group.join("host", backend="host") as host:
        op, reference = op_for(here), op_for(host)
        given = [group.inputs(seed, "bfloat16") for seed in range(50)]
        on_device = [one.to(DEVICE) for one in given]
        kept = []
        wait()
        for one in on_device:
            out, weights, *_ = op.dispatch(one.tokens, one.weights, None, one.indices)
            combined, sums = op.combine(doubled(out), weights, one.indices)
            own = len(one.tokens)
            kept.append((combined[:own].clone(), sums[:own].clone()))
        wait()
        op.check()
        for seed, (one, (combined, sums)) in enumerate(zip(given, kept, strict=True)):
            expected = layer(reference, one)
            same(
                {"combined": bits(combined), "sums": bits(sums)},
                {key: expected[key] for key in ("combined", "sums")},
                f"call {seed}",
            )
        return {"calls": len(given)}


def graph(group: Group) -> dict[str, Any]:
    """Captured once, replayed with other inputs, on all ranks alike."""
    with group.join("gpu") as here, group.join("host", backend="host") as host:
        op, reference = op_for(here), op_for(host)
        static = group.inputs(1, "bfloat16").to(DEVICE)
        for _ in range(2):
            layer(op, static)
        captured = torch.cuda.CUDAGraph()
        wait()
        here.barrier_all()
        with torch.cuda.graph(captured):
            out, weights, _, _, count = op.dispatch(
                static.tokens, static.weights, static.scales, static.indices
            )
            combined, sums = op.combine(doubled(out), weights, static.indices)
        own, replays = len(static.tokens), 40
        for seed in range(replays):
            given = group.inputs(200 + seed, "bfloat16")
            for field, value in vars(given).items():
                getattr(static, field).copy_(value)
            captured.replay()
            expected = layer(reference, given)
            found = {
                "received": int(count[0]),
                "combined": bits(combined[:own]),
                "sums": bits(sums[:own]),
            }
            same(found, {key: expected[key] for key in found}, f"replay {seed}")
        op.check()
        return {"replays": replays}


def memory(group: Group) -> dict[str, Any]:
    """Peers' tensors, host calls between PEs, and a barrier that orders streams of PEs."""
    rank, world = group.rank, group.world
    after = (rank + 1) % world
    before = (rank - 1) % world
    with group.join("gpu") as context:
        shmem.set_default_context(context)
        tensor = shmem.mori_shmem_create_tensor((2, 1024), torch.float32)
        right = shmem.symm_mori_shmem_tensor(tensor, after)
        assert right.device == tensor.device
        for step in range(20):
            right[0].fill_(100 * step + rank)  # a kernel of torch stores at the peer
            shmem.shmem_barrier_on_stream()
            assert bool((tensor[0] == 100 * step + before).all()), f"step {step}"
            shmem.shmem_barrier_on_stream()
        wait()
        context.put(tensor[1], tensor[0], pe=after)
        context.quiet()
        context.barrier_all()
        assert tensor[1, 7].item() == 100 * 19 + (before - 1) % world
        word, signal = context.tensor((1,), torch.int64), context.tensor((1,), torch.int64)
        context.barrier_all()
        for pe in range(world):
            context.atomic(word, "add", rank + 1, pe=pe)
        context.put_signal(tensor[1], tensor[0], signal, rank + 1, pe=after)
        assert context.wait_until(signal, "ne", 0, pe=before) == before + 1
        context.barrier_all()
        assert word.item() == world * (world + 1) // 2
        views = shmem.mori_shmem_create_tensor_list_intra_node((3,), torch.int32, world)
        views[rank].fill_(rank)
        wait()
        context.barrier_all()
        assert [view[0].item() for view in views] == list(range(world))
        context.barrier_all()
        return {"transports": [context.peer_info(pe).transport for pe in range(world)]}


def raised(kind: type[Exception], call: Any) -> str:
    """The text of the error of this kind that `call` raises, or waiting for what it enqueued."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def faults(group: Group) -> dict[str, Any]:
    """Verdicts are the same on all ranks, and the operator works afterwards."""
    with group.join("gpu") as here, group.join("host", backend="host") as host:
        op = op_for(here, max_total_recv_tokens=4 * group.world)
        given = group.inputs(3, "float32").to(DEVICE)

        def call(tokens: torch.Tensor, indices: torch.Tensor) -> None:
            op.dispatch(tokens, None, None, indices)
            wait()
            op.check()

        overflow = raised(RecvOverflowError, lambda: call(given.tokens, given.indices))
        assert "the capacity is" in overflow, overflow
        here.barrier_all()
        # Ranks that differ in the element type.
        tokens = given.tokens[:2].to(torch.float32 if group.rank == 0 else torch.bfloat16)
        mismatch = raised(MismatchError, lambda: call(tokens, given.indices[:2].contiguous()))
        assert "disagree on dtype" in mismatch, mismatch
        here.barrier_all()
        op.close()
        here.barrier_all()
        one = group.inputs(4, "float32")
        same(layer(op_for(here), one.to(DEVICE)), layer(op_for(host), one), "after faults")
        return {"message": overflow}


def process_group(group: Group) -> dict[str, Any]:
    """The context of a torch process group is on the GPU."""
    import torch.distributed as distributed

    os.environ["MORI_SHMEM_HEAP_SIZE"] = "64MiB"
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{group.folder}/store",
        rank=group.rank,
        world_size=group.world,
    )
    torch._C._distributed_c10d._register_process_group("default", distributed.group.WORLD)
    shmem.shmem_torch_process_group_init("default")
    seen = (shmem.shmem_mype(), shmem.shmem_npes())
    tensor = shmem.mori_shmem_create_tensor((8,), torch.float32)
    shmem.shmem_barrier_all()
    shmem.shmem_finalize()
    distributed.barrier()
    distributed.destroy_process_group()
    assert seen == (group.rank, group.world)
    return {"device": tensor.device.type}


BODIES = {
    body.__name__: body for body in (layers, without_wait, graph, memory, faults, process_group)
}


def main() -> int:
    body, rank, world, folder = sys.argv[1:]
    found = BODIES[body](Group(int(rank), int(world), folder))
    print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
