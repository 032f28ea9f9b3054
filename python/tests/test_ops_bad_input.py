"""What dispatch and combine refuse, and that the operator works on afterwards."""

import ml_dtypes
import numpy as np
import pytest
from mori.errors import InvalidError, MismatchError, StateError, UnsupportedError
from mori.ops import EpDispatchCombineConfig, EpDispatchCombineKernelType, EpDispatchCombineOp
from mori.shmem import Context
from pes import OPTIONS, on_threads

H, K, M, E = 16, 2, 4, 2


def config_for(rank=0, world_size=1, **changes):
    fields = {
        "rank": rank,
        "world_size": world_size,
        "hidden_dim": H,
        "scale_dim": 3,
        "scale_type_size": 4,
        "max_token_type_size": 4,
        "max_num_inp_token_per_rank": M,
        "num_experts_per_rank": E,
        "num_experts_per_token": K,
    }
    return EpDispatchCombineConfig(**{**fields, **changes})


@pytest.fixture
def op():
    with Context(Context.unique_id(), 0, 1, **OPTIONS) as context:
        op = EpDispatchCombineOp(config_for(), context=context)
        yield op
        # Nothing that was refused may have broken it.
        out, *_, count = op.dispatch(*good())
        assert int(count[0]) == 2
        assert (out[:2] == 1).all()
        combined, _ = op.combine(out[:2].copy(), None, good()[3])
        assert (combined[:2] == 1).all()


def good(tokens=2):
    return [
        np.ones((tokens, H), np.float32),
        np.ones((tokens, K), np.float32),
        np.ones((tokens, 3), np.float32),
        np.zeros((tokens, K), np.int32),
    ]


def changed(place, value):
    arguments = good()
    arguments[place] = value
    return arguments


WIDE = np.ones((2, 2 * H), np.float32)
DISPATCH = {
    "input one-dimensional": (0, np.ones(H, np.float32), r"shape \(16,\)"),
    "input three-dimensional": (0, np.ones((2, 1, H), np.float32), r"shape \(2, 1, 16\)"),
    "hidden above the maximum": (0, WIDE, "32 elements per token, expected 1 .. 16"),
    "hidden zero": (0, np.ones((2, 0), np.float32), "0 elements per token"),
    "rows with a gap": (0, WIDE[:, :H], r"strides \(128, 4\)"),
    "column-major": (0, np.ones((H, 2), np.float32).T, "strides"),
    "float64": (0, np.ones((2, H)), "dtype float64, expected one of float32"),
    "int32 tokens": (0, np.ones((2, H), np.int32), "dtype int32"),
    "uint16 without data_type": (0, np.ones((2, H), np.uint16), "dtype uint16"),
    "wrong byte order": (0, np.ones((2, H), ">f4"), "expected native"),
    "a list": (0, [[1.0] * H] * 2, "input is a list"),
    "None": (0, None, "input is a NoneType"),
    "weights with a row less": (1, np.ones((1, K), np.float32), r"shape \(1, 2\), expected \(2, 2"),
    "weights with a column more": (1, np.ones((2, K + 1), np.float32), r"shape \(2, 3\)"),
    "weights float64": (1, np.ones((2, K)), "weights has dtype float64, expected float32"),
    "weights with a gap": (1, np.ones((2, 2 * K), np.float32)[:, ::2], "weights has strides"),
    "scales with a column less": (2, np.ones((2, 2), np.float32), r"expected \(2, 3\)"),
    "scales of another size": (2, np.ones((2, 3), np.float16), "2 bytes, scale_type_size is 4"),
    "scales with a gap": (2, np.ones((2, 6), np.float32)[:, ::2], "scales has strides"),
    "indices int64": (3, np.zeros((2, K), np.int64), "indices has dtype int64, expected int32"),
    "indices in foreign byte order": (3, np.zeros((2, K), ">i4"), "dtype >i4, expected int32"),
    "indices with a row more": (3, np.zeros((3, K), np.int32), r"indices has shape \(3, 2\)"),
    "indices None": (3, None, "indices is a NoneType"),
    "expert id equal to the number of experts": (3, np.full((2, K), E, np.int32), "2"),
    "expert id far out of range": (3, np.full((2, K), 2**31 - 1, np.int32), "2147483647"),
}


@pytest.mark.parametrize("name", DISPATCH)
def test_dispatch_refuses(op, name):
    place, value, message = DISPATCH[name]
    with pytest.raises(ValueError, match=message) as caught:
        op.dispatch(*changed(place, value))
    assert isinstance(caught.value, InvalidError)


def test_token_count_at_and_above_the_maximum(op):
    *_, count = op.dispatch(*good(M))
    assert int(count[0]) == M
    with pytest.raises(ValueError, match="5 tokens, max_num_inp_token_per_rank is 4"):
        op.dispatch(*good(M + 1))


