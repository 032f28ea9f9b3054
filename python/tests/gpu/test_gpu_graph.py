"""Dispatch and combine in a CUDA graph: captured once, replayed with other inputs."""

import pytest

torch = pytest.importorskip("torch")

from layers import DEVICE, bits, doubled, inputs_of, layer, op_for  # noqa: E402
from mori.errors import InvalidError, StateError  # noqa: E402

pytestmark = pytest.mark.device


def captured(op, static):
    """(graph, its results): one dispatch, experts and combine on the static inputs."""
    for _ in range(2):  # what first calls make is not for a capture
        out, weights, *_ = op.dispatch(static.tokens, static.weights, None, static.indices)
        op.combine(doubled(out), weights, static.indices)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, weights, _, _, count = op.dispatch(static.tokens, static.weights, None, static.indices)
        combined, sums = op.combine(doubled(out), weights, static.indices)
    return graph, (count, combined, sums)


def load(static, given):
    for field, value in vars(given).items():
        getattr(static, field).copy_(value)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_replay_with_other_inputs(contexts, dtype):
    op, reference = op_for(contexts[0]), op_for(contexts[1])
    static = inputs_of(0, 1, 1, dtype).to(DEVICE)
    graph, (count, combined, sums) = captured(op, static)
    own = len(static.tokens)
    for seed in range(100, 150):
        given = inputs_of(0, 1, seed, dtype)
        load(static, given)
        graph.replay()
        expected = layer(reference, given)
        assert int(count[0]) == expected["received"], f"seed {seed}"
        assert bits(combined[:own]) == expected["combined"], f"seed {seed}"
        assert bits(sums[:own]) == expected["sums"], f"seed {seed}"
    op.check()


def test_replay_and_direct_calls_alternate(contexts):
    op, reference = op_for(contexts[0]), op_for(contexts[1])
    static = inputs_of(0, 1, 1, "bfloat16").to(DEVICE)
    graph, (_, combined, _) = captured(op, static)
    own = len(static.tokens)
    for seed in range(20):
        given = inputs_of(0, 1, seed, "bfloat16")
        expected = layer(reference, given)
        if seed % 2:
            assert layer(op, given.to(DEVICE)) == expected, f"seed {seed}"
        load(static, given)
        graph.replay()
        assert bits(combined[:own]) == expected["combined"], f"seed {seed}"


def test_replays_in_a_row(contexts):
    """Without a wait in between: the last inputs count."""
    op, reference = op_for(contexts[0]), op_for(contexts[1])
    static = inputs_of(0, 1, 1, "float32").to(DEVICE)
    graph, (_, combined, _) = captured(op, static)
    many = [inputs_of(0, 1, seed, "float32").to(DEVICE) for seed in range(30)]
    torch.cuda.synchronize()
    for given in many:
        load(static, given)
        graph.replay()
    expected = layer(reference, inputs_of(0, 1, 29, "float32"))
    assert bits(combined[: len(static.tokens)]) == expected["combined"]


def test_fault_in_a_replay(contexts):
    op = op_for(contexts[0])
    static = inputs_of(0, 1, 1, "float32").to(DEVICE)
    graph, _ = captured(op, static)
    static.indices[0, 0] = 10_000
    graph.replay()
    torch.cuda.synchronize()
    with pytest.raises(InvalidError, match="expert id 10000"):
        op.check()
    load(static, inputs_of(0, 1, 2, "float32"))
    graph.replay()
    torch.cuda.synchronize()
    op.check()


def test_sync_checks_cannot_be_captured(contexts, monkeypatch):
    monkeypatch.setenv("MORI_CHECK", "sync")
    op, given = op_for(contexts[0]), inputs_of(0, 1, 1, "float32").to(DEVICE)
    op.dispatch(given.tokens, None, None, given.indices)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        given.tokens.add_(1)
        with pytest.raises(StateError, match="captured"):
            op.dispatch(given.tokens, None, None, given.indices)


def test_barrier_in_a_graph(contexts):
    graph = torch.cuda.CUDAGraph()
    contexts[0].barrier_on_stream()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        contexts[0].barrier_on_stream()
    for _ in range(10):
        graph.replay()
    torch.cuda.synchronize()
    contexts[0].check()
