"""Code as users of MORI's Python API write it: it runs as it is."""

import socket

import numpy as np
import pytest
from io_pairs import BACKENDS
from mori.cpp import TransferStatus
from mori.io import (
    BackendType,
    EngineDesc,
    IOEngine,
    IOEngineConfig,
    MemoryDesc,
    MemoryLocationType,
    StatusCode,
    set_log_level,
)


def get_free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module", params=BACKENDS)
def engines(request):
    set_log_level("warn")
    config = IOEngineConfig(host="127.0.0.1", port=get_free_port())
    initiator = IOEngine(key="initiator", config=config)
    config.port = get_free_port()
    target = IOEngine(key="target", config=config)
    for engine in (initiator, target):
        try:
            engine.create_backend(BackendType[request.param])
        except NotImplementedError as error:
            pytest.skip(str(error))
    initiator.register_remote_engine(target.get_engine_desc())
    target.register_remote_engine(initiator.get_engine_desc())
    yield initiator, target
    del initiator, target


def memories(engines, shape):
    initiator, target = engines
    first = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    second = np.random.default_rng(2).integers(0, 256, shape, np.uint8)
    return (
        first,
        second,
        initiator.register_memory(first.ctypes.data, first.nbytes, -1, MemoryLocationType.CPU),
        target.register_torch_tensor(second),
    )


def wait_status(status):
    while status.InProgress():
        pass


def wait_inbound_status(engine, remote_key, uid):
    while True:
        status = engine.pop_inbound_transfer_status(remote_key, uid)
        if status:
            return status


@pytest.mark.parametrize("enable_sess", [True, False])
@pytest.mark.parametrize("enable_batch", [True, False])
@pytest.mark.parametrize("op_type", ["read", "write"])
@pytest.mark.parametrize("batch_size", [1, 64])
@pytest.mark.parametrize("buffer_size", [8, 8192])
def test_operations(engines, enable_sess, enable_batch, op_type, batch_size, buffer_size):
    initiator, target = engines
    first, second, here, there = memories(engines, [batch_size, buffer_size])
    sess = initiator.create_session(here, there)
    offsets = [i * buffer_size for i in range(batch_size)]
    sizes = [buffer_size for _ in range(batch_size)]
    made = []
    if enable_batch:
        uid = initiator.allocate_transfer_uid()
        if enable_sess:
            func = sess.batch_read if op_type == "read" else sess.batch_write
            made.append((uid, func(offsets, offsets, sizes, uid)))
        else:
            func = initiator.batch_read if op_type == "read" else initiator.batch_write
            made.append((uid, func([here], [offsets], [there], [offsets], [sizes], [uid])[0]))
    else:
        for i in range(batch_size):
            uid = sess.allocate_transfer_uid()
            if enable_sess:
                func = sess.read if op_type == "read" else sess.write
                made.append((uid, func(offsets[i], offsets[i], sizes[i], uid)))
            else:
                func = initiator.read if op_type == "read" else initiator.write
                made.append((uid, func(here, offsets[i], there, offsets[i], sizes[i], uid)))
    for uid, status in made:
        wait_status(status)
        inbound = wait_inbound_status(target, initiator.get_engine_desc().key, uid)
        assert status.Succeeded()
        assert inbound.Succeeded()
        assert isinstance(inbound, TransferStatus)
        assert target.pop_inbound_transfer_status(initiator.get_engine_desc().key, uid) is None
    assert np.array_equal(first, second)
    assert initiator.wait_all([status for _, status in made]) == StatusCode.SUCCESS


def test_out_of_range(engines):
    initiator, _ = engines
    _, _, here, there = memories(engines, (2, 32))
    sess = initiator.create_session(here, there)
    status = sess.batch_read((0, 32), (0, 32), (32, 34), sess.allocate_transfer_uid())
    assert status.Failed()
    assert status.Code() == StatusCode.ERR_INVALID_ARGS


def test_descriptors_travel(engines):
    initiator, target = engines
    desc = target.get_engine_desc()
    assert EngineDesc.unpack(desc.pack()) == desc
    _, _, here, there = memories(engines, (4, 4))
    assert MemoryDesc.unpack(there.pack()) == there
    assert (here.engine_key, there.engine_key) == ("initiator", "target")
    assert here.loc == MemoryLocationType.CPU
    initiator.deregister_memory(here)
    target.deregister_memory(there)


def test_wait_for(engines):
    initiator, _ = engines
    first, second, here, there = memories(engines, (1, 1 << 20))
    status = initiator.write(here, 0, there, 0, 1 << 20, initiator.allocate_transfer_uid())
    assert status.WaitFor(20000) == StatusCode.SUCCESS
    status.Wait()
    assert status.Code() == StatusCode.SUCCESS
    assert status.Message() == ""
    assert np.array_equal(first, second)


def test_deregistered_peer(engines):
    _, target = engines
    extra = IOEngine("extra", IOEngineConfig("127.0.0.1", 0))
    extra.create_backend(BackendType.TCP)
    extra.register_remote_engine(target.get_engine_desc())
    extra.deregister_remote_engine(target.get_engine_desc())
    extra.remove_backend(BackendType.TCP)
    del extra