def test_element_larger_than_configured():
    with Context(Context.unique_id(), 0, 1, **OPTIONS) as context:
        op = EpDispatchCombineOp(config_for(max_token_type_size=2), context=context)
        with pytest.raises(ValueError, match="elements of 4 bytes, max_token_type_size is 2"):
            op.dispatch(*good())
        tokens = np.ones((2, H), ml_dtypes.bfloat16)
        assert int(op.dispatch(tokens, *good()[1:])[4][0]) == 2


def test_scales_where_none_are_configured():
    with Context(Context.unique_id(), 0, 1, **OPTIONS) as context:
        op = EpDispatchCombineOp(config_for(scale_dim=0, scale_type_size=0), context=context)
        with pytest.raises(ValueError, match="scale_dim is 0"):
            op.dispatch(*good())


@pytest.mark.parametrize("request_", [(-2, -1, -1), (1 << 31, -1, -1), (-1, -1, "8")])
def test_bad_launch_requests(op, request_):
    with pytest.raises(ValueError):
        op.dispatch(*good(), *request_)


def test_routing_handles_are_refused(op):
    with pytest.raises(UnsupportedError, match="routing"):
        op.dispatch(*good(), return_routing=True)
    with pytest.raises(UnsupportedError, match="routing"):
        op.combine(good()[0], None, good()[3], routing=object())


def test_combine_without_dispatch(op):
    with pytest.raises(StateError):
        op.combine(good()[0], None, good()[3])
    with pytest.raises(StateError):
        op.get_dispatch_src_token_pos()


COMBINE = {
    "foreign routing": ({"indices": np.ones((2, K), np.int32)}, "routing|indices"),
    "indices of fewer tokens": ({"indices": np.zeros((1, K), np.int32)}, "1"),
    "indices above the maximum": ({"indices": np.zeros((M + 1, K), np.int32)}, "5 rows"),
    "indices int64": ({"indices": np.zeros((2, K), np.int64)}, "dtype int64"),
    "indices one-dimensional": ({"indices": np.zeros(K, np.int32)}, "expected a matrix"),
    "fewer rows than received": ({"input": np.ones((1, H), np.float32)}, "1"),
    "input with a gap": ({"input": WIDE[:, :H]}, "strides"),
    "input float64": ({"input": np.ones((2, H))}, "dtype float64"),
    "weights of fewer rows": ({"weights": np.ones((1, K), np.float32)}, "weights has 1 rows, 2"),
    "weights float16": ({"weights": np.ones((2, K), np.float16)}, "weights has dtype float16"),
    "use_external_inp_buf": ({"use_external_inp_buf": 2}, "use_external_inp_buf is 2"),
}


@pytest.mark.parametrize("name", COMBINE)
def test_combine_refuses(op, name):
    changes, message = COMBINE[name]
    op.dispatch(*good())
    arguments = {"input": good()[0], "weights": None, "indices": good()[3]}
    with pytest.raises(ValueError, match=message) as caught:
        op.combine(**{**arguments, **changes})
    assert isinstance(caught.value, InvalidError)
    # The dispatch is still the last one, and can be combined.
    combined, _ = op.combine(**arguments)
    assert (combined[:2] == 1).all()


def test_weights_after_a_dispatch_that_failed(op):
    """The dispatch of a bad expert id is the last one, but it reported no receive count."""
    *_, count = op.dispatch(*good(0))
    assert int(count[0]) == 0
    indices = np.array([[0, 0], [0, 0], [E, 0]], np.int32)
    tokens = np.ones((3, H), np.float32)
    with pytest.raises(InvalidError, match="expert id"):
        op.dispatch(tokens, np.ones((3, K), np.float32), None, indices)
    with pytest.raises(InvalidError, match="input_row_count is 1, but 3"):
        op.combine(tokens, np.ones((1, K), np.float32), indices)
    sums = op.combine(tokens, np.full((3, K), 2, np.float32), indices)[1]
    assert (sums[:3] == 2).all()


