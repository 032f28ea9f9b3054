"""Every way to move bytes, between two engines of this process: what arrives is what was sent, and
nothing else changes."""

import gc
import os
import weakref

import numpy as np
import pytest
from io_pairs import (
    BACKENDS,
    MEMORIES,
    engine_of,
    engine_pair,
    introduce,
    joined,
    registered,
    succeeded,
)
from mori.io import BackendType, MemoryDesc, StatusCode, wait_all

KIB, MIB = 1 << 10, 1 << 20
PAGE = 4096


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


@pytest.fixture
def pair(backend):
    with engine_pair(backend) as engines:
        yield engines


def expected_of(operation, local, remote, pieces):
    """Both memories after the pieces (local offset, remote offset, size) have moved."""
    local, remote = local.copy(), remote.copy()
    for here, there, size in pieces:
        if operation == "write":
            remote[there : there + size] = local[here : here + size]
        else:
            local[here : here + size] = remote[there : there + size]
    return local, remote


def submit(how, operation, initiator, session, descs, pieces):
    """All pieces in one of the ways; returns (uid, status) of each transfer."""
    here, there = descs
    if how in ("batch", "session batch", "arrays"):
        columns = [list(column) for column in zip(*pieces, strict=True)] or [[], [], []]
        if how == "arrays":
            columns = [np.array(column, np.uint64) for column in columns]
        uid = initiator.allocate_transfer_uid()
        if how == "batch":
            call = getattr(initiator, f"batch_{operation}")
            return [(uid, call(here, columns[0], there, columns[1], columns[2], uid))]
        return [(uid, getattr(session, f"batch_{operation}")(*columns, uid))]
    made = []
    for piece in pieces:
        uid = initiator.allocate_transfer_uid()
        if how == "session":
            made.append((uid, getattr(session, operation)(*piece, uid)))
        else:
            call = getattr(initiator, operation)
            made.append((uid, call(here, piece[0], there, piece[1], piece[2], uid)))
    return made


# Size of the memory, and pieces in it.
SHAPES = {
    "0 bytes": (PAGE, [(0, 0, 0)]),
    "0 bytes at the end": (PAGE, [(PAGE, PAGE, 0)]),
    "1 byte": (PAGE, [(17, 4095, 1)]),
    "odd": (PAGE, [(1, 2, 1021)]),
    "4 KiB": (4 * PAGE, [(PAGE, 0, PAGE)]),
    "whole": (PAGE, [(0, 0, PAGE)]),
    "1 MiB": (MIB, [(0, 0, MIB)]),
    "1 MiB, unaligned": (MIB + 64, [(3, 5, MIB)]),
    "several, unaligned": (64 * KIB, [(i * 1000 + 1, i * 999 + 3, 977) for i in range(64)]),
    "contiguous": (64 * KIB, [(i * KIB, i * KIB, KIB) for i in range(64)]),
    "contiguous here only": (64 * KIB, [(i * 512, (63 - i) * KIB, 512) for i in range(64)]),
    "with empty ones": (PAGE, [(0, 0, 0), (8, 16, 8), (100, 100, 0), (64, 256, 64)]),
    "sources that overlap": (PAGE, [(0, 0, 512), (256, 1024, 512), (0, 2048, 64)]),
}
WAYS = ("single", "session", "batch", "session batch", "arrays")


@pytest.mark.parametrize("kind", MEMORIES)
@pytest.mark.parametrize("operation", ["read", "write"])
def test_all_ways_and_shapes(pair, kind, operation):
    """One pair of engines for all of them: the ways mix."""
    initiator, target = pair
    for name, (size, pieces) in SHAPES.items():
        here, local = registered(initiator, kind, size)
        there, remote = registered(target, kind, size)
        there = MemoryDesc.unpack(there.pack())
        session = initiator.create_session(here, there, required=True)
        # A read's sources are the target's.
        moved = [(b, a, c) for a, b, c in pieces] if operation == "read" else pieces
        for seed, how in enumerate(WAYS):
            random = np.random.default_rng(seed)
            local[:] = random.integers(0, 256, size, np.uint8)
            remote[:] = random.integers(0, 256, size, np.uint8)
            wanted = expected_of(operation, local, remote, moved)
            made = submit(how, operation, initiator, session, (here, there), moved)
            for uid, status in made:
                succeeded(status)
                inbound = target.wait_inbound(initiator.key, uid, 20)
                assert inbound is not None, f"{name}, {how}: no notification"
                assert inbound.operation == operation
                assert inbound.memory_id == there.id
            total = sum(target_size for _, _, target_size in moved)
            assert sum(status.info().size_bytes for _, status in made) == total
            assert (local == wanted[0]).all(), f"{name}, {how}: local memory"
            assert (remote == wanted[1]).all(), f"{name}, {how}: remote memory"
        assert target.pop_inbound() is None
        initiator.deregister_memory(here)
        target.deregister_memory(there)


