"""What is refused, and how: a range error is a status that has failed already, a wrong type raises;
both name value and limit. After each of them the next transfer works."""

import time

import numpy as np
import pytest
from io_pairs import BACKENDS, engine_of, engine_pair, introduce, joined, registered, succeeded
from mori.errors import (
    CancelledError,
    InvalidError,
    MoriError,
    NotFoundError,
    StateError,
    WaitTimeoutError,
)
from mori.io import BackendType, MemoryDesc, StatusCode

SIZE = 4096
HUGE = 2**64


@pytest.fixture(params=BACKENDS)
def pair(request):
    with engine_pair(request.param) as engines:
        yield engines


@pytest.mark.parametrize("operation", ["read", "write"])
@pytest.mark.parametrize(
    ("piece", "parts"),
    [
        ((0, 0, SIZE + 1), ["4097", "4096"]),
        ((1, 0, SIZE), ["4096"]),
        ((0, 1, SIZE), ["4096"]),
        ((SIZE + 1, 0, 0), ["4097", "4096"]),
        ((0, SIZE, 1), ["4096"]),
        ((HUGE - 1, 0, 2), [str(HUGE - 1)]),
        ((0, HUGE - 8, 16), [str(HUGE - 8)]),
        ((0, 0, HUGE - 1), [str(HUGE - 1)]),
        ((-1, 0, 8), ["-1", "local_offset"]),
        ((0, -8, 8), ["-8", "remote_offset"]),
        ((0, 0, -5), ["-5", "size"]),
        ((HUGE, 0, 8), [str(HUGE)]),
    ],
)
def test_range_errors(pair, operation, piece, parts):
    session, local, remote = joined(pair, "numpy", SIZE)
    before = local.copy(), remote.copy()
    batched = [[value] for value in piece]
    for status in (
        getattr(session, operation)(*piece, 1),
        getattr(session, f"batch_{operation}")(*batched, 1),
        getattr(session, f"batch_{operation}")(*([0, value] for value in piece), 1),
    ):
        assert status.Code() is StatusCode.ERR_INVALID_ARGS
        assert status.Failed()
        for part in parts:
            assert part in status.Message()
        assert isinstance(status.error(), InvalidError)
    assert (local == before[0]).all()
    assert (remote == before[1]).all()
    succeeded(session.write(0, 0, SIZE))


def test_negative_numbers_in_arrays_are_named(pair):
    session, _, _ = joined(pair, "numpy", SIZE)
    good, bad = np.arange(3), np.array([0, 1, -2])
    status = session.batch_write(good, bad, good)
    assert status.Code() is StatusCode.ERR_INVALID_ARGS
    assert status.Message() == "remote_offsets[2] is -2, expected 0 or more"
    status = session.batch_read([0], [0], [-(2**70)])
    assert status.Message() == f"sizes[0] is {-(2**70)}, expected 0 or more"


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (([0, 1], [0], [8]), "lengths differ: local_offsets 2, remote_offsets 1, sizes 1"),
        (([0], [0], []), "lengths differ: local_offsets 1, remote_offsets 1, sizes 0"),
        ((0, [0], [8]), "local_offsets is a int, expected a sequence of integers"),
        (([0], "0", [8]), "remote_offsets is a str, expected a sequence of integers"),
        (([0], [0], [8.0]), r"sizes\[0\] is 8.0, expected an integer"),
        (([0], [0], [8, None][1:]), r"sizes\[0\] is None, expected an integer"),
        ((np.zeros((1, 1), np.uint64), [0], [8]), "local_offsets has 2 dimensions, expected 1"),
        ((np.zeros(1), [0], [8]), r"local_offsets\[0\] is .*0.0.*, expected an integer"),
        ((None, [0], [8]), "local_offsets is a NoneType"),
    ],
)
def test_wrong_lists_raise(pair, lists, message):
    session, _, _ = joined(pair, "numpy", SIZE)
    with pytest.raises(InvalidError, match=message):
        session.batch_write(*lists, 1)
    succeeded(session.write(0, 0, 8))


