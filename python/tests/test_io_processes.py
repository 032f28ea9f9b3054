"""Engines in two processes: what arrives, and what is said when one of them dies, stalls, or ends
with transfers in flight."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from io_pairs import BACKENDS, ask, other_process, registered, run_python_io, succeeded
from mori.errors import PeerDeadError, WaitTimeoutError
from mori.io import StatusCode

SIZE = 1 << 20


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


@pytest.mark.parametrize("kind", ["numpy", "alloc"])
def test_both_directions(backend, kind):
    with other_process(backend, kind, SIZE) as (child, _, session, local):
        local[:] = np.random.default_rng(5).integers(0, 256, SIZE, np.uint8)
        succeeded(session.write(0, 0, SIZE, 11, metadata=b"all of it"))
        assert ask(child, "bytes") == local.tobytes()
        found = ask(child, "pop", "here", 11)
        assert (found.uid, found.size_bytes, found.metadata) == (11, SIZE, b"all of it")
        assert (found.peer_key, found.operation) == ("here", "write")
        ask(child, "fill", 99)
        offsets = np.arange(0, SIZE, 4096)
        succeeded(session.batch_read(offsets, offsets[::-1].copy(), np.full(256, 4096), 12))
        assert (local == 99).all()
        succeeded(session.write(0, 0, 8, 13, notify=False))
        assert ask(child, "count") == 1  # the read's
        child.tell(("end",))
        child.end()


def stopped(pid):
    """Waits until a process is stopped."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with open(f"/proc/{pid}/stat") as stat:
            if stat.read().rsplit(")", 1)[1].split()[0] == "T":
                return
        time.sleep(0.01)
    raise AssertionError("the process does not stop")


def test_killed_target(backend):
    with other_process(backend, "numpy", SIZE, peer_timeout_s=5) as (child, _, session, _local):
        succeeded(session.write(0, 0, SIZE))
        child.process.kill()
        child.process.join()
        start = time.monotonic()
        status = session.write(0, 0, SIZE)
        status.WaitFor(30_000)
        assert status.Failed()
        assert time.monotonic() - start < 10
        assert "other" in status.Message()
        assert isinstance(status.error(), PeerDeadError | WaitTimeoutError | OSError)
        assert not session.alive()


def test_killed_target_with_transfers_in_flight(backend):
    size = 64 << 20
    with other_process(backend, "numpy", size, peer_timeout_s=5) as (child, _, session, _local):
        statuses = [session.write(0, 0, size) for _ in range(8)]
        child.process.kill()
        child.process.join()
        start = time.monotonic()
        for status in statuses:
            status.WaitFor(30_000)
            assert not status.InProgress()
        assert time.monotonic() - start < 12
        assert any(status.Failed() for status in statuses)


def test_stalled_target_goes_on():
    """Stopped for less than the peer timeout: nothing fails, it only takes longer."""
    with other_process("TCP", "numpy", SIZE, peer_timeout_s=20) as (child, _, session, local):
        succeeded(session.write(0, 0, SIZE))
        os.kill(child.process.pid, signal.SIGSTOP)
        stopped(child.process.pid)
        local[:] = 6
        statuses = [session.write(0, 0, SIZE) for _ in range(16)]
        assert statuses[-1].WaitFor(500) is StatusCode.IN_PROGRESS
        os.kill(child.process.pid, signal.SIGCONT)
        for status in statuses:
            succeeded(status)
        assert ask(child, "bytes") == local.tobytes()
        assert ask(child, "count") == 17


def test_stalled_target_is_reported():
    with other_process("TCP", "numpy", SIZE, peer_timeout_s=1.5) as (child, _, session, _local):
        succeeded(session.write(0, 0, SIZE))
        os.kill(child.process.pid, signal.SIGSTOP)
        try:
            stopped(child.process.pid)
            start = time.monotonic()
            status = session.write(0, 0, SIZE)
            status.WaitFor(30_000)
            took = time.monotonic() - start
            assert status.Failed()
            assert 1.0 < took < 10
            assert "other" in status.Message()
        finally:
            os.kill(child.process.pid, signal.SIGCONT)
        # It is back: so is the session.
        for _ in range(100):
            if session.write(0, 0, 8).WaitFor(5_000) is StatusCode.SUCCESS:
                break
            time.sleep(0.1)
        else:
            raise AssertionError("the session does not recover")


