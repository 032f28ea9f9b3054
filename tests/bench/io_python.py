"""Bandwidth of batches of writes over TCP between two processes, through a Python package: ours, or
NIXL's with UCX below. Both walk through the same memory in the same order, one batch after another,
each waited for; what is prepared once (descriptors, arrays) is not in the time. Prints "NAME VALUE"
lines, bytes per second.

usage: io_python.py ours|nixl [--smoke]
"""

import multiprocessing
import sys
import time

import numpy as np

KIB, MIB = 1 << 10, 1 << 20
SIZES = {"64KiB": 64 * KIB, "1MiB": MIB, "64MiB": 64 * MIB}
BATCHES = (1, 128)
EXTENT = 256 * MIB
TOTAL = 1 << 30
LIMIT_S = 100


class Ours:
    """An engine with one region."""

    def __init__(self, name, extent):
        from mori.io import BackendType, IOEngine, IOEngineConfig

        self.engine = IOEngine(name, IOEngineConfig("127.0.0.1", security="trusted"))
        self.engine.create_backend(BackendType.TCP)
        self.memory = np.ones(extent, np.uint8)
        self.region = self.engine.register_torch_tensor(self.memory)

    def card(self):
        return self.engine.get_engine_desc().pack(), self.region.pack()

    def meet(self, card):
        from mori.io import EngineDesc, MemoryDesc

        self.engine.register_remote_engine(EngineDesc.unpack(card[0]))
        remote = MemoryDesc.unpack(card[1])
        self.session = self.engine.create_session(self.region, remote, required=True)

    def prepare(self, offsets, size):
        sizes = np.full(len(offsets), size, np.uint64)

        def once():
            status = self.session.batch_write(offsets, offsets, sizes, notify=False)
            status.Wait()
            status.check()

        return once


class Nixl:
    """An agent with one region."""

    def __init__(self, name, extent):
        from nixl._api import nixl_agent, nixl_agent_config

        self.agent = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
        self.memory = np.ones(extent, np.uint8)
        self.address = self.memory.ctypes.data
        self.agent.register_memory([(self.address, extent, 0, "")], "DRAM")

    def card(self):
        return self.agent.get_agent_metadata(), self.address

    def meet(self, card):
        self.peer, self.remote = self.agent.add_remote_agent(card[0]), card[1]

    def prepare(self, offsets, size):
        def descs(base):
            return self.agent.get_xfer_descs([(base + int(o), size, 0) for o in offsets], "DRAM")

        handle = self.agent.initialize_xfer(
            "WRITE", descs(self.address), descs(self.remote), self.peer
        )

        def once():
            state = self.agent.transfer(handle)
            while state == "PROC":
                state = self.agent.check_xfer_state(handle)
            if state != "DONE":
                raise RuntimeError(f"a transfer is {state}")

        return once


def serve(pipe, kind, extent):
    side = kind("target", extent)
    pipe.send(side.card())
    pipe.recv()


def measure(pipe, kind, extent, total):
    side = kind("initiator", extent)
    side.meet(pipe.recv())
    for batch in BATCHES:
        for name, size in SIZES.items():
            size = min(size, extent)
            if size * batch > total:
                continue
            places = max(1, extent // size)
            order = np.arange(batch, dtype=np.uint64) * np.uint64(places // 2 + 1)
            once = side.prepare(order % np.uint64(places) * np.uint64(size), size)
            once()
            count = max(1, total // (size * batch))
            start = time.perf_counter()
            for _ in range(count):
                once()
            took = time.perf_counter() - start
            yield f"write_{name}_b{batch}_bandwidth", count * size * batch / took


def main():
    name = sys.argv[1]
    kind = {"ours": Ours, "nixl": Nixl}[name]
    smoke = "--smoke" in sys.argv
    extent, total = (MIB, MIB) if smoke else (EXTENT, TOTAL)
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    target = spawn.Process(target=serve, args=(there, kind, extent), daemon=True)
    target.start()
    there.close()
    try:
        for what, value in measure(here, kind, extent, total):
            print(f"{what}/{name}", value)
        here.send("go")
        target.join(LIMIT_S)
    finally:
        if target.is_alive():
            target.kill()
        target.join()


if __name__ == "__main__":
    main()
