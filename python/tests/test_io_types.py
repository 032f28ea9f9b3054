"""The types of mori.io without any transfer: values, defaults, descriptors, statuses, refusals."""

import inspect
import pickle
import threading
import time

import mori.cpp
import mori.io as io
import numpy as np
import pytest
from io_pairs import engine_of, run_python_io
from mori.errors import (
    InvalidError,
    NotFoundError,
    ProtocolError,
    StateError,
    UnsupportedError,
    VersionError,
)
from mori.io import (
    BackendType,
    EngineDesc,
    IOEngine,
    IOEngineConfig,
    MemoryDesc,
    MemoryLocationType,
    PollCqMode,
    RdmaBackendConfig,
    StatusCode,
    TransferStatus,
    XgmiBackendConfig,
)


def test_enumerations_have_the_documented_values():
    assert {b.name: b.value for b in BackendType} == {
        "Unknown": 0,
        "XGMI": 1,
        "RDMA": 2,
        "TCP": 3,
        "FABRIC": 4,
    }
    assert {m.name: m.value for m in MemoryLocationType} == {"Unknown": 0, "CPU": 1, "GPU": 2}
    assert {s.name: s.value for s in StatusCode} == {
        "SUCCESS": 0,
        "INIT": 1,
        "IN_PROGRESS": 2,
        "ERR_BEGIN": 10,
        "ERR_INVALID_ARGS": 11,
        "ERR_NOT_FOUND": 12,
        "ERR_RDMA_OP": 13,
        "ERR_BAD_STATE": 14,
        "ERR_GPU_OP": 15,
    }
    assert {p.name: p.value for p in PollCqMode} == {"POLLING": 0, "EVENT": 1}


def test_mori_cpp_has_the_same_objects():
    for name in mori.cpp.__all__:
        assert hasattr(mori.cpp, name)
        if hasattr(io, name):
            assert getattr(mori.cpp, name) is getattr(io, name)
    with pytest.raises(AttributeError, match="no attribute 'IOEngin'"):
        _ = mori.cpp.IOEngin


def test_enumerations_of_mori_cpp_load_no_library():
    done = run_python_io(
        "from mori.cpp import StatusCode, BackendType\n"
        "print('libmori' in open('/proc/self/maps').read())\n"
        "from mori.cpp import TransferStatus\n"
        "print('libmori-io' in open('/proc/self/maps').read())\n"
        "import sys; print([m for m in ('torch', 'mori.shmem', 'asyncio.x') if m in sys.modules])"
    )
    assert (done.stdout, done.stderr) == ("False\nTrue\n[]\n", "")


def test_configurations_have_the_documented_arguments():
    def defaults(kind):
        return {p.name: p.default for p in inspect.signature(kind).parameters.values()}

    assert list(defaults(IOEngineConfig).items())[:2] == [("host", ""), ("port", 0)]
    assert list(defaults(RdmaBackendConfig).items())[:10] == [
        ("qp_per_transfer", 1),
        ("post_batch_size", -1),
        ("num_worker_threads", -1),
        ("poll_cq_mode", PollCqMode.POLLING),
        ("enable_notification", True),
        ("notif_per_qp", 1024),
        ("enable_transfer_chunking", False),
        ("chunk_bytes", 65536),
        ("max_chunks_per_transfer", 64),
        ("num_nics_per_transfer", 1),
    ]
    assert defaults(XgmiBackendConfig) == {"num_streams": 64, "num_events": 64}
    config = RdmaBackendConfig(2, 4)
    config.max_send_wr = 100  # plain attributes, as in MORI
    assert (config.qp_per_transfer, config.post_batch_size, config.max_send_wr) == (2, 4, 100)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (RdmaBackendConfig(qp_per_transfer=0), "qp_per_transfer is 0, expected at least 1"),
        (RdmaBackendConfig(post_batch_size=0), "post_batch_size is 0, expected -1"),
        (
            RdmaBackendConfig(enable_transfer_chunking=True, chunk_bytes=4095),
            "chunk_bytes is 4095, expected at least 4096",
        ),
        (
            RdmaBackendConfig(enable_transfer_chunking=True, max_chunks_per_transfer=0),
            "max_chunks_per_transfer is 0, expected at least 1",
        ),
        (RdmaBackendConfig(num_nics_per_transfer=0), "num_nics_per_transfer is 0"),
        (RdmaBackendConfig(poll_cq_mode=2), "poll_cq_mode is 2, expected a PollCqMode"),
        (XgmiBackendConfig(), "XgmiBackendConfig, expected a RdmaBackendConfig for RDMA"),
    ],
)
def test_bad_backend_configuration_is_a_runtime_error(config, message):
    with engine_of("configured", None) as engine:
        with pytest.raises(RuntimeError, match=message):
            engine.create_backend(BackendType.RDMA, config)
        with pytest.raises(InvalidError, match=message):
            engine.create_backend(BackendType.RDMA, config)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"port": 65536}, "port is 65536, expected 0 .. 65535"),
        ({"port": -1}, "port is -1, expected 0 .. 65535"),
        ({"security": "none"}, "security is 'none', expected one of default, mac, encrypt"),
        ({"progress": "magic"}, "progress is 'magic', expected one of thread, caller"),
        ({"peer_timeout_s": 0}, "peer_timeout_s is 0 s, expected more than 0"),
        ({"spin_us": 0.5}, "spin_us is 0.5, expected an integer"),
    ],
)
def test_bad_engine_configuration(config, message):
    with pytest.raises(InvalidError, match=message):
        IOEngine("configured", IOEngineConfig("127.0.0.1", **config))