def test_empty_batch_succeeds(pair):
    session, _, _ = joined(pair, "numpy", PAGE)
    for empty in ([], (), np.empty(0, np.uint64)):
        succeeded(session.batch_write(empty, empty, empty, 5))


def test_many_pieces(pair):
    """100 000 pieces in one batch, shuffled on both sides."""
    count, size = 100_000, 16
    session, local, remote = joined(pair, "numpy", count * size)
    random = np.random.default_rng(7)
    here, there = (random.permutation(count).astype(np.uint64) * size for _ in range(2))
    wanted = remote.copy()
    rows = local.reshape(count, size)[(here // size).astype(int)]
    wanted.reshape(count, size)[(there // size).astype(int)] = rows
    succeeded(session.batch_write(here, there, np.full(count, size, np.uint64)))
    assert (remote == wanted).all()
    local[:] = 0
    succeeded(session.batch_read(here, there, np.full(count, size, np.uint64)))
    assert (local.reshape(count, size)[(here // size).astype(int)] == rows).all()


def test_overlapping_destinations(pair):
    """They land in no certain order: each byte is one that was sent to it."""
    session, local, remote = joined(pair, "numpy", PAGE)
    local[:256], local[256:512] = 1, 2
    remote[:] = 0
    succeeded(session.batch_write([0, 256], [0, 128], [256, 256]))
    assert set(remote[:128].tolist()) == {1}
    assert set(remote[128:256].tolist()) <= {1, 2}
    assert set(remote[256:384].tolist()) == {2}
    assert not remote[384:].any()


def test_multi_session_batches(pair):
    """Lists of regions: one batch and one status for each pair of them."""
    initiator, target = pair
    heres, theres, locals_, remotes = [], [], [], []
    for number in range(5):
        for engine, descs, views in ((initiator, heres, locals_), (target, theres, remotes)):
            desc, view = registered(engine, "numpy", 8 * KIB)
            view[:] = np.random.default_rng(number).integers(0, 256, view.size, np.uint8)
            if engine is target:
                view[:] = 0
            descs.append(desc)
            views.append(view)
    offsets = [[i * 64 for i in range(number, 64)] for number in range(5)]
    sizes = [[64] * len(one) for one in offsets]
    uids = [initiator.allocate_transfer_uid() for _ in range(5)]
    statuses = initiator.batch_write(heres, offsets, theres, offsets, sizes, uids)
    assert len(statuses) == 5
    assert initiator.wait_all(statuses, 20_000) is StatusCode.SUCCESS
    for number, uid in enumerate(uids):
        assert target.wait_inbound(initiator.key, uid, 20).memory_id == theres[number].id
        start = number * 64
        assert (remotes[number][start : 64 * 64] == locals_[number][start : 64 * 64]).all()
        assert not remotes[number][:start].any()
    statuses = initiator.batch_read(heres, offsets, theres, offsets, sizes, uids)
    assert wait_all(statuses, 20_000) is StatusCode.SUCCESS


def test_many_sessions(pair):
    """A thousand sessions over one connection, all at once."""
    initiator, target = pair
    here, local = registered(initiator, "numpy", 64 * KIB)
    there, remote = registered(target, "numpy", 64 * KIB)
    local[:] = np.arange(64 * KIB) % 251
    sessions = [initiator.create_session(here, there) for _ in range(1000)]
    statuses = [
        session.write(number * 64, number * 64, 64) for number, session in enumerate(sessions)
    ]
    assert wait_all(statuses, 30_000) is StatusCode.SUCCESS
    assert (remote[:64000] == local[:64000]).all()
    assert all(session.stats().success_count == 1 for session in sessions[::100])


@pytest.mark.parametrize("security", ["mac", "encrypt", "trusted"])
def test_security(security):
    with engine_pair("TCP", security=security) as pair:
        session, local, remote = joined(pair, "numpy", 3 * MIB + 5)
        succeeded(session.write(1, 2, 3 * MIB + 1))
        assert (remote[2 : 3 * MIB + 3] == local[1 : 3 * MIB + 2]).all()
        succeeded(session.write(0, 0, 8))


def test_trust_has_to_be_mutual():
    """One side alone cannot turn protection off; the transfer works, protected."""
    with engine_of("trusting", "TCP", security="trusted") as one, engine_of("mac", "TCP") as other:
        introduce(one, other)
        session, local, remote = joined((one, other), "numpy", MIB)
        succeeded(session.write(0, 0, MIB))
        assert (remote == local).all()


def test_caller_driven_progress(backend):
    with engine_pair(backend, progress="caller") as pair:
        initiator, target = pair
        session, local, remote = joined(pair, "numpy", 64 * KIB)
        status = session.write(0, 0, 64 * KIB, 7)
        for _ in range(100_000):
            if not status.InProgress():
                break
            target.progress()
        succeeded(status)
        assert (remote == local).all()
        assert target.wait_inbound(initiator.key, 7, 20) is not None


def test_ipv6():
    import socket

    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    from mori.io import IOEngine, IOEngineConfig

    with IOEngine("six", IOEngineConfig("::1")) as one, IOEngine("6", IOEngineConfig("::1")) as two:
        for engine in (one, two):
            engine.create_backend(BackendType.TCP)
        introduce(one, two)
        session, local, remote = joined((one, two), "numpy", MIB)
        succeeded(session.write(0, 0, MIB))
        assert (remote == local).all()


def test_backends_and_memory_in_any_order():
    """Backends made after peers and memory are used all the same."""
    with engine_of("early", None) as one, engine_of("late", None) as two:
        introduce(one, two)
        here, local = registered(one, "numpy", PAGE)
        there, remote = registered(two, "numpy", PAGE)
        assert one.create_session(here, there) is None
        for engine in (one, two):
            engine.create_backend(BackendType.TCP)
        # The descriptors' addresses may be older than the backend.
        introduce(one, two)
        session = one.create_session(here, there, required=True)
        local[:] = 3
        succeeded(session.write(0, 0, PAGE))
        assert (remote == 3).all()
        assert one.backend_stats(BackendType.TCP).transfer_count == 1
        one.create_backend(BackendType.TCP)  # a second one is ignored


@pytest.mark.skipif(
    os.environ.get("MORI_LONG_TESTS") != "1", reason="long: set MORI_LONG_TESTS=1 (needs 9 GiB)"
)
def test_more_than_4_gib(pair):
    size = (4 << 30) + 12345
    session, local, remote = joined(pair, "numpy", 1)
    del session, local, remote
    initiator, target = pair
    here, local = registered(initiator, "numpy", size)
    there, remote = registered(target, "numpy", size)
    local[:: PAGE - 1] = 201
    session = initiator.create_session(here, there, required=True)
    succeeded(session.write(0, 0, size), 300)
    for start in range(0, size, 1 << 28):
        assert (remote[start : start + (1 << 28)] == local[start : start + (1 << 28)]).all()


# Choices


def test_the_best_backend_is_chosen_and_the_next_takes_over():
    with engine_pair("TCP") as pair:
        initiator, target = pair
        session, local, remote = joined(pair, "numpy", 64 * KIB)
        assert session.stats().backend is BackendType.TCP
        for engine in pair:
            try:
                engine.create_backend(BackendType.XGMI)
            except Exception as error:
                pytest.skip(f"XGMI: {error}")
        introduce(*pair)
        succeeded(session.write(0, 0, PAGE))
        pinned = initiator.create_session(
            MemoryDesc.unpack(registered(initiator, "numpy", PAGE)[0].pack()),
            registered(target, "numpy", PAGE)[0],
            backend=BackendType.TCP,
        )
        assert pinned.stats().backend is BackendType.TCP
        session, local, remote = joined(pair, "alloc", 64 * KIB)
        assert session.stats().backend is BackendType.XGMI, session.stats().reason
        initiator.remove_backend(BackendType.XGMI)
        local[:] = 9
        succeeded(session.write(0, 0, 64 * KIB))
        assert session.stats().backend is BackendType.TCP
        assert (remote == 9).all()


def test_statistics(pair, backend):
    initiator, target = pair
    session, _, _ = joined(pair, "numpy", MIB)
    for _ in range(10):
        succeeded(session.write(0, 0, 1000))
    succeeded(session.read(0, 0, 500))
    stats = session.stats()
    assert (stats.transfer_count, stats.success_count, stats.failure_count) == (11, 11, 0)
    assert (stats.written_bytes, stats.read_bytes) == (10_000, 500)
    assert 0 < stats.latency_p50_s <= stats.latency_p90_s * 1.1
    assert stats.latency_p99_s <= stats.latency_max_s * 1.1
    assert stats.backend is BackendType[backend]
    assert stats.is_alive
    assert session.alive()
    whole = initiator.backend_stats(BackendType[backend])
    assert (whole.success_count, whole.written_bytes) == (11, 10_000)
    # The one of a read comes by itself, after the bytes.
    for _ in range(11):
        assert target.wait_inbound(timeout_s=20) is not None
    # By what moved the bytes; the notifications themselves go over the connection.
    assert target.backend_stats(BackendType[backend]).inbound_count == 11
    info = session.write(0, 0, 77, 1234).info()
    assert (info.uid, info.size_bytes, info.retry_count) == (1234, 77, 0)
    assert f'engine="{initiator.key}"' in initiator.metrics_text()


# What stays alive


def test_the_engine_keeps_registered_memory():
    with engine_pair("TCP") as (initiator, target):
        array = np.full(PAGE, 5, np.uint8)
        gone = weakref.ref(array)
        here = initiator.register_torch_tensor(array)
        del array
        gc.collect()
        assert gone() is not None
        there, remote = registered(target, "numpy", PAGE)
        succeeded(initiator.write(here, 0, there, 0, PAGE, 1))
        assert (remote == 5).all()
        initiator.deregister_memory(here)
        gc.collect()
        assert gone() is None


def test_dropped_statuses_do_not_stop_transfers(pair):
    session, local, remote = joined(pair, "numpy", 4 * MIB)
    initiator, target = pair
    for uid in range(100, 132):
        offset = (uid - 100) * 128 * KIB
        session.write(offset, offset, 128 * KIB, uid)
    for uid in range(100, 132):
        assert target.wait_inbound(initiator.key, uid, 20) is not None
    assert (local == remote).all()


def test_sessions_and_statuses_keep_the_engine(backend):
    with engine_of("target", backend) as target:
        there, remote = registered(target, "numpy", MIB)
        initiator = engine_of("initiator", backend)
        introduce(initiator, target)
        here, local = registered(initiator, "numpy", MIB)
        local[:] = 8
        session = initiator.create_session(here, there)
        gone = weakref.ref(initiator)
        del initiator
        status = session.write(0, 0, MIB)
        del session
        succeeded(status)
        assert (remote == 8).all()
        del status
        gc.collect()
        assert gone() is None


def test_allocations_are_freed_with_their_last_view():
    def mapped():
        with open("/proc/self/smaps") as maps:
            return sum("memfd" in line for line in maps)

    gc.collect()
    with engine_of("allocating", "TCP") as engine:
        engine.alloc(PAGE)  # frees what earlier tests have left
        before = mapped()
        array = engine.alloc(MIB)
        assert not array.any()
        assert mapped() > before
        part = array[5:10]
        del array
        part[:] = 1
        assert mapped() > before
        del part
        assert mapped() == before
        array = engine.alloc(MIB)
        region = engine.register_torch_tensor(array)
        del array
        assert mapped() > before  # registered: peers may use it
        engine.deregister_memory(region)
        assert mapped() == before
        array = engine.alloc(MIB)
        engine.register_torch_tensor(array)
    array[:] = 6  # the engine is closed, the memory is there
    assert (array == 6).all()
    del array
    with engine_of("next", "TCP") as engine:
        engine.alloc(PAGE)
        assert mapped() == before