@pytest.mark.parametrize(
    ("arguments", "how", "message"),
    [
        ((0.0, 0, 8), {}, "local_offset is 0.0, expected an integer"),
        ((0, "0", 8), {}, "remote_offset is '0', expected an integer"),
        ((0, 0, None), {}, "size is None, expected an integer"),
        ((0, 0, 8, "uid"), {}, "transfer_uid is 'uid', expected an integer"),
        ((0, 0, 8, -1), {}, "transfer_uid is -1, expected 0"),
        ((0, 0, 8, HUGE), {}, f"transfer_uid is {HUGE}, expected 0"),
        ((0, 0, 8), {"metadata": bytes(1025)}, "metadata has 1025 bytes, at most 1024"),
        ((0, 0, 8), {"metadata": "text"}, "metadata is a str, expected a bytes-like"),
        ((0, 0, 8), {"priority": "urgent"}, "priority is 'urgent', expected one of normal"),
        ((0, 0, 8), {"timeout_s": -1}, "timeout_s is -1 s, expected more than 0"),
    ],
)
def test_wrong_arguments_raise(pair, arguments, how, message):
    session, _, _ = joined(pair, "numpy", SIZE)
    with pytest.raises(InvalidError, match=message):
        session.write(*arguments, **how)
    with pytest.raises(TypeError, match="speed"):
        session.write(0, 0, 8, speed=9)
    succeeded(session.write(0, 0, 8))


def test_wrong_lists_of_regions_raise(pair):
    initiator, target = pair
    here, _ = registered(initiator, "numpy", SIZE)
    there, _ = registered(target, "numpy", SIZE)
    with pytest.raises(InvalidError, match="lengths differ: local_mem 1, remote_mem 2"):
        initiator.batch_write([here], [[0]], [there, there], [[0]], [[8]], [1])
    with pytest.raises(InvalidError, match="transfer_uids 2"):
        initiator.batch_write([here], [[0]], [there], [[0]], [[8]], [1, 2])
    with pytest.raises(InvalidError, match=r"remote_mem\[0\] is a int, expected a MemoryDesc"):
        initiator.batch_read([here], [[0]], [5], [[0]], [[8]], [1])
    with pytest.raises(InvalidError, match="local_mem is a int, expected a list"):
        initiator.batch_read(5, [[0]], [there], [[0]], [[8]], [1])


def test_dead_objects_raise(pair):
    initiator, target = pair
    here, _ = registered(initiator, "numpy", SIZE)
    there, _ = registered(target, "numpy", SIZE)
    session = initiator.create_session(here, there)
    session.close()
    assert not session.alive()
    with pytest.raises(StateError, match="this io session was closed"):
        session.write(0, 0, 8)
    initiator.deregister_memory(here)
    with pytest.raises(NotFoundError, match=f"region {here.id}, which is not registered here"):
        initiator.write(here, 0, there, 0, 8, 1)
    with pytest.raises(NotFoundError, match="local_mem is memory of engine 'target"):
        initiator.write(there, 0, there, 0, 8, 1)


def test_session_of_deregistered_memory(pair):
    initiator, target = pair
    here, _ = registered(initiator, "numpy", SIZE)
    there, _ = registered(target, "numpy", SIZE)
    session = initiator.create_session(here, there)
    succeeded(session.write(0, 0, 8))
    initiator.deregister_memory(here)
    assert not session.alive()
    try:
        status = session.write(0, 0, 8)
    except (StateError, NotFoundError):
        return
    status.WaitFor(20_000)
    assert status.Failed()


