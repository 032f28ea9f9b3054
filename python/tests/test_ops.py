"""Dispatch and combine against routing.py, for all element types, PEs as threads."""

import threading

import ml_dtypes
import numpy as np
import pytest
import routing
from mori.errors import InvalidError, RecvOverflowError, StateError
from mori.ops import (
    EpDispatchCombineConfig,
    EpDispatchCombineKernelType,
    EpDispatchCombineOp,
    EpDispatchCombineQuantType,
)
from pes import on_threads

DTYPES = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
}
HIDDEN, EXPERTS_PER_RANK, TOP_K, MOST = 32, 3, 4, 6


def config_for(context, **changes):
    fields = {
        "rank": context.pe,
        "world_size": context.pe_count,
        "hidden_dim": HIDDEN,
        "scale_dim": 0,
        "scale_type_size": 0,
        "max_token_type_size": 4,
        "max_num_inp_token_per_rank": MOST,
        "num_experts_per_rank": EXPERTS_PER_RANK,
        "num_experts_per_token": TOP_K,
    }
    return EpDispatchCombineConfig(**{**fields, **changes})


def equal(found, expected):
    """Equal values; NaN counts as one value."""
    found, expected = np.asarray(found, np.float32), np.asarray(expected, np.float32)
    return np.array_equal(found, expected, equal_nan=True)


def check_dispatch(op, rank, ranks, result):
    out, weights, scales, indices, count = result
    sources = routing.received_by(rank, ranks, EXPERTS_PER_RANK)
    capacity = op.max_num_tokens_to_recv()
    own = ranks[rank]
    assert count.shape == (1,)
    assert int(count[0]) == len(sources)
    assert out.shape == (capacity, own.tokens.shape[1])
    assert out.dtype == own.tokens.dtype
    assert weights.shape == indices.shape == (capacity, TOP_K)
    assert (weights.dtype, indices.dtype) == (np.float32, np.int32)
    for row, (source, token) in enumerate(sources):
        sender = ranks[source]
        assert equal(out[row], sender.tokens[token])
        assert (weights[row] == sender.weights[token]).all()
        assert (indices[row] == sender.indices[token]).all()
        if scales is not None:
            assert (scales[row] == sender.scales[token]).all()
    per_rank = op.config.max_num_tokens_to_send
    positions = op.get_dispatch_src_token_pos()
    assert positions.dtype == np.int32
    assert positions.tolist() == [source * per_rank + token for source, token in sources]
    ranks_of, tokens_of = op.decode_send_flat_idx(positions)
    assert list(zip(ranks_of, tokens_of, strict=True)) == sources


def run_layer(op, rank, ranks, seed, registered=False):
    """One dispatch and one combine of seeded outputs, both checked."""
    own = ranks[rank]
    result = op.dispatch(own.tokens, own.weights, own.scales, own.indices)
    check_dispatch(op, rank, ranks, result)
    dtype = own.tokens.dtype
    outputs = []
    for r in range(len(ranks)):
        rows = len(routing.received_by(r, ranks, EXPERTS_PER_RANK))
        values = np.random.default_rng((seed, r)).uniform(-3, 3, (rows, own.tokens.shape[1]))
        outputs.append(values.astype(np.float32).astype(dtype))
    weights = result[1][: len(outputs[rank])].copy()
    if registered:
        buffer = op.get_registered_combine_input_buffer(dtype, own.tokens.shape[1])
        buffer[: len(outputs[rank])] = outputs[rank]
        combined, sums = op.combine(result[0], weights, own.indices, use_external_inp_buf=0)
    else:
        combined, sums = op.combine(outputs[rank], weights, own.indices)
    tokens = len(own.tokens)
    assert combined.shape == (MOST, own.tokens.shape[1])
    assert combined.dtype == dtype
    expected = routing.combined(rank, ranks, outputs, EXPERTS_PER_RANK)
    assert equal(combined[:tokens], expected)
    assert sums.shape == (MOST, TOP_K)
    for token in range(tokens):
        copies = len(routing.destinations(own.indices[token], EXPERTS_PER_RANK))
        total = np.zeros(TOP_K, np.float32)
        for _ in range(copies):
            total += own.weights[token]
        assert (sums[token] == total).all()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", DTYPES)
def test_all_element_types(name, seed):
    ranks = routing.random_ranks(
        seed,
        [MOST, 0, 3, 1],
        hidden=HIDDEN,
        dtype=DTYPES[name],
        experts_per_rank=EXPERTS_PER_RANK,
        top_k=TOP_K,
        unrouted=0.2,
    )

    def body(context):
        op = EpDispatchCombineOp(config_for(context), context=context)
        for turn in range(3):
            run_layer(op, context.pe, ranks, seed * 10 + turn, registered=turn == 2)
        op.close()

    on_threads(4, body)


