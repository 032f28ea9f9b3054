"""Calls on streams: ordered with what is there, and no call waits for the device."""

import pytest

torch = pytest.importorskip("torch")

from layers import DEVICE, bits, doubled, inputs_of, op_for  # noqa: E402
from mori.shmem import shmem_barrier_on_stream  # noqa: E402
from pes import run_python  # noqa: E402

pytestmark = pytest.mark.device
LONG = 1_000_000_000  # clock cycles: a fraction of a second on any GPU


@pytest.fixture
def warm(context):
    """(operator, inputs): all that the first call makes is made."""
    op, given = op_for(context), inputs_of(0, 1, 3, "bfloat16").to(DEVICE)
    out, *_ = op.dispatch(given.tokens, None, None, given.indices)
    op.combine(doubled(out), None, given.indices)
    torch.cuda.synchronize()
    return op, given


def busy(stream):
    """Keeps a stream at work for a while; returns an event behind that work."""
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG)
        event = torch.cuda.Event()
        event.record(stream)
    return event


def test_calls_do_not_wait(warm):
    op, given = warm
    stream = torch.cuda.current_stream()
    event = busy(stream)
    for _ in range(3):
        out, *_, count = op.dispatch(given.tokens, None, None, given.indices)
        op.combine(out, None, given.indices)
    assert not event.query(), "a call has waited for its stream"
    torch.cuda.synchronize()
    assert int(count[0]) > 0


def test_current_stream_of_torch(warm):
    """Work that was put on the stream before the call is seen by it, and its results by what
    comes after."""
    op, given = warm
    stream, fresh = torch.cuda.Stream(), inputs_of(0, 1, 77, "bfloat16").to(DEVICE)
    torch.cuda.synchronize()
    expected = bits(doubled(fresh.tokens))
    with torch.cuda.stream(stream):
        event = busy(stream)
        given.tokens.copy_(fresh.tokens)
        out, *_ = op.dispatch(given.tokens, None, None, given.indices)
        combined, _ = op.combine(doubled(out), None, given.indices)
        kept = combined[: len(given.tokens)].clone()
        assert not event.query()
    torch.cuda.current_stream().synchronize()  # another stream: nothing of it is there
    assert not event.query(), "the call was on another stream than torch's current one"
    stream.synchronize()
    routed = (given.indices >= 0).any(dim=1)
    kept[~routed] = doubled(fresh.tokens)[~routed]
    assert bits(kept) == expected


@pytest.mark.parametrize("form", ["object", "handle"])
def test_stream_argument(warm, form):
    op, given = warm
    stream = torch.cuda.Stream()
    argument = stream if form == "object" else stream.cuda_stream
    event = busy(stream)
    out, *_, count = op.dispatch(given.tokens, None, None, given.indices, stream=argument)
    after = torch.cuda.Event()
    after.record(stream)
    torch.cuda.current_stream().synchronize()
    assert not event.query()
    assert not after.query()
    torch.cuda.current_stream().wait_stream(stream)
    assert int(count[0]) > 0
    combined, _ = op.combine(out, None, given.indices, stream=argument)
    stream.synchronize()
    routed = (given.indices >= 0).any(dim=1)
    assert torch.equal(combined[: len(routed)][routed], given.tokens[routed])


def test_barrier_on_streams(context):
    stream = torch.cuda.Stream()
    event = busy(stream)
    with torch.cuda.stream(stream):
        shmem_barrier_on_stream(context=context)
    context.barrier_on_stream(stream)
    context.barrier_on_stream(stream.cuda_stream)
    after = torch.cuda.Event()
    after.record(stream)
    torch.cuda.current_stream().synchronize()
    assert not event.query()
    assert not after.query()
    stream.synchronize()
    assert after.query()
    shmem_barrier_on_stream(0, context=context)
    torch.cuda.synchronize()
    context.check()


DROPPED = """
import torch
from mori.shmem import Context
context = Context(Context.unique_id(), 0, 1, heap_bytes=64 << 20)
tensor = context.tensor((1 << 20,), torch.float32)
tensor.fill_(0)
torch.cuda.synchronize()
torch.cuda._sleep(1_000_000_000)
tensor.fill_(1)  # waits behind the sleep
context.finalize()
del tensor, context  # the last view: now the memory goes
torch.cuda.synchronize()
print(torch.ones(4, device="cuda").sum().item())
"""


def test_memory_dropped_with_work_under_way():
    """In a process of its own: an access to memory that is gone would end all use of the GPU."""
    done = run_python(DROPPED)
    assert (done.returncode, done.stdout) == (0, "4.0\n"), done.stderr


def test_operator_dropped_with_work_under_way(context):
    """Its buffers stay until the device is done with them."""
    op, given = op_for(context), inputs_of(0, 1, 3, "float32").to(DEVICE)
    busy(torch.cuda.current_stream())
    out, *_ = op.dispatch(given.tokens, None, None, given.indices)
    kept = out[:1].clone()
    del op, out
    torch.cuda.synchronize()
    assert kept.isfinite().all()
    context.check()