@pytest.mark.parametrize(("key", "message"), [("", "0"), ("k" * 129, "129"), (7, "int")])
def test_bad_key(key, message):
    with pytest.raises(InvalidError, match=message):
        IOEngine(key, IOEngineConfig("127.0.0.1"))


@pytest.mark.parametrize("kind", [BackendType.Unknown, 9, "TCP", None])
def test_unknown_backend(kind):
    with engine_of("unknown", None) as engine, pytest.raises(InvalidError, match="expected a"):
        engine.create_backend(kind)


def test_fabric_is_refused():
    with engine_of("fabric", None) as engine:
        with pytest.raises(NotImplementedError) as caught:
            engine.create_backend(BackendType.FABRIC)
        assert isinstance(caught.value, UnsupportedError)
    for name in ("fabric_alloc", "fabric_free", "fabric_torch_allocator", "fabric_mem_pool"):
        with pytest.raises(UnsupportedError, match=f"{name}: there is no FABRIC backend"):
            getattr(io, name)(1)


# Descriptors


def test_engine_descriptor():
    with engine_of("described", "TCP") as engine:
        desc = engine.get_engine_desc()
        assert (desc.key, desc.host) == ("described", "127.0.0.1")
        assert desc.port > 0
        assert desc.pid == engine.process
        assert len(desc.public_key) == 32
        again = EngineDesc.unpack(desc.pack())
        assert again == desc
        assert hash(again) == hash(desc)
        assert pickle.loads(pickle.dumps(desc)) == desc
        with pytest.raises(AttributeError, match="cannot be set"):
            desc.port = 1
        with engine_of("other", "TCP") as other:
            assert other.get_engine_desc() != desc
        assert desc != "described"


def test_memory_descriptor():
    memory = np.zeros((3, 5), np.float32)
    with engine_of("described", "TCP") as engine:
        desc = engine.register_torch_tensor(memory)
        assert (desc.engine_key, desc.size, desc.loc) == ("described", 60, MemoryLocationType.CPU)
        assert (desc.device_id, desc.data) == (-1, memory.ctypes.data)
        again = MemoryDesc.unpack(desc.pack())
        assert again == desc
        assert again.id == desc.id
        assert pickle.loads(pickle.dumps(desc)) == desc
        other = engine.register_torch_tensor(memory)
        assert other != desc
        assert other.id != desc.id
        with pytest.raises(AttributeError, match="cannot be set"):
            desc.size = 1
    assert MemoryDesc() == MemoryDesc()
    assert (MemoryDesc().size, MemoryDesc().ipc_handle) == (0, bytes(64))


def test_no_repr_shows_the_capability():
    with engine_of("secret", "TCP") as engine:
        desc = engine.register_torch_tensor(np.zeros(64, np.uint8))
        packed = desc.pack()
        shown = repr(desc) + str(desc)
        # No eight bytes of the descriptor that are not its plain facts, in any spelling.
        plain = desc.data.to_bytes(8, "little") + b"secret"
        for at in range(len(packed) - 8):
            part = packed[at : at + 8]
            if part in plain or len(set(part)) < 6:
                continue
            assert part.hex() not in shown
            assert repr(part)[2:-1] not in shown


