"""Pairs of engines for tests: both in this process, or one of them in a process of its own."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import time

import numpy as np
import pytest
from mori.errors import UnavailableError, UnsupportedError
from mori.io import BackendType, EngineDesc, IOEngine, IOEngineConfig, MemoryDesc

DEADLINE_S = 60.0
BACKENDS = ("TCP", "XGMI")
MEMORIES = ("numpy", "alloc", "torch", "bytearray")
_names = itertools.count()


def add_backend(engine, backend):
    """Skips the test where this machine has no such backend."""
    try:
        engine.create_backend(BackendType[backend])
    except (UnavailableError, UnsupportedError) as error:
        engine.close()
        pytest.skip(f"{backend}: {error}")


def engine_of(name, backend="TCP", **config):
    """An engine on the loopback device with one backend; None: without one."""
    engine = IOEngine(name, IOEngineConfig("127.0.0.1", **config))
    if backend is not None:
        add_backend(engine, backend)
    return engine


def introduce(*engines):
    """Registers each engine with each other one."""
    for one in engines:
        for other in engines:
            if one is not other:
                one.register_remote_engine(EngineDesc.unpack(other.get_engine_desc().pack()))


@contextlib.contextmanager
def engine_pair(backend="TCP", **config):
    """Two engines of this process that know each other."""
    number = next(_names)
    with contextlib.ExitStack() as stack:
        engines = []
        for name in ("initiator", "target"):
            engines.append(engine_of(f"{name}-{number}", backend, **config))
            stack.enter_context(engines[-1])
        introduce(*engines)
        yield engines


def memory_of(engine, kind, size):
    """(what to register, its bytes as a numpy array) of one kind of host memory."""
    if kind == "alloc":
        array = engine.alloc(size)
        return array, array
    if kind == "torch":
        torch = pytest.importorskip("torch")
        tensor = torch.zeros(size, dtype=torch.uint8)
        return tensor, tensor.numpy()
    if kind == "bytearray":
        made = bytearray(size)
        return made, np.frombuffer(made, np.uint8)
    array = np.zeros(size, np.uint8)
    return array, array


def registered(engine, kind, size):
    """(descriptor as a peer gets it, bytes) of new memory."""
    owner, view = memory_of(engine, kind, size)
    return engine.register_torch_tensor(owner), view


def joined(pair, kind, size, **how):
    """(session, local bytes, remote bytes) with random contents on either side."""
    initiator, target = pair
    here, local = registered(initiator, kind, size)
    there, remote = registered(target, kind, size)
    random = np.random.default_rng(size)
    local[:] = random.integers(0, 256, size, np.uint8)
    remote[:] = random.integers(0, 256, size, np.uint8)
    session = initiator.create_session(here, MemoryDesc.unpack(there.pack()), required=True, **how)
    return session, local, remote


def succeeded(status, seconds=DEADLINE_S):
    """Waits, and fails with the status's message."""
    status.WaitFor(round(seconds * 1000))
    assert status.Succeeded(), f"{status.Code().name}: {status.Message()}"


# A process of its own


def _child(pipe, program, arguments):
    try:
        program(pipe, *arguments)
        pipe.send(("end", None))
    except BaseException as error:
        pipe.send(("error", f"{type(error).__name__}: {error}"))


class Child:
    """program(pipe, *arguments), a function of a module, in a process of its own."""

    def __init__(self, program, *arguments):
        spawn = multiprocessing.get_context("spawn")
        self.pipe, there = spawn.Pipe()
        self.process = spawn.Process(target=_child, args=(there, program, arguments), daemon=True)
        self.process.start()
        there.close()

    def receive(self, seconds=DEADLINE_S):
        """What it sends next."""
        end = time.monotonic() + seconds
        if not self.pipe.poll(max(0.0, end - time.monotonic())):
            raise AssertionError(f"the other process said nothing within {seconds} s")
        kind, value = self.pipe.recv()
        assert kind != "error", value
        return value

    def tell(self, value):
        self.pipe.send(value)

    def end(self):
        """Waits for its end, which must be a good one."""
        assert self.receive() is None
        self.process.join(DEADLINE_S)
        assert self.process.exitcode == 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.pipe.close()


def serve(pipe, backend, kind, size, config):
    """An engine `other` with zeroed memory in a process of its own: sends its descriptors, takes
    the peer's, then answers commands: "bytes" (its memory), "fill" (a value), "pop" (peer, uid),
    "count" (notifications so far), "end"."""
    engine = engine_of("other", backend, **config)
    region, view = registered(engine, kind, size)
    pipe.send(("desc", (engine.get_engine_desc().pack(), region.pack())))
    engine.register_remote_engine(EngineDesc.unpack(pipe.recv()))
    pipe.send(("ready", None))
    popped = []
    while (command := pipe.recv())[0] != "end":
        if command[0] == "bytes":
            pipe.send(("bytes", view.tobytes()))
        elif command[0] == "fill":
            view[:] = command[1]
            pipe.send(("filled", None))
        elif command[0] == "pop":
            found = engine.wait_inbound(command[1], command[2], timeout_s=20)
            pipe.send(("popped", found))
        elif command[0] == "count":
            while (one := engine.pop_inbound()) is not None:
                popped.append(one)
            pipe.send(("count", len(popped)))
    engine.close()


@contextlib.contextmanager
def other_process(backend="TCP", kind="numpy", size=1 << 16, **config):
    """(child, engine here, session, local bytes): `other` is in a process of its own."""
    with Child(serve, backend, kind, size, config) as child:
        desc, region = child.receive()
        with engine_of("here", backend, **config) as engine:
            engine.register_remote_engine(EngineDesc.unpack(desc))
            child.tell(engine.get_engine_desc().pack())
            child.receive()
            here, local = registered(engine, kind, size)
            session = engine.create_session(here, MemoryDesc.unpack(region), required=True)
            yield child, engine, session, local


def ask(child, *command):
    """Sends a command to `serve` and returns its answer."""
    child.tell(command)
    return child.receive()


def run_python_io(program, *arguments, **environment):
    """A program text in a fresh interpreter that finds these tests' modules too."""
    import os
    from pathlib import Path

    from pes import run_python

    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    return run_python(program, *arguments, PYTHONPATH=path, **environment)
