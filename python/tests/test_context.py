"""Contexts, memory and host calls, with PEs as threads of this process."""

import os
import threading

import numpy as np
import pytest
from mori.errors import (
    AbortedError,
    InvalidError,
    MismatchError,
    NoMemoryError,
    NotFoundError,
    StateError,
    UnsupportedError,
    WaitTimeoutError,
)
from mori.shmem import Context
from pes import OPTIONS, on_threads


def solo(**options):
    """A group of one PE."""
    return Context(Context.unique_id(), 0, 1, **{**OPTIONS, **options})


def test_pe_numbers_and_facts():
    def body(context):
        info = context.info()
        assert (info.pe, info.pe_count) == (context.pe, 3)
        assert (info.local_pe_count, info.node_count) == (3, 1)
        assert info.backend == "host"
        assert info.heap_mode == "static"
        assert info.heap_bytes == OPTIONS["heap_bytes"]
        assert info.wait_timeout_s == OPTIONS["wait_timeout_s"]
        assert 0 < info.largest_free_bytes < info.heap_bytes
        peer = context.peer_info((context.pe + 1) % 3)
        assert (peer.pe, peer.transport) == ((context.pe + 1) % 3, "p2p")
        assert peer.reason
        return context.pe, context.pe_count

    assert on_threads(3, body) == [(0, 3), (1, 3), (2, 3)]


def test_put_reaches_the_neighbour():
    def body(context):
        block = context.array((2, 256), np.int64)
        assert block.shape == (2, 256)
        assert block.dtype == np.int64
        assert not block.any()
        context.barrier_all()  # nobody puts before all have looked
        block[0] = np.arange(256) + 1000 * context.pe
        context.put(block[1], block[0], pe=(context.pe + 1) % context.pe_count)
        context.barrier_all()
        left = (context.pe - 1) % context.pe_count
        assert (block[1] == np.arange(256) + 1000 * left).all()
        fetched = np.zeros(256, np.int64)
        context.get(fetched, block[0], pe=left)
        assert (fetched == block[1]).all()
        context.barrier_all()
        used, first = context.info().used_bytes, int(block[1, 0])
        context.free(block)
        assert used - context.info().used_bytes == 4096
        return first

    assert on_threads(4, body) == [3000, 0, 1000, 2000]


def test_put_by_address_and_size():
    def body(context):
        address = context.malloc(64)
        assert address % 256 == 0
        source = np.arange(8, dtype=np.uint64) + context.pe
        context.put(address, source, 1 - context.pe)
        context.put(address + 56, source.__array_interface__["data"][0], 1 - context.pe, 8)
        context.barrier_all()
        seen = context.view(address, 8, np.uint64)
        other = 1 - context.pe
        assert seen.tolist() == [0 + other, *(k + other for k in range(1, 7)), other]
        context.barrier_all()
        context.free(address)

    on_threads(2, body)


@pytest.mark.parametrize("alignment", [1, 2, 256, 4096, 1 << 20])
def test_alignment_is_that_of_the_address(alignment):
    with solo() as context:
        addresses = [context.malloc_align(alignment, 24) for _ in range(3)]
        assert all(address % alignment == 0 for address in addresses)
        assert len(set(addresses)) == 3
        for address in addresses:
            context.free(address)


@pytest.mark.parametrize("alignment", [0, 3, 1 << 31])
def test_bad_alignment(alignment):
    with solo() as context, pytest.raises(InvalidError, match=str(alignment)):
        context.malloc_align(alignment, 8)


def test_size_zero_is_address_zero():
    with solo() as context:
        assert context.malloc(0) == 0
        context.free(0)
        empty = context.array((0, 4), np.float32)
        assert empty.shape == (0, 4)
        context.free(empty)


def test_exhausted_heap_says_how_much_is_free():
    with solo() as context:
        free = context.info().largest_free_bytes
        with pytest.raises(MemoryError, match=str(free + 1)) as caught:
            context.malloc(free + 1)
        assert isinstance(caught.value, NoMemoryError)
        block = context.malloc(4096)
        context.free(block)


def test_double_free_and_foreign_pointers():
    with solo() as context:
        block = context.malloc(512)
        with pytest.raises(NotFoundError):
            context.free(block + 8)
        context.free(block)
        with pytest.raises(NotFoundError):
            context.free(block)
        foreign = np.zeros(64)
        with pytest.raises(NotFoundError):
            context.free(foreign)
        with pytest.raises(NotFoundError):
            context.ptr_p2p(foreign.__array_interface__["data"][0], 0)