INITIATOR = """
import os, sys
import numpy as np
from mori.io import *
engine = IOEngine(f"short-lived-{os.getpid()}", IOEngineConfig("127.0.0.1"))
engine.create_backend(BackendType[sys.argv[1]])
engine.register_remote_engine(EngineDesc.unpack(bytes.fromhex(sys.argv[2])))
memory = np.full(1 << 24, 1, np.uint8)
region = engine.register_torch_tensor(memory)
session = engine.create_session(region, MemoryDesc.unpack(bytes.fromhex(sys.argv[3])))
session.write(0, 0, 8).Wait()
print("going", flush=True)
statuses = []
while sys.argv[4] != "exit" or len(statuses) < 200:
    statuses.append(session.write(0, 0, 1 << 24))
    if sys.argv[4] == "drop":
        statuses.clear()
"""


def initiator_of(target, region, backend, how):
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            INITIATOR,
            backend,
            target.get_engine_desc().pack().hex(),
            region.pack().hex(),
            how,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def served(backend):
    from io_pairs import engine_of

    target = engine_of("target", backend, peer_timeout_s=5)
    region, view = registered(target, "numpy", 1 << 24)
    return target, region, view


def test_interpreter_exit_with_transfers_in_flight(backend):
    target, region, _ = served(backend)
    with target:
        started = initiator_of(target, region, backend, "exit")
        out, err = started.communicate(timeout=60)
        assert (started.returncode, out, err) == (0, "going\n", "")
        assert target.key  # unharmed
        assert target.register_torch_tensor(np.zeros(8, np.uint8)).size == 8


@pytest.mark.parametrize("how", ["keep", "drop"])
def test_killed_initiator_leaves_the_target_in_order(backend, how):
    """Afterwards another initiator is served, and a deregistered region is left alone."""
    target, region, view = served(backend)
    with target:
        started = initiator_of(target, region, backend, how)
        try:
            assert started.stdout.readline() == "going\n"
            time.sleep(0.3)
        finally:
            started.kill()
            started.communicate()
        target.deregister_memory(region)
        view[:] = 5
        time.sleep(0.2)
        assert (view == 5).all()
        again, _ = registered(target, "numpy", 1 << 24)
        second = initiator_of(target, again, backend, "exit")
        out, err = second.communicate(timeout=60)
        assert (second.returncode, out, err) == (0, "going\n", "")


def test_stopped_initiator_does_not_hold_up_others(backend):
    target, region, _ = served(backend)
    with target:
        started = initiator_of(target, region, backend, "keep")
        try:
            assert started.stdout.readline() == "going\n"
            os.kill(started.pid, signal.SIGSTOP)
            stopped(started.pid)
            other, _ = registered(target, "numpy", 1 << 24)
            second = initiator_of(target, other, backend, "exit")
            out, err = second.communicate(timeout=60)
            assert (second.returncode, out, err) == (0, "going\n", "")
            # Who has not used that memory is not waited for.
            target.deregister_memory(other)
        finally:
            started.kill()
            started.communicate()


def test_ctrl_c_ends_a_wait():
    program = """
import os, signal, socket, threading
from mori.io import *
import numpy as np
listener = socket.socket(); listener.bind(("127.0.0.1", 0)); listener.listen()
engine, other = (IOEngine(n, IOEngineConfig("127.0.0.1")) for n in ("a", "b"))
for one in (engine, other):
    one.create_backend(BackendType.TCP)
engine.register_remote_engine(other.get_engine_desc())
memory = np.zeros(8, np.uint8)
there = other.register_torch_tensor(memory)
other.close()
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    engine.wait_inbound("nobody", 1)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = run_python_io(program)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


def test_forked_child_is_refused():
    program = """
import os
from mori.io import *
from mori.errors import StateError
import numpy as np
engine = IOEngine("parent", IOEngineConfig("127.0.0.1"))
engine.create_backend(BackendType.TCP)
region = engine.register_torch_tensor(np.zeros(8, np.uint8))
engine.register_remote_engine(engine.get_engine_desc())
child = os.fork()
if child == 0:
    try:
        engine.register_memory(4096, 8)
    except StateError as error:
        print(f"before fork(): {'before fork()' in str(error)}", flush=True)
    del engine, region
    with IOEngine("child", IOEngineConfig("127.0.0.1")) as own:
        own.create_backend(BackendType.TCP)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(engine.get_engine_desc().key)
"""
    done = run_python_io(program)
    assert (done.stdout, done.stderr) == ("before fork(): True\nparent\n", "")


def test_descriptors_and_threads_are_given_back():
    """Ten engines later the process is as before."""
    from io_pairs import engine_pair, joined

    def count():
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    def once():
        with engine_pair("TCP") as pair:
            session, _, _ = joined(pair, "numpy", 4096)
            succeeded(session.write(0, 0, 4096))

    once()
    before = count()
    for _ in range(10):
        once()
    assert count() == before