def test_scales_travel():
    ranks = routing.random_ranks(
        5,
        [2, MOST, 0],
        hidden=HIDDEN,
        dtype=np.float32,
        experts_per_rank=EXPERTS_PER_RANK,
        top_k=TOP_K,
        scale_dim=5,
    )

    def body(context):
        config = config_for(context, scale_dim=5, scale_type_size=4)
        op = EpDispatchCombineOp(config, context=context)
        own = ranks[context.pe]
        result = op.dispatch(own.tokens, own.weights, own.scales, own.indices)
        assert result[2].shape == (op.max_num_tokens_to_recv(), 5)
        check_dispatch(op, context.pe, ranks, result)

    on_threads(3, body)


def test_nobody_routes_anything():
    ranks = routing.random_ranks(
        1, [3, 2], hidden=HIDDEN, dtype=np.float32, experts_per_rank=3, top_k=TOP_K, unrouted=1.0
    )

    def body(context):
        op = EpDispatchCombineOp(config_for(context), context=context)
        own = ranks[context.pe]
        out, _, _, _, count = op.dispatch(own.tokens, None, None, own.indices)
        assert int(count[0]) == 0
        assert len(op.get_dispatch_src_token_pos()) == 0
        combined, sums = op.combine(out[:0], None, own.indices)
        assert sums is None
        assert not combined[: len(own.tokens)].any()

    on_threads(2, body)


def test_without_weights():
    def body(context):
        op = EpDispatchCombineOp(config_for(context), context=context)
        tokens = np.ones((1, HIDDEN), np.float32)
        indices = np.array([[0, 3, 4, 5]], np.int32)
        out, weights, scales, _, count = op.dispatch(tokens, None, None, indices)
        assert weights is None
        assert scales is None
        combined, sums = op.combine(out[: int(count[0])].copy(), None, indices)
        assert sums is None
        assert (combined[0] == 2).all()  # two distinct ranks gave it back

    on_threads(2, body)


def test_smaller_hidden_and_mixed_element_types():
    """H and dtype are those of the call: 8-bit dispatch, 16-bit combine."""

    def body(context):
        op = EpDispatchCombineOp(config_for(context), context=context)
        tokens = np.ones((2, 16), ml_dtypes.float8_e4m3fn)
        indices = np.full((2, TOP_K), 3 * context.pe, np.int32)
        out, *_, count = op.dispatch(tokens, None, None, indices)
        assert out.shape == (op.max_num_tokens_to_recv(), 16)
        assert int(count[0]) == 2
        combined, _ = op.combine(out[:2].astype(ml_dtypes.bfloat16) * 5, None, indices)
        assert combined.dtype == ml_dtypes.bfloat16
        assert (combined[:2].astype(np.float32) == 5).all()

    on_threads(2, body)


def test_bits_of_bfloat16_in_uint16():
    def body(context):
        config = config_for(context, data_type="bfloat16", max_token_type_size=2)
        op = EpDispatchCombineOp(config, context=context)
        one, two, three = 0x3F80, 0x4000, 0x4040
        tokens = np.full((1, HIDDEN), one, np.uint16)
        indices = np.array([[0, 3, -1, -1]], np.int32)
        out, *_, count = op.dispatch(tokens, None, None, indices)
        assert out.dtype == np.uint16
        assert (out[: int(count[0])] == one).all()
        outputs = np.full((int(count[0]), HIDDEN), two if context.pe else one, np.uint16)
        combined, _ = op.combine(outputs, None, indices)
        assert (combined[0] == three).all()
        buffer = op.get_registered_combine_input_buffer(None)
        assert buffer.dtype == np.uint16
        with pytest.raises(InvalidError, match="dtype uint8, expected one of"):
            op.dispatch(np.zeros((1, HIDDEN), np.uint8), None, None, indices)

    on_threads(2, body)


def test_local_expert_count():
    ranks = routing.random_ranks(
        9, [4, 5], hidden=HIDDEN, dtype=np.float32, experts_per_rank=3, top_k=TOP_K, unrouted=0.3
    )

    def body(context):
        op = EpDispatchCombineOp(config_for(context), context=context)
        own = ranks[context.pe]
        op.dispatch(own.tokens, None, None, own.indices)
        assert op.local_expert_count is None
        op.dispatch(own.tokens, None, None, own.indices, call_local_expert_count=True)
        expected = routing.expert_counts(context.pe, ranks, EXPERTS_PER_RANK)
        assert op.local_expert_count.tolist() == expected.tolist()

    on_threads(2, body)