@pytest.mark.parametrize("kind", [EngineDesc, MemoryDesc])
def test_damaged_descriptors_are_refused(kind):
    with engine_of("damaged", "TCP") as engine:
        good = (
            engine.get_engine_desc()
            if kind is EngineDesc
            else engine.register_torch_tensor(np.zeros(8, np.uint8))
        ).pack()
        refusals = (ProtocolError, VersionError, InvalidError)
        for damaged in (good[:-1], good + b"\0", good[: len(good) // 2], b"\0" * len(good), b"x"):
            with pytest.raises(refusals):
                kind.unpack(damaged)
        with pytest.raises(InvalidError, match="bytes"):
            kind.unpack("text")
        with pytest.raises(refusals):
            kind.unpack(b"")


def test_descriptors_of_the_wrong_kind_are_refused():
    with engine_of("wrong", "TCP") as engine:
        region = engine.register_torch_tensor(np.zeros(8, np.uint8))
        with pytest.raises(InvalidError, match="engine_desc is a MemoryDesc, expected a EngineD"):
            engine.register_remote_engine(region)
        with pytest.raises(InvalidError, match="mem_desc is a EngineDesc, expected a MemoryDesc"):
            engine.deregister_memory(engine.get_engine_desc())
        with pytest.raises(InvalidError, match="local_mem is a int, expected a MemoryDesc"):
            engine.create_session(1, region)
        with pytest.raises(InvalidError, match="remote_mem is empty"):
            engine.create_session(region, MemoryDesc())


# Registration


def test_memory_that_cannot_be_registered():
    with engine_of("refusing", "TCP") as engine:
        strided = np.zeros((4, 4), np.uint8)[:, :2]
        with pytest.raises(RuntimeError, match="must be contiguous, its strides are"):
            engine.register_torch_tensor(strided)
        read_only = np.zeros(4, np.uint8)
        read_only.flags.writeable = False
        with pytest.raises(InvalidError, match="tensor is read-only"):
            engine.register_torch_tensor(read_only)
        with pytest.raises(InvalidError, match="read-only"):
            engine.register_torch_tensor(b"1234")
        with pytest.raises(InvalidError, match="tensor is a int, expected a tensor"):
            engine.register_torch_tensor(5)
        with pytest.raises(InvalidError, match="dtype object"):
            engine.register_torch_tensor(np.array([object()]))
        with pytest.raises(InvalidError, match="0"):
            engine.register_torch_tensor(np.zeros(0, np.uint8))
        for ptr, size in ((0, 8), (4096, 0), (2**64 - 8, 16)):
            with pytest.raises(InvalidError):
                engine.register_memory(ptr, size, -1, MemoryLocationType.CPU)
        with pytest.raises(InvalidError, match="loc is 7, expected a MemoryLocationType"):
            engine.register_memory(4096, 8, -1, 7)
        with pytest.raises(InvalidError, match="access is 'all', expected one of read, write"):
            engine.register_memory(4096, 8, access="all")


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    with engine_of("torch", "TCP") as engine:
        tensor = torch.ones([1, 2, 34, 56])
        desc = engine.register_torch_tensor(tensor)
        assert (desc.device_id, desc.loc) == (-1, MemoryLocationType.CPU)
        assert desc.data == tensor.data_ptr()
        assert desc.size == tensor.nelement() * tensor.element_size()
        with pytest.raises(RuntimeError, match="contiguous"):
            engine.register_torch_tensor(tensor.transpose(1, 2))


def test_deregistered_memory_is_not_found():
    with engine_of("first", "TCP") as engine, engine_of("second", "TCP") as other:
        region = engine.register_torch_tensor(np.zeros(8, np.uint8))
        with pytest.raises(NotFoundError, match="memory of engine 'first', this is 'second'"):
            other.deregister_memory(region)
        engine.deregister_memory(region)
        with pytest.raises(NotFoundError, match=f"region {region.id}, which is not registered"):
            engine.deregister_memory(region)


def test_closed_engine():
    engine = engine_of("closed", "TCP")
    region = engine.register_torch_tensor(np.zeros(8, np.uint8))
    engine.close()
    engine.close()
    assert engine.closed
    assert "closed" in repr(engine)
    for call in (
        engine.get_engine_desc,
        engine.allocate_transfer_uid,
        engine.completions,
        engine.metrics_text,
        lambda: engine.create_backend(BackendType.TCP),
        lambda: engine.register_memory(4096, 8),
        lambda: engine.deregister_memory(region),
        lambda: engine.create_session(region, region),
        lambda: engine.read(region, 0, region, 0, 8, 1),
        lambda: engine.batch_write(region, [0], region, [0], [8], 1),
        lambda: engine.pop_inbound_transfer_status("x", 1),
        lambda: engine.wait_inbound("x", 1),
        lambda: engine.alloc(8),
    ):
        with pytest.raises(StateError, match="this io engine was closed"):
            call()


# Statuses


def test_status_without_a_transfer():
    status = TransferStatus()
    assert status.Code() is StatusCode.INIT
    assert status.Init()
    assert not status.InProgress()
    assert not status.Succeeded()
    assert not status.Failed()
    assert status.Message() == ""
    assert status.Wait() is StatusCode.INIT
    assert status.info() is None
    assert status.error() is None
    assert bool(status)  # callers write `if status:`
    status.cancel()


def test_failures_are_final_under_update():
    status = TransferStatus()
    status.Update(StatusCode.IN_PROGRESS, "")
    assert status.InProgress()
    status.Update(StatusCode.ERR_RDMA_OP, "the cable is cut")
    assert status.Failed()
    assert status.Message() == "the cable is cut"
    status.Update(StatusCode.SUCCESS, "fine")
    assert status.Code() is StatusCode.ERR_RDMA_OP
    assert status.Message() == "the cable is cut"
    status.SetCode(StatusCode.SUCCESS)
    status.SetMessage("by hand")
    assert status.Succeeded()
    assert status.Message() == "by hand"
    status.SetCode(14)
    assert status.Code() is StatusCode.ERR_BAD_STATE
    with pytest.raises(InvalidError, match="code is 99, expected a StatusCode"):
        status.SetCode(99)
    assert not TransferStatus.Failed(_with(StatusCode.ERR_BEGIN))
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(status)


def _with(code):
    status = TransferStatus()
    status.SetCode(code)
    return status


def test_wait_ends_when_another_thread_sets_the_code():
    status = _with(StatusCode.IN_PROGRESS)
    start = time.monotonic()
    assert status.WaitFor(30) is StatusCode.IN_PROGRESS
    assert 0.02 < time.monotonic() - start < 5
    waiter = threading.Thread(target=status.Wait)
    waiter.start()
    status.SetCode(StatusCode.SUCCESS)
    waiter.join(20)
    assert not waiter.is_alive()


def test_error_of_a_status():
    status = _with(StatusCode.ERR_NOT_FOUND)
    status.SetMessage("nobody there")
    with pytest.raises(NotFoundError, match="nobody there"):
        status.check()
    _with(StatusCode.SUCCESS).check()


def test_wait_all():
    good, bad, late = map(
        _with, (StatusCode.SUCCESS, StatusCode.ERR_GPU_OP, StatusCode.IN_PROGRESS)
    )
    assert io.wait_all([]) is StatusCode.SUCCESS
    assert io.wait_all((good, good)) is StatusCode.SUCCESS
    assert io.wait_all([late, bad, good]) is StatusCode.ERR_GPU_OP
    assert io.wait_all([good, late], 0) is StatusCode.IN_PROGRESS
    start = time.monotonic()
    assert io.wait_all([late], 30) is StatusCode.IN_PROGRESS
    assert 0.02 < time.monotonic() - start < 5
    assert io.wait_all([good, TransferStatus()]) is StatusCode.INIT
    with pytest.raises(InvalidError, match=r"statuses\[1\] is a str, expected a TransferStatus"):
        io.wait_all([good, "done"])
    with pytest.raises(InvalidError, match="timeout_ms is 'soon'"):
        io.wait_all([good], "soon")


def test_log_level():
    for level in ("trace", "debug", "info", "warning", "warn", "error", "critical", "off", "WARN"):
        io.set_log_level(level)
    io.set_log_level("warn")
    with pytest.raises(InvalidError, match="level is 'loud', expected one of off, error"):
        io.set_log_level("loud")
    assert isinstance(io.drain_log(), list)


def test_metrics_of_several_engines_are_one_text():
    with engine_of("metric-1", "TCP"), engine_of("metric-2", "TCP"):
        text = io.metrics_text()
    heads = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads)) > 0
    assert 'engine="metric-1"' in text
    assert 'engine="metric-2"' in text
    seen, last = set(), ""
    for line in text.splitlines():
        family = line.split()[2] if line.startswith("# ") else last
        if family != last:
            assert family not in seen, f"{family} stands in two places"
            seen.add(family)
            last = family