def test_memory_that_the_peer_has_deregistered(pair):
    initiator, target = pair
    here, _ = registered(initiator, "numpy", SIZE)
    there, remote = registered(target, "numpy", SIZE)
    again, _ = registered(target, "numpy", SIZE)
    session = initiator.create_session(here, there)
    succeeded(session.write(0, 0, 8))
    target.deregister_memory(there)
    remote[:] = 77
    for operation in ("read", "write"):
        status = getattr(session, operation)(0, 0, 8)
        status.WaitFor(20_000)
        assert status.Failed(), status
        assert status.Message() != ""
    assert (remote == 77).all()
    succeeded(initiator.create_session(here, again).write(0, 0, 8))


def test_access_is_kept(pair):
    initiator, target = pair
    here, local = registered(initiator, "numpy", SIZE)
    remote = np.full(SIZE, 4, np.uint8)
    for access, forbidden in (("read", "write"), ("write", "read")):
        there = target.register_torch_tensor(remote, access=access)
        session = initiator.create_session(here, there)
        status = getattr(session, forbidden)(0, 0, SIZE)
        status.WaitFor(20_000)
        assert status.Failed(), forbidden
        succeeded(getattr(session, access)(0, 0, SIZE))
        local[:] = 4
        assert (remote == 4).all()


def test_unknown_engines():
    with engine_of("alone", "TCP") as one, engine_of("stranger", "TCP") as other:
        here, _ = registered(one, "numpy", SIZE)
        there, _ = registered(other, "numpy", SIZE)
        status = one.write(here, 0, there, 0, 8, 1)
        assert status.Code() is StatusCode.ERR_NOT_FOUND
        assert "stranger" in status.Message()
        with pytest.raises(NotFoundError, match="stranger"):
            one.create_session(here, there)
        statuses = one.batch_write([here, here], [[0], [0]], [there] * 2, [[0], [0]], [[8], [8]])
        assert [s.Code() for s in statuses] == [StatusCode.ERR_NOT_FOUND] * 2
        with pytest.raises(NotFoundError, match="stranger"):
            one.deregister_remote_engine(other.get_engine_desc())
        introduce(one, other)
        succeeded(one.write(here, 0, there, 0, 8, 1))
        one.deregister_remote_engine("stranger")
        assert one.write(here, 0, there, 0, 8, 1).Failed()


def test_no_backend_reaches():
    with engine_of("mute", None) as one, engine_of("heard", "TCP") as other:
        introduce(one, other)
        here, _ = registered(one, "numpy", SIZE)
        there, _ = registered(other, "numpy", SIZE)
        assert one.create_session(here, there) is None
        with pytest.raises(StateError, match="backend"):
            one.create_session(here, there, required=True)
        statuses = one.batch_read([here] * 3, [[0]] * 3, [there] * 3, [[0]] * 3, [[8]] * 3)
        assert [s.Code() for s in statuses] == [StatusCode.ERR_BAD_STATE] * 3
        assert all("backend" in s.Message() for s in statuses)


def test_peer_that_is_not_there():
    """The port is closed: refused for a second means that the process is gone."""
    gone = engine_of("gone", "TCP")
    desc = gone.get_engine_desc()
    there, _ = registered(gone, "numpy", SIZE)
    gone.close()
    with engine_of("left", "TCP") as one:
        one.register_remote_engine(desc)
        here, _ = registered(one, "numpy", SIZE)
        session = one.create_session(here, there)
        start = time.monotonic()
        status = session.write(0, 0, 8)
        assert status.Wait() is StatusCode.ERR_RDMA_OP
        assert time.monotonic() - start < 8
        assert "gone" in status.Message()


def test_deadline_of_a_transfer():
    """A peer that answers nothing: a listener that is no engine."""
    import socket

    with engine_of("waiting", "TCP") as one, engine_of("mute", "TCP") as other:
        introduce(one, other)
        here, _ = registered(one, "numpy", SIZE)
        there, _ = registered(other, "numpy", SIZE)
        port = other.get_engine_desc().port
        other.close()
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen()
            session = one.create_session(here, there)
            start = time.monotonic()
            status = session.write(0, 0, 8, timeout_s=0.3)
            status.WaitFor(20_000)
            assert 0.25 < time.monotonic() - start < 5
            assert status.Code() is StatusCode.ERR_RDMA_OP
            assert isinstance(status.error(), WaitTimeoutError)