def test_split_phases():
    ranks = routing.random_ranks(
        3, [2, 3], hidden=HIDDEN, dtype=np.float32, experts_per_rank=3, top_k=TOP_K
    )

    def body(context):
        op = EpDispatchCombineOp(config_for(context), context=context)
        own = ranks[context.pe]
        for recv in (op.dispatch_recv, op.combine_recv):
            with pytest.raises(StateError, match="without a"):
                recv()
        result = op.dispatch_send(own.tokens, own.weights, None, own.indices)
        with pytest.raises(StateError, match="combine_recv without"):
            op.combine_recv()
        op.dispatch_recv()
        check_dispatch(op, context.pe, ranks, result)
        received = int(result[4][0])
        combined, _ = op.combine_send(result[0][:received].copy(), None, own.indices)
        op.combine_recv()
        outputs = [
            np.stack([ranks[s].tokens[t] for s, t in routing.received_by(r, ranks, 3)])
            for r in range(2)
        ]
        expected = routing.combined(context.pe, ranks, outputs, EXPERTS_PER_RANK)
        assert equal(combined[: len(own.tokens)], expected)
        op.reset()
        with pytest.raises(StateError):
            op.combine(result[0][:received].copy(), None, own.indices)

    on_threads(2, body)


def test_registered_buffer_by_config():
    def body(context):
        config = config_for(context, use_external_inp_buf=False)
        op = EpDispatchCombineOp(config, context=context)
        tokens = np.full((2, HIDDEN), 1 + context.pe, np.float32)
        indices = np.array([[0, 1, 2, 5]] * 2, np.int32)
        out, *_, count = op.dispatch(tokens, None, None, indices)
        buffer = op.get_registered_combine_input_buffer(np.float32)
        assert buffer.shape == (op.max_num_tokens_to_recv(), HIDDEN)
        buffer[: int(count[0])] = out[: int(count[0])] * 10
        combined, _ = op.combine(out, None, indices)
        assert (combined[:2] == 20 * (1 + context.pe)).all()

    on_threads(2, body)


def test_receive_cap_hit_exactly_and_exceeded_by_one():
    """R = W * ceil(cap / W): with a cap of 4 on two ranks, four rows fit."""

    def body(context):
        op = EpDispatchCombineOp(config_for(context, max_total_recv_tokens=4), context=context)
        assert op.max_num_tokens_to_recv() == 4
        assert op.max_num_tokens_to_recv_per_rank() == 2
        to_rank_1 = np.array([[3, 4, 5, -1]], np.int32)
        two = np.repeat(to_rank_1, 2, axis=0)
        tokens = np.full((3, HIDDEN), context.pe, np.float32)
        *_, count = op.dispatch(tokens[:2], None, None, two)
        assert int(count[0]) == (4 if context.pe == 1 else 0)
        mine = 3 if context.pe == 0 else 2
        with pytest.raises(RecvOverflowError, match="4"):
            op.dispatch(tokens[:mine], None, None, np.repeat(to_rank_1, mine, axis=0))
        out, *_, count = op.dispatch(tokens[:2], None, None, two)
        assert int(count[0]) == (4 if context.pe == 1 else 0)
        combined, _ = op.combine(out[: int(count[0])].copy(), None, two)
        assert (combined[:2] == context.pe).all()

    on_threads(2, body)


def test_two_operators_and_two_contexts_at_once():
    ranks = routing.random_ranks(
        4, [3, 2], hidden=HIDDEN, dtype=np.float32, experts_per_rank=3, top_k=TOP_K
    )

    def body(context):
        one = EpDispatchCombineOp(config_for(context), context=context)
        two = EpDispatchCombineOp(config_for(context), context=context)
        own = ranks[context.pe]
        first = one.dispatch(own.tokens, own.weights, None, own.indices)
        second = two.dispatch(own.tokens * 2, own.weights, None, own.indices)
        check_dispatch(one, context.pe, ranks, first)
        assert equal(second[0][: int(second[4][0])], first[0][: int(first[4][0])] * 2)

    groups = [threading.Thread(target=on_threads, args=(2, body), daemon=True) for _ in range(2)]
    for group in groups:
        group.start()
    for group in groups:
        group.join(60)
        assert not group.is_alive()


def test_results_are_the_same_array_until_something_moves():
    def body(context):
        op = EpDispatchCombineOp(config_for(context), context=context)
        tokens, indices = np.ones((1, HIDDEN), np.float32), np.zeros((1, TOP_K), np.int32)
        first = op.dispatch(tokens, None, None, indices)
        second = op.dispatch(tokens, None, None, indices)
        address = first[0].__array_interface__["data"][0]
        assert second[0].__array_interface__["data"][0] == address
        assert second[0] is not first[0]

    on_threads(1, body)