def test_config_may_be_changed_afterwards():
    """The operator's checks go by the config it was built with."""
    with Context(Context.unique_id(), 0, 1, **OPTIONS) as context:
        experts = np.array(E)  # as good as an integer, yet mutable
        config = config_for(num_experts_per_rank=experts)
        op = EpDispatchCombineOp(config, context=context)
        experts[...] = 1 << 20
        for changed_config in (config, op.config):
            changed_config.num_experts_per_token = 1
            changed_config.max_num_inp_token_per_rank = 1 << 20
            changed_config.num_experts_per_rank = 1 << 20
            changed_config.hidden_dim = 8 * H
            changed_config.scale_dim = 1 << 20
            changed_config.use_external_inp_buf = False
        assert op.config == config_for()
        assert op.max_num_tokens_to_recv() == M
        for place, value in (
            (0, np.ones((2, 2 * H), np.float32)),
            (2, np.ones((2, 1 << 20), np.float32)),
            (3, np.zeros((2, 1), np.int32)),
        ):
            with pytest.raises(InvalidError):
                op.dispatch(*changed(place, value))
        with pytest.raises(InvalidError, match="5 tokens, max_num_inp_token_per_rank is 4"):
            op.dispatch(*good(M + 1))
        out, _, _, indices, _ = op.dispatch(*good(), call_local_expert_count=True)
        assert (out.shape, indices.shape) == ((M, H), (M, K))
        assert op.local_expert_count.shape == (E,)
        combined, _ = op.combine(out[:2].copy(), None, good()[3])
        assert combined.shape == (M, H)
        assert (combined[:2] == 1).all()


def test_registered_buffer_of_wrong_size(op):
    with pytest.raises(ValueError, match="hidden_dim is 0"):
        op.get_registered_combine_input_buffer(np.float32, 0)
    with pytest.raises(ValueError, match=r"takes \d+ bytes, the registered buffer has"):
        op.get_registered_combine_input_buffer(np.float32, 1 << 20)
    with pytest.raises(ValueError, match="dtype int32"):
        op.get_registered_combine_input_buffer(np.int32)
    with pytest.raises(ValueError, match="dtype >f4"):
        op.get_registered_combine_input_buffer(">f4")
    with pytest.raises(ValueError, match="neither config nor a dispatch"):
        op.get_registered_combine_input_buffer(None)


def test_config_for_another_group():
    with (
        Context(Context.unique_id(), 0, 1, **OPTIONS) as context,
        pytest.raises(ValueError, match="rank 1 of 2, the shmem context is PE 0 of 1"),
    ):
        EpDispatchCombineOp(config_for(1, 2), context=context)


def test_operator_without_context():
    with pytest.raises(StateError, match="not initialised"):
        EpDispatchCombineOp(config_for())


def test_operator_on_a_finalized_context():
    context = Context(Context.unique_id(), 0, 1, **OPTIONS)
    context.finalize()
    with pytest.raises(StateError, match="finalized"):
        EpDispatchCombineOp(config_for(), context=context)


def test_heap_too_small():
    with Context(Context.unique_id(), 0, 1, **OPTIONS) as context:
        with pytest.raises(MemoryError):
            EpDispatchCombineOp(
                config_for(hidden_dim=1 << 16, max_num_inp_token_per_rank=1 << 12),
                context=context,
            )
        EpDispatchCombineOp(config_for(), context=context).close()


@pytest.mark.parametrize(
    "kind", [k for k in EpDispatchCombineKernelType if not k.name.startswith("IntraNode")]
)
def test_kernel_types_of_other_builds(kind):
    with (
        Context(Context.unique_id(), 0, 1, **OPTIONS) as context,
        pytest.raises(NotImplementedError),
    ):
        EpDispatchCombineOp(config_for(kernel_type=kind), context=context)


def test_configs_that_differ():
    def body(context):
        config = config_for(context.pe, 2, hidden_dim=H * (1 + context.pe))
        with pytest.raises(MismatchError):
            EpDispatchCombineOp(config, context=context)
        EpDispatchCombineOp(config_for(context.pe, 2), context=context).close()

    on_threads(2, body)


def test_ranks_that_disagree_on_dtype_or_hidden():
    def body(context):
        op = EpDispatchCombineOp(config_for(context.pe, 2), context=context)
        arguments = good()
        other = np.ones((2, H), np.float16 if context.pe else np.float32)
        with pytest.raises(MismatchError):
            op.dispatch(other, *arguments[1:])

    on_threads(2, body)


def test_fault_of_one_rank_does_not_stop_the_others():
    """An expert id out of range on one rank: that rank gets the error, all go on."""

    def body(context):
        op = EpDispatchCombineOp(config_for(context.pe, 2), context=context)
        arguments = good()
        if context.pe == 1:
            arguments[3] = np.full((2, K), 99, np.int32)
            with pytest.raises(InvalidError, match="99"):
                op.dispatch(*arguments)
        else:
            op.dispatch(*arguments)
        *_, count = op.dispatch(*good())
        assert int(count[0]) == (4 if context.pe == 0 else 0)

    on_threads(2, body)


def test_invalid_experts_may_be_dropped():
    with Context(Context.unique_id(), 0, 1, **OPTIONS) as context:
        op = EpDispatchCombineOp(config_for(drop_invalid_experts=True), context=context)
        indices = np.array([[0, 99], [99, 99]], np.int32)
        *_, count = op.dispatch(*changed(3, indices))
        assert int(count[0]) == 1