def test_sizes_that_differ_are_refused_on_all_pes():
    def body(context):
        with pytest.raises(MismatchError):
            context.malloc(1024 * (1 + context.pe))
        block = context.malloc(1024)
        context.free(block)
        return True

    assert on_threads(2, body) == [True, True]


def test_ptr_p2p_and_peer_view():
    def body(context):
        block = context.array(16, np.float32)
        block[:] = context.pe
        context.barrier_all()
        other = 1 - context.pe
        own = block.__array_interface__["data"][0]
        assert context.ptr_p2p(own, context.pe) == own
        there = context.peer_view(block, other)
        assert there.__array_interface__["data"][0] == context.ptr_p2p(own, other)
        assert (there == other).all()
        tail = context.peer_view(block[8:], other)
        assert tail.__array_interface__["data"][0] == context.ptr_p2p(own + 32, other)
        context.barrier_all()
        there[0] = 100 + context.pe
        context.barrier_all()
        assert block[0] == 100 + other
        for pe in (-1, 2, 1 << 40):
            with pytest.raises(ValueError, match=str(pe)):
                context.ptr_p2p(own, pe)
        context.barrier_all()

    on_threads(2, body)


def test_view_must_lie_in_the_heap():
    with solo() as context:
        block = context.malloc(64)
        with pytest.raises(NotFoundError):
            context.view(block, 1 << 40, np.uint8)
        with pytest.raises(NotFoundError):
            context.peer_view(np.zeros(4), 0)


def test_signal_comes_after_the_data():
    def body(context):
        block, signal = context.array(1024, np.int32), context.array(1, np.uint64)
        if context.pe == 0:
            context.put_signal(block, np.full(1024, 7, np.int32), signal, 5, 1)
            context.put_signal(0, 0, signal, 3, 1, op="add", size_bytes=0)
        else:
            assert context.wait_until(signal, "eq", 8, pe=0) == 8
            assert (block == 7).all()
        context.barrier_all()

    on_threads(2, body)


def test_atomics_of_all_pes_add_up():
    def body(context):
        words = context.array(2, np.uint64)
        for _ in range(100):
            context.atomic(words[:1], "fetch_add", 3, pe=0)
        context.quiet()
        context.barrier_all()
        total = context.atomic(words, "fetch", pe=0)
        before = context.atomic(words[1:], "compare_swap", context.pe + 1, pe=0, compare=0)
        context.barrier_all()
        return total, before

    results = on_threads(4, body)
    assert [total for total, _ in results] == [1200] * 4
    assert sorted(before for _, before in results)[0] == 0
    assert sum(before == 0 for _, before in results) == 1


@pytest.mark.parametrize("size", [4, 8])
def test_wait_until_ends_by_its_own_deadline(size):
    with solo() as context:
        word = context.array(1, np.uint64)
        with pytest.raises(TimeoutError) as caught:
            context.wait_until(word, "ne", 0, size_bytes=size, timeout_s=0.05)
        assert isinstance(caught.value, WaitTimeoutError)
        context.barrier_all()  # the call's own timeout leaves no fault behind
        assert context.wait_until(word, "eq", 0, size_bytes=size) == 0


def test_abort_wakes_the_others():
    joined = threading.Barrier(3)

    def body(context):
        joined.wait(20)  # an abort would end the others' joining too
        if context.pe == 0:
            context.abort()
            with pytest.raises(AbortedError):
                context.barrier_all()
        else:
            with pytest.raises(AbortedError):
                context.barrier_all()
        with pytest.raises(AbortedError):
            context.check()

    on_threads(3, body)


def test_registered_buffers():
    def body(context):
        block, private = context.array(64, np.uint8), np.arange(64, dtype=np.uint8)
        context.buffer_register(private)
        context.put(block, private, 1 - context.pe)
        context.barrier_all()
        assert (block == private).all()
        with pytest.raises(NotFoundError):
            context.buffer_deregister(private, 32)
        context.buffer_deregister(private)
        with pytest.raises(NotFoundError):
            context.buffer_deregister(private)

    on_threads(2, body)


