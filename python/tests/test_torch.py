"""torch tensors in and out, and groups from torch process groups. Needs torch (CPU)."""

import multiprocessing
import os
import tempfile

import numpy as np
import pytest
from pes import OPTIONS, on_threads

torch = pytest.importorskip("torch")

import mori.shmem as shmem  # noqa: E402
from mori.errors import InvalidError, NotFoundError, StateError  # noqa: E402
from mori.ops import EpDispatchCombineConfig, EpDispatchCombineOp  # noqa: E402
from mori.shmem import Context  # noqa: E402

HIDDEN, TOP_K, MOST = 32, 2, 4
DTYPES = ["float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e4m3fnuz"]


def op_for(context, **changes):
    fields = {
        "rank": context.pe,
        "world_size": context.pe_count,
        "hidden_dim": HIDDEN,
        "scale_dim": 0,
        "scale_type_size": 0,
        "max_token_type_size": 4,
        "max_num_inp_token_per_rank": MOST,
        "num_experts_per_rank": 1,
        "num_experts_per_token": TOP_K,
    }
    return EpDispatchCombineOp(EpDispatchCombineConfig(**{**fields, **changes}), context=context)


@pytest.mark.parametrize("name", DTYPES)
def test_tensors_in_tensors_out(name):
    dtype = getattr(torch, name)

    def body(context):
        op = op_for(context, data_type=dtype)
        tokens = torch.full((2, HIDDEN), 1.0 + context.pe).to(dtype)
        weights = torch.tensor([[0.25, 0.75]] * 2)
        indices = torch.tensor([[0, 1], [-1, context.pe]], dtype=torch.int32)
        out, got, scales, rows, count = op.dispatch(tokens, weights, None, indices)
        assert all(isinstance(t, torch.Tensor) for t in (out, got, rows, count))
        assert scales is None
        assert (out.dtype, tuple(out.shape)) == (dtype, (2 * MOST, HIDDEN))
        assert (got.dtype, rows.dtype, count.dtype) == (torch.float32, torch.int32, torch.int32)
        assert count.item() == 3
        sources = op.get_dispatch_src_token_pos()
        assert isinstance(sources, torch.Tensor)
        rank, token = op.decode_send_flat_idx(sources)
        assert token.tolist() == ([0, 1, 0] if context.pe == 0 else [0, 0, 1])
        assert out[:3].float()[:, 0].tolist() == (rank + 1).float().tolist()
        combined, sums = op.combine(out[:3].clone(), got[:3].clone(), indices)
        assert combined.dtype == dtype
        assert combined[:2].float()[:, 5].tolist() == [2.0 * (1 + context.pe), 1.0 + context.pe]
        assert sums[:2].tolist() == [[0.5, 1.5], [0.25, 0.75]]
        buffer = op.get_registered_combine_input_buffer(dtype)
        assert (buffer.dtype, tuple(buffer.shape)) == (dtype, (2 * MOST, HIDDEN))

    on_threads(2, body)


def test_same_bits_as_numpy():
    def body(context):
        op = op_for(context)
        values = np.random.default_rng(7).random((3, HIDDEN), np.float32)
        indices = np.array([[0, 1]] * 3, np.int32)
        found = []
        for convert in (lambda a: a, torch.from_numpy):
            out, *_, count = op.dispatch(convert(values), None, None, convert(indices))
            n = int(count[0])
            combined, _ = op.combine(out[:n] * 3, None, convert(indices))
            found.append(np.asarray(combined[:3]).tobytes())
        assert found[0] == found[1]

    on_threads(2, body)


def test_unusable_tensors():
    with Context(Context.unique_id(), 0, 1, **OPTIONS) as context:
        op = op_for(context, num_experts_per_rank=2)
        tokens, indices = torch.ones(2, HIDDEN), torch.zeros(2, TOP_K, dtype=torch.int32)
        bad = [
            (tokens.to("meta"), indices, "device meta, the host backend takes cpu"),
            (torch.ones(HIDDEN, 2).t(), indices, "strides"),
            (torch.ones(2, 2 * HIDDEN)[:, :HIDDEN], indices, "contiguous"),
            (tokens.to_sparse(), indices, "sparse"),
            (tokens.double(), indices, "dtype float64"),
            (tokens, indices.long(), "dtype int64"),
            (tokens, indices.t().contiguous().t(), "strides"),
            (tokens, indices.to("meta"), "device meta"),
        ]
        for one, other, message in bad:
            with pytest.raises(InvalidError, match=message):
                op.dispatch(one, None, None, other)
        out, *_, count = op.dispatch(tokens, None, None, indices)
        assert count.item() == 2
        assert bool((out[:2] == 1).all())


