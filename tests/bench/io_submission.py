"""What the submission of 128 pieces of 8 bytes costs a Python program, for one piece: engines in
two processes, the pieces as numpy arrays. Prints one "NAME VALUE" line, in nanoseconds.

usage: io_submission.py shm|tcp [--smoke]
"""

import multiprocessing
import statistics
import sys
import time

import numpy as np
from mori.io import BackendType, EngineDesc, IOEngine, IOEngineConfig, MemoryDesc

BATCH, BYTES, EXTENT = 128, 8, 1 << 20
LIMIT_S = 60
BACKENDS = {"shm": BackendType.XGMI, "tcp": BackendType.TCP}


def engine_with_memory(name, kind):
    engine = IOEngine(name, IOEngineConfig("127.0.0.1", security="trusted"))
    engine.create_backend(BACKENDS[kind])
    memory = engine.alloc(EXTENT) if kind == "shm" else np.zeros(EXTENT, np.uint8)
    return engine, engine.register_torch_tensor(memory), memory


def serve(pipe, kind):
    """The target: it hands out its descriptors and stays until it is told to go."""
    engine, region, _memory = engine_with_memory("target", kind)
    pipe.send((engine.get_engine_desc().pack(), region.pack()))
    engine.register_remote_engine(EngineDesc.unpack(pipe.recv()))
    pipe.send("ready")
    pipe.recv()
    engine.close()


def measure(pipe, kind, count):
    engine, region, _memory = engine_with_memory("initiator", kind)
    peer, remote = pipe.recv()
    engine.register_remote_engine(EngineDesc.unpack(peer))
    pipe.send(engine.get_engine_desc().pack())
    pipe.recv()
    session = engine.create_session(region, MemoryDesc.unpack(remote), required=True)
    offsets = np.arange(BATCH, dtype=np.uint64) * 64
    sizes = np.full(BATCH, BYTES, np.uint64)
    times = []
    for uid in range(count):
        start = time.perf_counter_ns()
        status = session.batch_write(offsets, offsets, sizes, uid, notify=False)
        times.append(time.perf_counter_ns() - start)
        status.Wait()
        status.check()
    engine.close()
    return statistics.median(times) / BATCH


def main():
    kind, count = sys.argv[1], 50 if "--smoke" in sys.argv else 2000
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    target = spawn.Process(target=serve, args=(there, kind), daemon=True)
    target.start()
    there.close()
    try:
        print("submit_128_python/ours", measure(here, kind, count))
        here.send("go")
        target.join(LIMIT_S)
    finally:
        if target.is_alive():
            target.kill()
        target.join()


if __name__ == "__main__":
    main()
