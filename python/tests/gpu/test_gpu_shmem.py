"""Symmetric memory on a GPU: tensors over it, host calls on it, and what keeps it."""

import gc

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import mori.shmem as shmem  # noqa: E402
from layers import DEVICE  # noqa: E402
from mori.errors import InvalidError, NotFoundError  # noqa: E402
from mori.shmem import Context  # noqa: E402
from pes import OPTIONS  # noqa: E402

TYPES = ("float32", "bfloat16", "float16", "float8_e4m3fn", "int64", "int32", "uint8", "bool")


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


@pytest.mark.device
def test_where_it_is(context):
    info = context.info()
    assert info.backend == ("amd" if torch.version.hip else "nvidia")
    assert info.gpu_ordinal == torch.cuda.current_device()
    assert info.gpu_sharer_count == 1
    assert context.peer_info(0).transport == "p2p"
    assert context.place.index == info.gpu_ordinal
    assert context.place.name in repr(context)


@pytest.mark.parametrize("name", TYPES)
def test_tensors_are_memory_of_the_heap(context, name):
    dtype = getattr(torch, name)
    tensor = context.tensor((6, 32), dtype)
    assert (tensor.dtype, tuple(tensor.shape), tensor.device.type) == (dtype, (6, 32), DEVICE)
    assert tensor.data_ptr() % 256 == 0
    flat = tensor.view(torch.uint8)
    assert not flat.any()  # zero at first
    flat.copy_(torch.arange(flat.numel(), device=DEVICE).view(flat.shape).to(torch.uint8))
    wait()
    again = context.view(tensor.data_ptr(), (6, 32), dtype)
    assert torch.equal(again.view(torch.uint8), flat)
    host = np.zeros(flat.numel(), np.uint8)
    context.get(host, tensor, pe=0)
    assert (host == flat.cpu().numpy().reshape(-1)).all()
    context.free(tensor)
    with pytest.raises(NotFoundError):
        context.free(tensor)


def test_helpers_of_mori(context):
    shmem.set_default_context(context)
    tensor = shmem.mori_shmem_create_tensor((4, 8), torch.float32)
    assert tensor.device.type == DEVICE
    tensor.fill_(3)
    wait()
    assert shmem.shmem_ptr_p2p(tensor.data_ptr(), 0, 0) == tensor.data_ptr()
    assert shmem.symm_mori_shmem_tensor(tensor, 0).data_ptr() == tensor.data_ptr()
    (only,) = shmem.mori_shmem_create_tensor_list_intra_node((3,), torch.int32)
    assert only.device.type == DEVICE
    shmem.mori_shmem_free_tensor(only)
    address = shmem.shmem_malloc(64)
    buffer = shmem.MoriShmemBuffer(address, 64, torch.float32)
    view = torch.as_tensor(buffer) if DEVICE == "cuda" else torch.from_numpy(np.asarray(buffer))
    assert (view.data_ptr(), view.dtype, view.numel()) == (address, torch.uint8, 64)
    shmem.shmem_free(address)
    shmem.mori_shmem_free_tensor(tensor)


def test_transfers_with_host_and_device_memory(context):
    block = context.tensor((64,), torch.int32)
    private = torch.arange(64, dtype=torch.int32, device=DEVICE)
    wait()
    context.put(block, private, pe=0)
    context.quiet()
    assert block.tolist() == list(range(64))
    context.put(block, np.full(64, 7, np.int32), pe=0)
    context.quiet()
    assert block.tolist() == [7] * 64
    target = torch.zeros(64, dtype=torch.int32, device=DEVICE)
    wait()
    context.get(target, block, pe=0)
    assert target.tolist() == [7] * 64
    on_cpu = torch.zeros(64, dtype=torch.int32)
    context.get(on_cpu, block, pe=0)
    assert on_cpu.tolist() == [7] * 64
    with pytest.raises(NotFoundError):
        context.put(private, block, pe=0)  # not symmetric
    with pytest.raises(InvalidError, match="target has 256 bytes, source has 128"):
        context.put(block, private[:32], pe=0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_atomics_signals_and_waits(context, dtype):
    word, data = context.tensor((2,), dtype), context.tensor((16,), torch.float32)
    signal = context.tensor((1,), torch.int64)
    wait()
    assert context.atomic(word, "add", 5, pe=0) == 0
    assert context.atomic(word, "fetch_add", 2, pe=0) == 5
    assert context.atomic(word, "compare_swap", 40, compare=7, pe=0) == 7
    assert word.tolist() == [40, 0]
    context.put_signal(data, np.ones(16, np.float32), signal, 9, pe=0)
    assert context.wait_until(signal, "eq", 9) == 9
    context.put_signal(data, np.ones(16, np.float32), signal, 1, pe=0, op="add")
    assert context.wait_until(signal, "ge", 10) == 10
    assert data.tolist() == [1.0] * 16
    with pytest.raises(TimeoutError):
        context.wait_until(signal, "eq", 11, timeout_s=0.05)
    context.barrier_all()


@pytest.mark.device
def test_tensors_keep_the_memory():
    """The device's memory is given back with the last view, not before."""
    size, slack = 1 << 30, 1 << 28
    Context(Context.unique_id(), 0, 1, **OPTIONS).finalize()  # what stays for good is there
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    context = Context(Context.unique_id(), 0, 1, **{**OPTIONS, "heap_bytes": size})
    tensor = context.tensor((1000,), torch.float32)
    part = tensor[10:]
    tensor.fill_(2)
    assert before - torch.cuda.mem_get_info()[0] >= size - slack
    context.finalize()
    del tensor, context
    gc.collect()
    assert before - torch.cuda.mem_get_info()[0] >= size - slack
    assert part.sum().item() == 2 * 990
    del part
    gc.collect()
    assert before - torch.cuda.mem_get_info()[0] < slack


@pytest.mark.device
def test_several_contexts_and_backends_at_once(context):
    with (
        Context(Context.unique_id(), 0, 1, **OPTIONS) as other,
        Context(Context.unique_id(), 0, 1, backend="host", **OPTIONS) as host,
    ):
        here, there = context.tensor((8,), torch.int32), other.tensor((8,), torch.int32)
        cpu = host.tensor((8,), torch.int32)
        for value, tensor in enumerate((here, there, cpu)):
            tensor.fill_(value + 1)
        torch.cuda.synchronize()
        assert [t.tolist()[0] for t in (here, there, cpu)] == [1, 2, 3]
        assert [t.device.type for t in (here, there, cpu)] == ["cuda", "cuda", "cpu"]
        with pytest.raises(NotFoundError):
            other.free(here)


@pytest.mark.device
def test_environment_and_argument(monkeypatch):
    monkeypatch.setenv("MORI_BACKEND", "host")
    with Context(Context.unique_id(), 0, 1, **OPTIONS) as one:
        assert one.info().backend == "host"
    with Context(
        Context.unique_id(), 0, 1, backend="amd" if torch.version.hip else "nvidia", **OPTIONS
    ) as one:
        assert one.place.index == torch.cuda.current_device()