def test_gradients_do_not_leak_into_results():
    with Context(Context.unique_id(), 0, 1, **OPTIONS) as context:
        op = op_for(context, num_experts_per_rank=2)
        tokens = torch.ones(2, HIDDEN, requires_grad=True)
        indices = torch.zeros(2, TOP_K, dtype=torch.int32)
        out = op.dispatch(tokens, None, None, indices)[0]
        assert not out.requires_grad
        out.requires_grad_()
        assert not op.dispatch(tokens, None, None, indices)[0].requires_grad


def test_tensor_helpers():
    def body(context):
        shmem.set_default_context(context)
        tensor = shmem.mori_shmem_create_tensor((4, 8), torch.bfloat16)
        assert tuple(tensor.shape) == (4, 8)
        assert tensor.dtype == torch.bfloat16
        tensor.fill_(context.pe + 1)
        shmem.shmem_barrier_all()
        other = shmem.symm_mori_shmem_tensor(tensor, 1 - context.pe)
        assert bool((other == 2 - context.pe).all())
        address = shmem.shmem_ptr_p2p(tensor.data_ptr(), context.pe, 1 - context.pe)
        assert other.data_ptr() == address
        with pytest.raises(InvalidError, match="not made by"):
            shmem.symm_mori_shmem_tensor(torch.zeros(4), 0)
        shmem.shmem_barrier_all()
        shmem.mori_shmem_free_tensor(tensor)
        with pytest.raises(NotFoundError):
            shmem.mori_shmem_free_tensor(tensor)
        with pytest.raises(NotFoundError):
            shmem.mori_shmem_free_tensor(torch.zeros(4))
        every = shmem.mori_shmem_create_tensor_list_intra_node((3,), torch.int64, 2)
        assert len(every) == 2
        every[context.pe].fill_(10 * context.pe)
        shmem.shmem_barrier_all()
        assert [t[0].item() for t in every] == [0, 10]
        shmem.shmem_barrier_all()
        shmem.mori_shmem_free_tensor(every[context.pe])
        with pytest.raises(InvalidError, match="num_ranks is 3"):
            shmem.mori_shmem_create_tensor_list_intra_node((3,), torch.int64, 3)
        with pytest.raises(InvalidError, match=r"expected a torch\.dtype"):
            context.tensor(3, np.float32)
        empty = shmem.mori_shmem_create_tensor((0, 3), torch.float32)
        assert empty.numel() == 0
        shmem.mori_shmem_free_tensor(empty)
        context.put(tensor, torch.ones(4, 8, dtype=torch.bfloat16), 1 - context.pe)

    on_threads(2, body)


def test_tensor_outlives_finalize():
    context = Context(Context.unique_id(), 0, 1, **OPTIONS)
    tensor = context.tensor((1000,), torch.float32)
    part = tensor[10:]
    tensor.fill_(2)
    context.finalize()
    del tensor
    assert part.sum().item() == 2 * 990


def _group_member(rank, folder, queue):
    """Three processes; ranks 1 and 2 form a subgroup without global rank 0."""
    import torch.distributed as dist

    try:
        os.environ["MORI_SHMEM_HEAP_SIZE"] = "8MiB"
        with pytest.raises(StateError, match=r"torch\.distributed is not initialised"):
            shmem.shmem_torch_process_group_init("default")
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=3
        )
        torch._C._distributed_c10d._register_process_group("default", dist.group.WORLD)
        with pytest.raises(NotFoundError, match="'nobody'"):
            shmem.shmem_torch_process_group_init("nobody")
        seen = [shmem.shmem_torch_process_group_init("default")]
        seen += [shmem.shmem_mype(), shmem.shmem_npes()]
        shmem.shmem_barrier_all()
        with pytest.raises(StateError, match="initialised already"):
            shmem.shmem_torch_process_group_init("default")
        shmem.shmem_finalize()
        members = dist.new_group([1, 2], backend="gloo")
        if rank != 0:
            shmem.shmem_torch_process_group_init(members.group_name)
            seen += [shmem.shmem_mype(), shmem.shmem_npes()]
            tensor = shmem.mori_shmem_create_tensor((8,), torch.float32)
            tensor.fill_(shmem.shmem_mype())
            shmem.shmem_barrier_all()
            seen.append(shmem.symm_mori_shmem_tensor(tensor, 1)[0].item())
            shmem.shmem_barrier_all()
            shmem.shmem_finalize()
        dist.barrier()
        dist.destroy_process_group()
        queue.put((rank, seen))
    except BaseException as error:
        queue.put((rank, f"{type(error).__name__}: {error}"))


def test_process_groups_of_gloo():
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            spawn.Process(target=_group_member, args=(rank, folder, queue), daemon=True)
            for rank in range(3)
        ]
        try:
            for process in processes:
                process.start()
            results = dict(queue.get(timeout=80) for _ in processes)
            for process in processes:
                process.join(20)
        finally:
            for process in processes:
                if process.is_alive():
                    process.kill()
                process.join()
    assert results == {
        0: [0, 0, 3],
        1: [0, 1, 3, 0, 2, 1.0],
        2: [0, 2, 3, 1, 2, 1.0],
    }