def test_sizes_and_launch_configuration():
    def body(context):
        op = EpDispatchCombineOp(config_for(context), context=context)
        assert op.max_num_tokens_to_send_per_rank() == MOST
        assert op.max_num_tokens_to_send() == 2 * MOST
        assert op.max_num_tokens_to_recv_per_rank() == MOST
        assert op.max_num_tokens_to_recv() == 2 * MOST
        assert op.get_launch_config() == (80, 0, 8)
        assert op.get_launch_config(False, block_num=3, warp_per_block=2) == (3, 0, 2)
        assert op.decode_send_flat_idx(2 * MOST + 5) == (1, 5)
        assert EpDispatchCombineOp.memory(op.config).recv_token_capacity == 2 * MOST
        assert EpDispatchCombineOp.memory(op.config).symmetric_bytes > 2 * MOST * HIDDEN * 4
        assert "IntraNode, rank" in repr(op)
        tokens, indices = np.ones((1, HIDDEN), np.float32), np.zeros((1, TOP_K), np.int32)
        reference = op.dispatch(tokens, None, None, indices)[0][:2].copy()
        for block, warp in ((1, 1), (3, 2), (1000, 16)):
            result = op.dispatch(tokens, None, None, indices, block, 0, warp)
            assert equal(result[0][:2], reference)
            context.barrier_all()

    on_threads(2, body)


def test_config_defaults_and_order_are_those_of_mori():
    config = EpDispatchCombineConfig(
        "bfloat16", 0, 1, 16, 0, 0, 2, 4, 1, 1
    )  # positional, as MORI's
    assert (config.warp_num_per_block, config.block_num) == (8, 80)
    assert config.max_total_recv_tokens == 0
    assert config.use_external_inp_buf is True
    assert config.kernel_type is EpDispatchCombineKernelType.IntraNode
    assert (config.gpu_per_node, config.rdma_block_num, config.num_qp_per_pe) == (8, 0, 1)
    assert config.quant_type == "none"
    assert config.max_num_tokens_to_recv == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_dim": 0}, "hidden_dim is 0"),
        ({"hidden_dim": -4}, "hidden_dim is -4"),
        ({"hidden_dim": 1.5}, "hidden_dim is 1.5"),
        ({"rank": 2, "world_size": 2}, r"rank is 2, expected 0 \.\. 1"),
        ({"num_experts_per_token": 0}, "num_experts_per_token is 0"),
        ({"max_num_inp_token_per_rank": 0}, "max_num_inp_token_per_rank is 0"),
        ({"max_token_type_size": 0}, "max_token_type_size is 0"),
        ({"quant_type": "fp3"}, "'fp3', expected one of none"),
        ({"quant_type": 9}, "quant_type is 9"),
        ({"kernel_type": 17}, r"kernel_type is 17, expected one of IntraNode \(0\)"),
        ({"data_type": "int7"}, "'int7', expected one of float32"),
        ({"block_num": 1 << 64}, "block_num is"),
    ],
)
def test_bad_config(changes, message):
    fields = {
        "rank": 0,
        "world_size": 1,
        "hidden_dim": 16,
        "scale_dim": 0,
        "scale_type_size": 0,
        "max_token_type_size": 4,
        "max_num_inp_token_per_rank": 4,
        "num_experts_per_rank": 1,
        "num_experts_per_token": 1,
    }
    with pytest.raises(ValueError, match=message):
        EpDispatchCombineConfig(**{**fields, **changes})


def test_missing_fields_are_named():
    with pytest.raises(TypeError, match="hidden_dim, scale_dim"):
        EpDispatchCombineConfig(rank=0, world_size=1)


def test_quantisation_names():
    for name, kind in (
        ("fp8_direct_cast", EpDispatchCombineQuantType.Fp8DirectCast),
        ("fp8_blockwise", EpDispatchCombineQuantType.Fp8BlockwiseQuant),
        ("fp4_blockwise", EpDispatchCombineQuantType.Fp4BlockwiseQuant),
    ):
        config = EpDispatchCombineConfig(None, 0, 1, 16, 0, 0, 2, 4, 1, 1, quant_type=name)
        assert config.c_fields()["quant_type"] == kind


def test_same_result_in_each_run():
    """Bitwise: sums in ascending rank, no matter which rank is late."""
    ranks = routing.random_ranks(
        11, [MOST] * 4, hidden=HIDDEN, dtype=np.float32, experts_per_rank=3, top_k=TOP_K
    )

    def body(context):
        op = EpDispatchCombineOp(config_for(context), context=context)
        own, found = ranks[context.pe], []
        for turn in range(4):
            out, *_, count = op.dispatch(own.tokens, None, None, own.indices, 1 + 7 * turn)
            outputs = out[: int(count[0])] * np.float32(1.1)
            found.append(op.combine(outputs, None, own.indices)[0].tobytes())
        return len(set(found))

    assert on_threads(4, body) == [1] * 4
