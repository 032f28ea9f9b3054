"""Views of symmetric memory stay safe to touch whatever ends first."""

import gc
import threading
import time
import weakref

import numpy as np
import pytest
from mori.errors import StateError
from mori.ops import EpDispatchCombineConfig, EpDispatchCombineOp
from mori.shmem import Context, MoriShmemBuffer
from pes import OPTIONS, on_threads


def solo(**options):
    return Context(Context.unique_id(), 0, 1, **{**OPTIONS, **options})


@pytest.fixture(autouse=True)
def nothing_left_of_earlier_tests():
    """Tracebacks of errors that earlier tests expected hold views in reference cycles."""
    gc.collect()


def mappings():
    """Mappings of shared memory of this process."""
    with open("/proc/self/maps") as maps:
        return sum("memfd" in line for line in maps)


def small_op(context, **changes):
    fields = {
        "rank": context.pe,
        "world_size": context.pe_count,
        "hidden_dim": 8,
        "scale_dim": 0,
        "scale_type_size": 0,
        "max_token_type_size": 4,
        "max_num_inp_token_per_rank": 4,
        "num_experts_per_rank": 2,
        "num_experts_per_token": 2,
    }
    return EpDispatchCombineOp(EpDispatchCombineConfig(**{**fields, **changes}), context=context)


def test_view_outlives_its_context():
    before = mappings()
    context = solo()
    view = context.array(1000, np.int32)
    part = view[10:20]
    view[:] = np.arange(1000)
    context.finalize()
    assert (view == np.arange(1000)).all()
    view[5] = 77
    del view
    gc.collect()
    assert part.tolist() == list(range(10, 20))
    del part
    gc.collect()
    assert mappings() == before


def test_memory_is_unmapped_at_once_without_views():
    before = mappings()
    context = solo()
    assert mappings() > before
    context.malloc(64)
    context.finalize()
    assert mappings() == before


def test_dropped_context_is_destroyed():
    before = mappings()
    context = solo()
    gone = weakref.ref(context)
    del context
    gc.collect()
    assert gone() is None
    assert mappings() == before


def test_peer_views_outlive_the_context():
    def body(context):
        block = context.array(16, np.int32)
        block[:] = context.pe
        context.barrier_all()
        there = context.peer_view(block, 1 - context.pe)
        context.barrier_all()
        context.finalize()
        return there

    views = on_threads(2, body)
    assert [view[0] for view in views] == [1, 0]


def test_results_outlive_operator_and_context():
    context = solo()
    op = small_op(context)
    tokens = np.arange(16, dtype=np.float32).reshape(2, 8)
    indices = np.array([[0, 1], [1, -1]], np.int32)
    out, weights, _, got, count = op.dispatch(tokens, np.ones((2, 2), np.float32), None, indices)
    combined, _ = op.combine(out[:2].copy(), None, indices)
    registered = op.get_registered_combine_input_buffer(np.float32)
    context.finalize()
    with pytest.raises(StateError):
        op.dispatch(tokens, None, None, indices)
    del op, context
    gc.collect()
    assert (combined[:2] == tokens).all()
    assert int(count[0]) == 2
    assert got[:2].tolist() == indices.tolist()
    out[:] = 1
    weights[:] = 2
    registered[:] = 3


def test_closed_operator_frees_its_memory():
    with solo() as context:
        used = context.info().used_bytes
        op = small_op(context)
        assert context.info().used_bytes > used
        op.close()
        op.close()
        assert context.info().used_bytes == used
        assert repr(op) == "<mori.ops.EpDispatchCombineOp: closed>"
        for call in (
            op.reset,
            op.check,
            op.dispatch_recv,
            op.get_dispatch_src_token_pos,
            lambda: op.dispatch(np.zeros((0, 8), np.float32), None, None, np.zeros((0, 2), "i4")),
            lambda: op.combine(np.zeros((0, 8), np.float32), None, np.zeros((0, 2), "i4")),
            lambda: op.get_registered_combine_input_buffer(np.float32),
        ):
            with pytest.raises(StateError, match="closed"):
                call()


@pytest.mark.parametrize("what", ["dispatch", "combine"])
def test_operator_closed_during_a_call(what):
    """The call goes on to its end, and its results stay readable while they are used."""
    tokens, indices = np.ones((2, 8), np.float32), np.zeros((2, 2), np.int32)
    entered = threading.Event()

    def body(context):
        used = context.info().used_bytes
        op = small_op(context)

        def call():
            if what == "dispatch":
                return op.dispatch(tokens, None, None, indices, call_local_expert_count=True)[0]
            return op.combine(np.ones((4, 8), np.float32), None, indices)[0]

        if what == "combine":
            op.dispatch(tokens, None, None, indices)
        if context.pe == 1:
            entered.wait(20)
            call()
            op.close()
            context.barrier_all()
            return
        results = []
        thread = threading.Thread(target=lambda: results.append(call()))
        thread.start()
        end = time.monotonic() + 20
        while not op._lock.locked() and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(0.05)  # from the lock into the library
        op.close()
        entered.set()
        thread.join(20)
        assert results[0][0].tolist() == [1] * 8
        assert op.local_expert_count is None
        assert context.info().used_bytes > used
        results.clear()
        gc.collect()
        # The closed operator itself keeps no view.
        assert context.info().used_bytes == used
        context.barrier_all()

    on_threads(2, body)


def test_dropped_operator_frees_its_memory():
    with solo() as context:
        used = context.info().used_bytes
        op = small_op(context)
        out = op.dispatch(np.ones((1, 8), np.float32), None, None, np.array([[0, 1]], "i4"))[0]
        del op
        gc.collect()
        assert out[0, 0] == 1  # a view keeps the buffers
        assert context.info().used_bytes > used
        del out
        gc.collect()
        assert context.info().used_bytes == used


def test_freed_block_stays_readable():
    with solo() as context:
        view = context.array(64, np.uint8)
        context.free(view)
        view[:] = 9
        again = context.array(64, np.uint8)
        assert again.shape == (64,)
        context.free(again)


def test_shmem_buffer():
    with solo() as context:
        address = context.malloc(256)
        array = np.asarray(MoriShmemBuffer(address, 256, "float32", context=context))
        assert array.dtype == np.uint8
        assert array.shape == (256,)
        array[:] = 3
        assert context.view(address, 64, np.uint32)[0] == 0x03030303
        assert not hasattr(
            MoriShmemBuffer(address, 256, "float32", context=context), "__cuda_array_interface__"
        )
        with pytest.raises(LookupError):
            MoriShmemBuffer(address, 1 << 50, "float32", context=context)
        context.finalize()
        assert array.sum() == 768
