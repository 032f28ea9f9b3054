"""What is wrong with a call on a GPU: at once where the host can see it, else at the next call, at
check(), or at once with MORI_CHECK=sync."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from layers import DEVICE, HIDDEN, TOP_K, inputs_of, layer, op_for  # noqa: E402
from mori.errors import InvalidError, RecvOverflowError, StateError  # noqa: E402
from mori.shmem import Context  # noqa: E402
from pes import OPTIONS  # noqa: E402


@pytest.fixture
def given():
    return inputs_of(0, 1, 3, "float32").to(DEVICE)


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def bad_ids(given):
    indices = given.indices.clone()
    indices[2, 1] = 10_000
    return indices


@pytest.mark.device
def test_bad_id_is_raised_by_check(context, given):
    op = op_for(context)
    op.dispatch(given.tokens, given.weights, given.scales, bad_ids(given))
    wait()
    with pytest.raises(InvalidError, match="expert id 10000 of token 2, slot 1 is not below 8"):
        op.check()
    op.check()  # it is raised once
    layer(op, given)


@pytest.mark.device
def test_bad_id_is_raised_by_the_next_call(context, given):
    op = op_for(context)
    op.dispatch(given.tokens, None, None, bad_ids(given))
    wait()
    with pytest.raises(InvalidError, match="expert id 10000"):
        op.dispatch(given.tokens, given.weights, given.scales, given.indices)
    layer(op, given)


def test_bad_id_at_once(context, given, monkeypatch):
    monkeypatch.setenv("MORI_CHECK", "sync")
    op = op_for(context)
    with pytest.raises(InvalidError, match="expert id 10000"):
        op.dispatch(given.tokens, None, None, bad_ids(given))
    op.check()
    layer(op, given)


def test_bad_ids_may_be_dropped(context, given):
    op = op_for(context, drop_invalid_experts=True)
    op.dispatch(given.tokens, None, None, bad_ids(given))
    wait()
    op.check()


@pytest.mark.parametrize("sync", [pytest.param(False, marks=pytest.mark.device), True])
def test_overflow(context, given, monkeypatch, sync):
    if sync:
        monkeypatch.setenv("MORI_CHECK", "sync")
    op = op_for(context, max_total_recv_tokens=5)
    message = "rank 0 would receive .* the capacity is 5"
    if sync:
        with pytest.raises(RecvOverflowError, match=message):
            op.dispatch(given.tokens, None, None, given.indices)
    else:
        op.dispatch(given.tokens, None, None, given.indices)
        wait()
        with pytest.raises(RecvOverflowError, match=message):
            op.check()
    few = inputs_of(0, 1, 3, "float32", tokens=5).to(DEVICE)
    layer(op, few)


@pytest.mark.parametrize("sync", [pytest.param(False, marks=pytest.mark.device), True])
def test_foreign_routing(context, given, monkeypatch, sync):
    if sync:
        monkeypatch.setenv("MORI_CHECK", "sync")
    op = op_for(context)
    out, *_, count = op.dispatch(given.tokens, None, None, given.indices)
    outputs, other = out[: int(count[0])].clone(), given.indices.flip(0).contiguous()
    message = "indices are not the routing of the last dispatch"
    if sync:
        with pytest.raises(InvalidError, match=message):
            op.combine(outputs, None, other)
    else:
        op.combine(outputs, None, other)
        wait()
        with pytest.raises(InvalidError, match=message):
            op.check()
    layer(op, given)


@pytest.mark.device
def test_too_few_rows_for_combine(context, given):
    op = op_for(context)
    out, *_, count = op.dispatch(given.tokens, None, None, given.indices)
    received = int(count[0])
    op.combine(out[: received - 1].clone(), None, given.indices)
    wait()
    with pytest.raises(InvalidError, match=f"input_row_count is {received - 1}, but {received} "):
        op.check()


@pytest.mark.device
def test_arrays_elsewhere_are_refused_at_once(context, given):
    op = op_for(context)
    tokens, indices = given.tokens, given.indices
    bad = [
        (tokens.cpu(), indices, "input is on cpu, the context is on cuda:0"),
        (tokens, indices.cpu(), "indices is on cpu, the context is on cuda:0"),
        (tokens.cpu().numpy(), indices, "input is a numpy array in host memory"),
        (tokens.to("meta"), indices, "input is on meta"),
    ]
    if torch.cuda.device_count() > 1:
        bad.append((tokens.to("cuda:1"), indices, "input is on cuda:1, the context is on cuda:0"))
    for one, other, message in bad:
        with pytest.raises(InvalidError, match=message):
            op.dispatch(one, None, None, other)
    layer(op, given)


def test_shapes_types_and_strides_are_refused_at_once(context, given):
    op = op_for(context)
    tokens, indices = given.tokens, given.indices
    wide = torch.zeros(4, 2 * HIDDEN, device=DEVICE)[:, ::2]
    bad = [
        (tokens.double(), indices, "input has dtype float64"),
        (tokens, indices.long(), "indices has dtype int64, expected int32"),
        (tokens, indices[:, :1], rf"indices has shape \(40, 1\), expected \(40, {TOP_K}\)"),
        (tokens[:3], indices, "indices has shape"),
        (wide, indices[:4], "strides"),
        (tokens.t().contiguous().t(), indices, "strides"),
        (torch.ones(99, HIDDEN, device=DEVICE), indices, "input has 99 tokens, max_num_inp"),
        ([[1.0]], indices, "input is a list"),
    ]
    for one, other, message in bad:
        with pytest.raises(InvalidError, match=message):
            op.dispatch(one, None, None, other)
    layer(op, given)


def test_order_of_calls(context, given):
    op = op_for(context)
    with pytest.raises(StateError, match="combine without a dispatch"):
        op.combine(given.tokens, None, given.indices)
    with pytest.raises(StateError):
        op.get_dispatch_src_token_pos()
    layer(op, given)
    op.close()
    with pytest.raises(StateError, match="closed"):
        op.dispatch(given.tokens, None, None, given.indices)


def test_numpy_is_for_the_host(given):
    with Context(Context.unique_id(), 0, 1, backend="host", **OPTIONS) as host:
        out, *_ = op_for(host).dispatch(
            given.tokens.cpu().numpy(), None, None, given.indices.cpu().numpy()
        )
        assert isinstance(out, np.ndarray)
        if DEVICE == "cuda":
            with pytest.raises(InvalidError, match="input is on device cuda:0, the host backend"):
                op_for(host).dispatch(given.tokens, None, None, given.indices)
