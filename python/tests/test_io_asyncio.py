"""The completion queue and notifications in asyncio, and with poll and epoll."""

import asyncio
import select
import threading

import pytest
from io_pairs import BACKENDS, engine_pair, joined, succeeded
from mori.errors import StateError
from mori.io import StatusCode


@pytest.fixture(params=BACKENDS)
def pair(request):
    with engine_pair(request.param) as engines:
        yield engines


def run(coroutine):
    async def bounded():
        return await asyncio.wait_for(coroutine, 60)

    return asyncio.run(bounded())


def test_completions_with_epoll(pair):
    initiator, _ = pair
    session, _, _ = joined(pair, "numpy", 4096)
    queue = initiator.completions()
    assert queue.poll() == []
    with select.epoll() as epoll:
        epoll.register(queue, select.EPOLLIN)
        assert epoll.poll(0) == []
        tags = [("request", number) for number in range(20)]
        for number, tag in enumerate(tags):
            session.write(0, 0, number, 500 + number, completion=True, tag=tag)
        session.write(0, 0, 8)  # nobody asked for its completion
        found = []
        while len(found) < 20:
            assert epoll.poll(20), "the descriptor does not turn readable"
            found += queue.poll(7)
        assert sorted(one.tag for one in found) == tags
        for one in found:
            number = one.tag[1]
            assert (one.uid, one.size_bytes, one.operation) == (500 + number, number, "write")
            assert one.status.Code() is StatusCode.SUCCESS
        assert queue.poll() == []


def test_completion_of_a_failed_transfer(pair):
    initiator, _ = pair
    session, _, _ = joined(pair, "numpy", 4096)
    status = session.write(0, 0, 8, completion=True)
    [done] = initiator.completions().wait(20)
    assert done.status is status
    assert initiator.completions().wait(0.01) == []
    # Refused at once: there is no transfer, so no completion either.
    assert session.write(0, 0, 8192, completion=True).Failed()
    assert initiator.completions().wait(0.05) == []


def test_completions_in_asyncio(pair):
    initiator, _ = pair
    session, _, _ = joined(pair, "numpy", 1 << 16)

    async def main():
        seen = []
        for number in range(50):
            session.read(0, 0, 1 << 16, completion=True, tag=number)
        async for one in initiator.completions():
            one.status.check()
            seen.append(one.tag)
            if len(seen) == 50:
                break
        return seen

    assert sorted(run(main())) == list(range(50))


def test_inbound_in_asyncio(pair):
    """Several tasks wait for a notification each; one arrives that nobody waits for."""
    initiator, target = pair
    session, _, _ = joined(pair, "numpy", 4096)

    async def main():
        tasks = [asyncio.create_task(target.inbound(initiator.key, uid)) for uid in range(10)]
        await asyncio.sleep(0)
        for uid in (77, 3, 9, 0, 1, 2, 4, 5, 6, 7, 8):
            session.write(0, 0, 16, uid, metadata=f"number {uid}".encode())
            await asyncio.sleep(0)
        return await asyncio.gather(*tasks)

    found = run(main())
    assert [one.metadata for one in found] == [f"number {uid}".encode() for uid in range(10)]
    last = target.pop_inbound()
    assert (last.uid, last.metadata, last.size_bytes) == (77, b"number 77", 16)
    assert target.pop_inbound() is None


def test_unclaimed_notifications_do_not_keep_the_loop_busy(pair):
    initiator, target = pair
    session, _, _ = joined(pair, "numpy", 4096)

    async def main():
        task = asyncio.create_task(target.inbound(initiator.key, 1))
        await asyncio.sleep(0)
        for uid in range(2, 12):
            await asyncio.to_thread(succeeded, session.write(0, 0, 8, uid))
        await asyncio.sleep(0.1)
        loop, wakes = asyncio.get_running_loop(), 0
        real = loop._run_once

        def counted():
            nonlocal wakes
            wakes += 1
            real()

        loop._run_once = counted
        await asyncio.sleep(0.3)
        loop._run_once = real
        session.write(0, 0, 8, 1)
        await task
        return wakes

    assert run(main()) < 20
    assert sorted(target.pop_inbound().uid for _ in range(10)) == list(range(2, 12))


def test_threads_and_tasks_wait_side_by_side(pair):
    initiator, target = pair
    session, _, _ = joined(pair, "numpy", 4096)
    found = []
    thread = threading.Thread(
        target=lambda: found.append(target.wait_inbound(initiator.key, 1, 30)), daemon=True
    )
    thread.start()

    async def main():
        task = asyncio.create_task(target.inbound(initiator.key, 2))
        await asyncio.sleep(0)
        session.write(0, 0, 8, 1)
        session.write(0, 0, 8, 2)
        return await task

    assert run(main()).uid == 2
    thread.join(30)
    assert [one.uid for one in found] == [1]


def test_cancelled_tasks_leave_nothing_behind(pair):
    initiator, target = pair
    session, _, _ = joined(pair, "numpy", 4096)

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(target.inbound(initiator.key, 5), 0.05)
        assert target.events._futures == []
        session.write(0, 0, 8, 5)
        return await target.inbound(initiator.key, 5)

    assert run(main()).uid == 5


def test_closing_ends_waits():
    with engine_pair("TCP") as (_, target):

        async def main():
            task = asyncio.create_task(target.inbound("nobody", 5))
            await asyncio.sleep(0.05)
            target.close()
            with pytest.raises(StateError, match="this io engine was closed"):
                await task

        run(main())
    with engine_pair("TCP") as (_, target):
        raised = []

        def wait():
            try:
                target.wait_inbound("nobody", 5)
            except StateError as error:
                raised.append(str(error))

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        target.close()
        thread.join(20)
        assert raised == ["this io engine was closed"]
