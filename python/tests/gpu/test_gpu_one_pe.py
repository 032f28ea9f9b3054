"""One PE on a GPU: the same bits as on the host, for all element types and ways to call."""

import pytest

torch = pytest.importorskip("torch")

from layers import (  # noqa: E402
    COMBINED,
    DEVICE,
    EXPERTS_PER_RANK,
    HIDDEN,
    MOST,
    bits,
    dispatched,
    doubled,
    inputs_of,
    layer,
    op_for,
)


@pytest.mark.parametrize("dtype", COMBINED)
@pytest.mark.parametrize("tokens", [1, 40, MOST])
def test_same_bits_as_the_host(contexts, dtype, tokens):
    given = inputs_of(0, 1, 5 + tokens, dtype, tokens=tokens)
    found, expected = (
        layer(op_for(context), given.to(device))
        for context, device in zip(contexts, (DEVICE, "cpu"), strict=True)
    )
    assert found == expected
    assert found["received"] > 0


@pytest.mark.parametrize("dtype", ["float8_e5m2", "float4_e2m1fn_x2"])
def test_types_that_are_dispatched_only(contexts, dtype):
    if not hasattr(torch, dtype):
        pytest.skip(f"torch {torch.__version__} has no {dtype}")
    kind, found = getattr(torch, dtype), []
    for context, device in zip(contexts, (DEVICE, "cpu"), strict=True):
        given = inputs_of(0, 1, 8, "uint8").to(device)
        given.tokens = given.tokens.view(kind)
        found.append(dispatched(op_for(context), given))
        assert found[-1].pop("tensors")[0].dtype == kind
    assert found[0] == found[1]


def test_results_are_on_the_device(contexts):
    op, given = op_for(contexts[0]), inputs_of(0, 1, 4, "bfloat16").to(DEVICE)
    out, weights, scales, indices, count = op.dispatch(
        given.tokens, given.weights, given.scales, given.indices
    )
    for tensor in (out, weights, scales, indices, count):
        assert tensor.device == given.tokens.device
        assert tensor.is_contiguous()
    assert (out.dtype, tuple(out.shape)) == (torch.bfloat16, (MOST, HIDDEN))
    assert (count.dtype, tuple(count.shape)) == (torch.int32, (1,))
    assert op.get_dispatch_src_token_pos().device == given.tokens.device
    again = op.dispatch(given.tokens, given.weights, given.scales, given.indices)
    assert [t.data_ptr() for t in again] == [
        t.data_ptr() for t in (out, weights, scales, indices, count)
    ]
    assert again[0] is not out


def test_without_weights_and_scales(contexts):
    op, given = op_for(contexts[0]), inputs_of(0, 1, 4, "float32").to(DEVICE)
    out, weights, scales, _, count = op.dispatch(given.tokens, None, None, given.indices)
    assert weights is None
    assert scales is None
    combined, sums = op.combine(doubled(out[: int(count[0])]), None, given.indices)
    assert sums is None
    routed = (given.indices >= 0).any(dim=1)
    assert torch.equal(combined[: len(routed)][routed], 2 * given.tokens[routed])
    assert not combined[: len(routed)][~routed].any()


def test_smaller_hidden_and_mixed_element_types(contexts):
    ops = [op_for(context) for context in contexts]
    for dtype, hidden in (("float32", 64), ("bfloat16", 128), ("float8_e4m3fn", 256)):
        given = inputs_of(0, 1, 9, dtype, hidden=hidden)
        found = layer(ops[0], given.to(DEVICE))
        assert found == layer(ops[1], given)


def test_no_tokens(contexts):
    op, given = op_for(contexts[0]), inputs_of(0, 1, 9, "float32", tokens=0).to(DEVICE)
    assert tuple(given.tokens.shape) == (0, HIDDEN)
    out, *_, count = op.dispatch(given.tokens, given.weights, given.scales, given.indices)
    assert int(count[0]) == 0
    op.combine(out[:0], None, given.indices)
    op.check()
    assert op.get_dispatch_src_token_pos().tolist() == []


def test_registered_buffer(contexts):
    given, found = inputs_of(0, 1, 6, "bfloat16"), []
    for context, device in zip(contexts, (DEVICE, "cpu"), strict=True):
        op, own = op_for(context, use_external_inp_buf=False), given.to(device)
        out, *_, count = op.dispatch(own.tokens, None, None, own.indices)
        received = int(count[0])
        buffer = op.get_registered_combine_input_buffer(torch.bfloat16)
        assert buffer.device == own.tokens.device
        buffer[:received] = doubled(out[:received])
        combined, _ = op.combine(buffer, None, own.indices)
        found.append(bits(combined[: len(own.tokens)]))
        external, _ = op.combine(doubled(out[:received]), None, own.indices, -1, -1, -1, 1)
        assert bits(external[: len(own.tokens)]) == found[-1]
    assert found[0] == found[1]


def test_input_that_is_the_output(contexts):
    """dispatch's own output is combined in place."""
    op, given = op_for(contexts[0]), inputs_of(0, 1, 6, "float16").to(DEVICE)
    out, *_ = op.dispatch(given.tokens, None, None, given.indices)
    out.mul_(2)
    combined, _ = op.combine(out, None, given.indices)
    routed = (given.indices >= 0).any(dim=1)
    assert torch.equal(combined[: len(routed)][routed], 2 * given.tokens[routed])


@pytest.mark.parametrize("launch", [(1, 0, 1), (2, 0, 4), (80, 0, 8), (256, 0, 16)])
def test_launch_requests_do_not_change_results(contexts, launch):
    given = inputs_of(0, 1, 21, "bfloat16")
    expected = layer(op_for(contexts[1]), given)
    block_num, _, warps = launch
    op = op_for(contexts[0], block_num=block_num, warp_num_per_block=warps)
    assert layer(op, given.to(DEVICE)) == expected


def test_split_phases(contexts):
    op, given = op_for(contexts[0]), inputs_of(0, 1, 6, "float32").to(DEVICE)
    out, *_, count = op.dispatch_send(given.tokens, None, None, given.indices)
    op.dispatch_recv()
    received = int(count[0])
    combined, _ = op.combine_send(doubled(out[:received]), None, given.indices)
    op.combine_recv()
    routed = (given.indices >= 0).any(dim=1)
    assert torch.equal(combined[: len(routed)][routed], 2 * given.tokens[routed])


def test_many_calls(contexts):
    """Epochs advance; each call has its own inputs."""
    ops = [op_for(context) for context in contexts]
    for seed in range(30):
        given = inputs_of(0, 1, seed, "bfloat16", tokens=1 + seed % MOST)
        assert layer(ops[0], given.to(DEVICE)) == layer(ops[1], given), f"seed {seed}"


def test_expert_counts(contexts):
    op, given = op_for(contexts[0]), inputs_of(0, 1, 12, "float32").to(DEVICE)
    assert op.local_expert_count is None
    found = dispatched(op, given)
    ids = given.indices.flatten().tolist()
    assert found["experts"] == [ids.count(expert) for expert in range(EXPERTS_PER_RANK)]
