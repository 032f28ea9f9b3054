"""Many threads on one pair of engines: every successful write has exactly one notification at the
target, whatever else happens; and the interpreter lock is free while a thread waits."""

import collections
import random
import threading
import time

import numpy as np
import pytest
from io_pairs import BACKENDS, engine_pair, joined, registered, succeeded
from mori.io import StatusCode, wait_all

THREADS = 8
SIZE = 1 << 16


@pytest.fixture(params=BACKENDS)
def pair(request):
    with engine_pair(request.param) as engines:
        yield engines


def in_threads(count, body):
    """body(number) in each; the first failure is raised."""
    failures = []

    def guarded(number):
        try:
            body(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(80)
        assert not thread.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]


def test_each_write_is_notified_once(pair):
    """Writes, reads, cancelled ones and refused ones from 8 threads, while another takes the
    notifications. To repeat: the seed is the thread's number."""
    initiator, target = pair
    rounds, done = 150, threading.Event()
    received = collections.Counter()
    outcomes = [{} for _ in range(THREADS)]
    regions = [
        (registered(initiator, "numpy", 2 * SIZE), registered(target, "numpy", 2 * SIZE))
        for _ in range(THREADS)
    ]

    def work(number):
        choose = random.Random(number)
        (here, local), (there, remote) = regions[number]
        session = initiator.create_session(here, there, required=True)
        for turn in range(rounds):
            uid = initiator.allocate_transfer_uid()
            size = choose.choice((0, 1, 7, 64, 4096, SIZE))
            kind = choose.choice(("write", "write", "write", "read", "cancel", "batch", "far"))
            if kind == "batch":
                offsets = np.arange(0, SIZE, SIZE // 32, dtype=np.uint64)
                status = session.batch_write(offsets, offsets, np.full(32, 100), uid)
            elif kind == "read":
                status = session.read(0, 0, size, uid)
            elif kind == "write":
                # In the second half, where nothing else is in flight.
                local[SIZE : SIZE + size] = turn % 256
                status = session.write(SIZE, SIZE, size, uid)
                status.Wait()
                assert (remote[SIZE : SIZE + size] == turn % 256).all()
            else:
                status = session.write(0, 0, size + (2 * SIZE + 1) * (kind == "far"), uid)
            if kind == "cancel":
                status.cancel()
            elif choose.random() < 0.3:
                status.Wait()
            outcomes[number][uid] = status

    def take():
        while True:
            last = done.is_set()
            found = target.wait_inbound(timeout_s=0.05)
            if found is not None:
                assert found.peer_key == initiator.key
                received[found.uid] += 1
            elif last:
                return

    taker = threading.Thread(target=take, daemon=True)
    taker.start()
    try:
        in_threads(THREADS, work)
    finally:
        statuses = [status for one in outcomes for status in one.values()]
        for status in statuses:
            status.WaitFor(20_000)
        done.set()
        taker.join(60)
    assert not taker.is_alive()
    delivered = {uid for one in outcomes for uid, status in one.items() if status.Succeeded()}
    assert {uid for uid, count in received.items() if count > 1} == set()
    assert delivered - received.keys() == set()
    ended = {status.Code() for status in statuses}
    assert ended <= {
        StatusCode.SUCCESS,
        StatusCode.ERR_BAD_STATE,  # cancelled
        StatusCode.ERR_INVALID_ARGS,  # too far
    }
    assert len(delivered) > THREADS * rounds // 2


def test_one_session_in_many_threads(pair):
    session, local, remote = joined(pair, "numpy", THREADS * 4096)

    def work(number):
        start = number * 4096
        for turn in range(100):
            local[start : start + 4096] = (number * 7 + turn) % 256
            succeeded(session.write(start, start, 4096))
            assert (remote[start : start + 4096] == (number * 7 + turn) % 256).all()

    in_threads(THREADS, work)
    assert session.stats().success_count == THREADS * 100


def test_many_threads_wait_for_one_status(pair):
    session, _, _ = joined(pair, "numpy", 32 << 20)
    for _ in range(5):
        status = session.write(0, 0, 32 << 20)
        in_threads(THREADS, lambda _, status=status: succeeded(status))


def test_threads_wait_for_notifications_of_their_own(pair):
    """Each gets its own, though any of them may be the one that takes them from the library."""
    initiator, target = pair
    session, _, _ = joined(pair, "numpy", 4096)

    def wait(number):
        for turn in range(30):
            found = target.wait_inbound(initiator.key, number * 1000 + turn, 30)
            assert found is not None, f"thread {number}, notification {turn}"

    def send():
        for turn in range(30):
            for number in reversed(range(THREADS)):
                succeeded(session.write(0, 0, 8, number * 1000 + turn))

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    in_threads(THREADS, wait)
    sender.join(30)
    assert target.pop_inbound() is None


def test_waiting_leaves_the_interpreter_free():
    """While threads wait for notifications that do not come, this one computes undisturbed."""
    with engine_pair("TCP") as (_, target):
        end = time.monotonic() + 1.0
        threads = [
            threading.Thread(target=target.wait_inbound, args=("nobody", n, 1.0), daemon=True)
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        steps = 0
        while time.monotonic() < end:
            steps += 1
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        assert steps > 10_000


def test_back_pressure_is_no_error():
    """More transfers at once than the engine takes: submissions wait their turn."""
    with engine_pair("TCP", transfer_count=16) as pair:
        session, _, _ = joined(pair, "numpy", SIZE)
        statuses = [session.write(0, 0, SIZE) for _ in range(500)]
        assert wait_all(statuses, 60_000) is StatusCode.SUCCESS