def test_finalized_context_refuses_everything():
    context = solo()
    block = context.malloc(64)
    context.finalize()
    context.finalize()
    assert context.finalized
    calls = [
        lambda: context.pe,
        lambda: context.pe_count,
        context.info,
        context.check,
        context.abort,
        context.barrier_all,
        context.barrier_on_stream,
        context.quiet,
        context.fence,
        lambda: context.peer_info(0),
        lambda: context.malloc(8),
        lambda: context.malloc_align(8, 8),
        lambda: context.free(block),
        lambda: context.array(4),
        lambda: context.view(block, 4, np.uint8),
        lambda: context.ptr_p2p(block, 0),
        lambda: context.put(block, block, 0, 8),
        lambda: context.get(block, block, 0, 8),
        lambda: context.atomic(block, "inc", pe=0),
        lambda: context.wait_until(block, "eq", 0),
        lambda: context.put_signal(block, block, block, 1, 0, size_bytes=8),
        lambda: context.buffer_register(block, 8),
        lambda: context.__enter__(),
    ]
    for call in calls:
        with pytest.raises(StateError, match="finalized"):
            call()
    assert repr(context) == "<mori.shmem.Context: finalized>"


def test_again_with_another_size():
    for megabytes in (4, 8, 2):
        with solo(heap_bytes=megabytes << 20) as context:
            assert context.info().heap_bytes == megabytes << 20


def test_several_contexts_at_once():
    with solo() as one, solo() as two:
        a, b = one.array(8, np.int32), two.array(8, np.int32)
        a[:], b[:] = 1, 2
        one.barrier_all()
        two.barrier_all()
        assert a.sum() == 8
        assert b.sum() == 16
        with pytest.raises(NotFoundError):
            one.free(b)
        one.finalize()
        assert b.sum() == 16
        two.barrier_all()


@pytest.mark.parametrize("size", [0, 127, 129, 256])
def test_unique_id_of_wrong_length(size):
    with pytest.raises(ValueError, match=f"{size} bytes, expected 128"):
        Context(bytes(size), 0, 1)


@pytest.mark.parametrize("place", [0, 60, 127])
def test_damaged_unique_id(place):
    damaged = bytearray(Context.unique_id())
    damaged[place] ^= 0x55
    with pytest.raises((InvalidError, NotFoundError, WaitTimeoutError, ConnectionError, OSError)):
        Context(bytes(damaged), 1, 2, heap_bytes=1 << 20, bootstrap_timeout_s=1.0)


@pytest.mark.parametrize(
    "options",
    [
        {"pe": -1, "pe_count": 1},
        {"pe": 1, "pe_count": 1},
        {"pe": 0, "pe_count": 0},
        {"pe": 0, "pe_count": 4097},
        {"pe": 0, "pe_count": 1 << 40},
        {"pe": 0, "pe_count": 1, "heap_bytes": -1},
        {"pe": 0, "pe_count": 1, "heap_mode": "dynamic"},
        {"pe": 0, "pe_count": 1, "heap_mode": 17},
        {"pe": 0, "pe_count": 1, "backend": "tpu"},
        {"pe": 0, "pe_count": 1, "backend": 99},
        {"pe": 0, "pe_count": 1, "wait_timeout_s": 0},
        {"pe": 0, "pe_count": 1, "wait_timeout_s": -2.5},
        {"pe": 0, "pe_count": 1, "wait_timeout_s": float("nan")},
        {"pe": 0, "pe_count": 1, "wait_timeout_s": float("inf")},
        {"pe": 0, "pe_count": 1, "heartbeat_timeout_s": 0.01},
        {"pe": "0", "pe_count": 1},
        {"pe": 0.0, "pe_count": 1},
    ],
)
def test_bad_options(options):
    with pytest.raises(ValueError):
        Context(Context.unique_id(), **options)


def test_stream_on_the_host():
    with solo() as context:
        context.barrier_on_stream(0)
        with pytest.raises((InvalidError, UnsupportedError)):
            context.barrier_on_stream(1)