def test_cancel():
    import socket

    with engine_of("cancelling", "TCP") as one, engine_of("mute", "TCP") as other:
        introduce(one, other)
        here, _ = registered(one, "numpy", SIZE)
        there, _ = registered(other, "numpy", SIZE)
        port = other.get_engine_desc().port
        other.close()
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen()
            session = one.create_session(here, there)
            status = session.write(0, 0, 8)
            status.cancel()
            status.WaitFor(20_000)
            assert status.Code() is StatusCode.ERR_BAD_STATE
            assert isinstance(status.error(), CancelledError)
            assert session.stats().cancel_count == 1
            status.cancel()  # over: nothing to do


def test_cancelled_or_delivered(pair):
    """Each of many cancelled transfers ends one way or the other, and what succeeded arrived."""
    session, local, remote = joined(pair, "numpy", 64 * SIZE)
    initiator, target = pair
    outcomes = set()
    for number in range(200):
        local[:], remote[:] = number % 250 + 1, 0
        status = session.write(0, 0, 64 * SIZE, number)
        status.cancel()
        assert status.WaitFor(20_000) in (StatusCode.SUCCESS, StatusCode.ERR_BAD_STATE)
        outcomes.add(status.Code())
        if status.Succeeded():
            assert (remote == local).all()
            assert target.wait_inbound(initiator.key, number, 20) is not None
    assert outcomes <= {StatusCode.SUCCESS, StatusCode.ERR_BAD_STATE}
    succeeded(session.write(0, 0, SIZE))


def test_closing_an_engine_ends_its_transfers():
    gone = engine_of("gone", "TCP")
    there, _ = registered(gone, "numpy", SIZE)
    one = engine_of("closing", "TCP")
    introduce(one, gone)
    gone.close()
    here, _ = registered(one, "numpy", SIZE)
    session = one.create_session(here, there)
    statuses = [session.write(0, 0, SIZE) for _ in range(50)]
    one.close()
    for status in statuses:
        status.WaitFor(5_000)
        assert status.Failed()
    with pytest.raises(StateError, match="this io engine was closed"):
        session.write(0, 0, 8)


def test_removed_backend():
    with engine_pair("TCP") as pair:
        session, _, _ = joined(pair, "numpy", SIZE)
        initiator, _ = pair
        with pytest.raises(NotFoundError):
            initiator.remove_backend(BackendType.RDMA)
        initiator.remove_backend(BackendType.TCP)
        assert not session.alive()
        assert session.write(0, 0, 8).WaitFor(20_000) > StatusCode.ERR_BEGIN
        initiator.create_backend(BackendType.TCP)
        succeeded(session.write(0, 0, 8))


def test_a_descriptor_opens_its_own_region_only():
    """Whatever of another region's descriptor is put into it."""
    with engine_pair("TCP") as (initiator, target):
        here, local = registered(initiator, "numpy", SIZE)
        first, _ = registered(target, "numpy", SIZE)
        second, second_bytes = registered(target, "numpy", SIZE)
        local[:] = 1
        packed, other, refused_count = first.pack(), second.pack(), 0
        differing = [i for i in range(len(packed)) if packed[i] != other[i]]
        assert len(differing) >= 16
        for at in differing:
            forged = packed[:at] + other[at : at + 1] + packed[at + 1 :]
            try:
                status = initiator.write(here, 0, MemoryDesc.unpack(forged), 0, SIZE, 1)
            except MoriError:
                refused_count += 1
                continue
            refused_count += status.WaitFor(20_000) > StatusCode.ERR_BEGIN
        assert refused_count >= 15  # of the capability's 16 bytes one may be alike by chance
        assert not second_bytes.any()