def test_bad_arguments_of_transfers():
    with solo() as context:
        block = context.array((4, 4), np.float32)
        with pytest.raises(InvalidError, match="64 bytes, source has 32"):
            context.put(block, np.zeros(8, np.float32), 0)
        with pytest.raises(InvalidError, match="size_bytes must be given"):
            context.put(1, 2, 0)
        with pytest.raises(InvalidError, match="size_bytes is 65, target has 64"):
            context.put(block, np.zeros(99, np.float32), 0, 65)
        with pytest.raises(InvalidError, match="strides"):
            context.put(block.T, np.zeros(16, np.float32), 0)
        with pytest.raises(InvalidError, match="target is a list"):
            context.put([1.0], np.zeros(16, np.float32), 0)
        fixed = np.zeros((4, 4), np.float32)
        fixed.flags.writeable = False
        with pytest.raises(InvalidError, match="read-only"):
            context.get(fixed, block, 0)
        with pytest.raises(InvalidError, match="read-only"):
            context.get(bytes(64), block, 0)
        with pytest.raises(InvalidError, match="'xor2', expected one of"):
            context.atomic(block, "xor2", pe=0)
        with pytest.raises(InvalidError, match="shape"):
            context.array((2, -1))
        with pytest.raises(InvalidError, match="shape"):
            context.array((2, 1.5))
        with pytest.raises(InvalidError, match="dtype"):
            context.array(2, "float17")
        with pytest.raises(ValueError):
            context.put(block, np.zeros((4, 4), np.float32), 1)
        # Not in the heap: the library refuses it before it touches anything.
        with pytest.raises(NotFoundError):
            context.put(np.zeros(4), np.zeros(4), 0)


def test_finalize_ends_the_waits_of_other_threads():
    context = solo()
    word = context.malloc(8)
    seen = []

    def wait():
        try:
            context.wait_until(word, "ne", 0)
        except (AbortedError, StateError) as error:
            seen.append(error)

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    context.finalize()
    waiter.join(10)
    assert not waiter.is_alive()
    assert len(seen) == 1


def test_words_have_the_size_of_their_elements():
    """Neighbours of a 4-byte word are neither written nor compared."""
    with solo() as context:
        block = context.array(4, np.int32)
        block[:] = [1, 2, 3, 4]
        context.atomic(block[:1], "set", 7, pe=0)
        assert block.tolist() == [7, 2, 3, 4]
        context.atomic(block, "add", 1, pe=0)
        assert block.tolist() == [8, 2, 3, 4]
        assert context.wait_until(block[:1], "eq", 8, timeout_s=5) == 8
        assert context.wait_until(block, "eq", (2 << 32) + 8, size_bytes=8, timeout_s=5)
        for call in (
            lambda: context.atomic(block[:1], "set", 9, pe=0, size_bytes=8),
            lambda: context.atomic(block.view(np.uint8)[:4], "set", 9, pe=0),
            lambda: context.wait_until(block[:1], "eq", 8, size_bytes=8),
            lambda: context.wait_until(block[:0], "eq", 8),
            lambda: context.put_signal(block[2:3], block[:1], block[:1], 9, 0),
        ):
            with pytest.raises(InvalidError, match="expected a word of"):
                call()
        assert block.tolist() == [8, 2, 3, 4]


@pytest.mark.parametrize("dtype", [object, [("a", "i4"), ("b", "O")], ">f4", "f4,,"])
def test_unusable_dtypes_are_refused_before_allocation(dtype):
    with solo() as context:
        used = context.info().used_bytes
        with pytest.raises(InvalidError, match="dtype"):
            context.array(3, dtype)
        address = context.malloc(64)
        with pytest.raises(InvalidError, match="dtype"):
            context.view(address, 3, dtype)
        context.free(address)
        assert context.info().used_bytes == used


def test_block_without_a_view_is_freed():
    with solo() as context:
        used = context.info().used_bytes
        with pytest.raises(ValueError):
            context.array((1,) * 70, np.float32)  # more dimensions than numpy has
        assert context.info().used_bytes == used


@pytest.mark.parametrize("unique_id", [128, "x" * 128, [0] * 128, None])
def test_unique_id_of_a_wrong_type(unique_id):
    with pytest.raises(InvalidError, match="expected a bytes-like object"):
        Context(unique_id, 0, 1, **OPTIONS)


def test_unique_id_may_be_any_buffer():
    unique_id = bytearray(Context.unique_id())
    Context(unique_id, 0, 1, **OPTIONS).finalize()


def test_fork_while_another_thread_looks_for_contexts():
    """The child has its own lock; the parent's would never be released there."""
    from mori.shmem import _context

    with _context._contexts_lock:
        child = os.fork()
        if child == 0:
            free = _context._contexts_lock.acquire(timeout=2)
            os._exit(0 if free else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
