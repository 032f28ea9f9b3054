"""Transfers of GPU memory: by XGMI within the process and between processes, staged over TCP, and
mixed with host memory. Streams are not waited for by the library: the tests do it."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from io_pairs import Child, engine_of, engine_pair, introduce, succeeded  # noqa: E402
from layers import DEVICE  # noqa: E402
from mori.io import (  # noqa: E402
    BackendType,
    EngineDesc,
    MemoryDesc,
    MemoryLocationType,
    StatusCode,
)

BACKENDS = ("XGMI", "TCP")
MIB = 1 << 20


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def tensor_of(place, size, seed=None):
    made = torch.zeros(size, dtype=torch.uint8)
    if seed is not None:
        made = torch.randint(
            0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
        )
    made = made.to(DEVICE if place == "gpu" else "cpu")
    wait()
    return made


@pytest.fixture(params=BACKENDS)
def pair(request):
    with engine_pair(request.param) as engines:
        yield engines


@pytest.mark.device
def test_descriptor_of_a_tensor(pair):
    tensor = tensor_of("gpu", 1000)
    desc = pair[0].register_torch_tensor(tensor)
    assert (desc.device_id, desc.loc) == (tensor.device.index, MemoryLocationType.GPU)
    assert (desc.data, desc.size) == (tensor.data_ptr(), 1000)
    assert MemoryDesc.unpack(desc.pack()) == desc
    by_address = pair[0].register_memory(tensor.data_ptr(), 1000, -1, MemoryLocationType.Unknown)
    assert by_address.loc is MemoryLocationType.GPU


@pytest.mark.parametrize(("here", "there"), [("gpu", "gpu"), ("gpu", "cpu"), ("cpu", "gpu")])
@pytest.mark.parametrize("operation", ["read", "write"])
@pytest.mark.parametrize("size", [1, 4096, 3 * MIB + 5, 64 * MIB])
def test_one_piece(pair, here, there, operation, size):
    initiator, target = pair
    local, remote = tensor_of(here, size + 64, 1), tensor_of(there, size + 64, 2)
    before = local.cpu(), remote.cpu()
    mine, theirs = initiator.register_torch_tensor(local), target.register_torch_tensor(remote)
    session = initiator.create_session(mine, theirs)
    if session is None:
        pytest.skip("this backend does not reach between these memories")
    succeeded(getattr(session, operation)(3, 17, size, 5))
    assert target.wait_inbound(initiator.key, 5, 20) is not None
    wait()
    if operation == "write":
        before[1][17 : 17 + size] = before[0][3 : 3 + size]
    else:
        before[0][3 : 3 + size] = before[1][17 : 17 + size]
    assert torch.equal(local.cpu(), before[0])
    assert torch.equal(remote.cpu(), before[1])


@pytest.mark.parametrize("heads", [1, 8])
def test_paged_blocks_of_a_sub_allocation(pair, heads):
    """Views into larger tensors: the region begins in the middle of an allocation."""
    initiator, target = pair
    blocks, count = 64, 24
    shape = (2, blocks, 16, heads, 128)
    whole = torch.randn((3, *shape)).to(DEVICE, torch.bfloat16)
    sink = torch.zeros((3, *shape), dtype=torch.bfloat16, device=DEVICE)
    wait()
    mine = initiator.register_torch_tensor(whole[1])
    theirs = target.register_torch_tensor(sink[2])
    session = initiator.create_session(mine, theirs, required=True)
    generator = torch.Generator().manual_seed(4)
    table, other = (torch.randperm(blocks, generator=generator)[:count] for _ in range(2))
    block = whole[0][0, 0].nbytes
    half = whole[0][0].nbytes
    here, there = (torch.cat([t * block, t * block + half]) for t in (table, other))
    succeeded(session.batch_write(here, there, torch.full((2 * count,), block)))
    wait()
    wanted = torch.zeros_like(sink[2])
    wanted[:, other.to(DEVICE)] = whole[1][:, table.to(DEVICE)]
    assert torch.equal(sink[2], wanted)
    assert not sink[:2].any()


def serve(pipe, backend):
    tensor = tensor_of("gpu", 8 * MIB)
    engine = engine_of("other", backend)
    region = engine.register_torch_tensor(tensor)
    pipe.send(("desc", (engine.get_engine_desc().pack(), region.pack())))
    engine.register_remote_engine(EngineDesc.unpack(pipe.recv()))
    pipe.send(("ready", None))
    while pipe.recv() == "bytes":
        wait()
        pipe.send(("bytes", tensor.cpu().numpy().tobytes()))
    engine.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_processes(backend):
    with Child(serve, backend) as child:
        desc, region = child.receive(120)
        with engine_of("here", backend) as engine:
            engine.register_remote_engine(EngineDesc.unpack(desc))
            child.tell(engine.get_engine_desc().pack())
            child.receive()
            local = tensor_of("gpu", 8 * MIB, 9)
            mine = engine.register_torch_tensor(local)
            session = engine.create_session(mine, MemoryDesc.unpack(region), required=True)
            succeeded(session.write(0, 0, 8 * MIB))
            child.tell("bytes")
            assert child.receive() == local.cpu().numpy().tobytes()
            local.zero_()
            wait()
            succeeded(session.read(0, 4 * MIB, 4 * MIB))
            wait()
            assert local[: 4 * MIB].any()
            assert not local[4 * MIB :].any()
            assert session.stats().backend is BackendType[backend]
        child.tell("end")
        child.end()


@pytest.mark.device
def test_peer_whose_process_is_killed():
    with Child(serve, "XGMI") as child:
        desc, region = child.receive(120)
        with engine_of("here", "XGMI", peer_timeout_s=5) as engine:
            engine.register_remote_engine(EngineDesc.unpack(desc))
            child.tell(engine.get_engine_desc().pack())
            child.receive()
            mine = engine.register_torch_tensor(tensor_of("gpu", MIB, 9))
            session = engine.create_session(mine, MemoryDesc.unpack(region), required=True)
            succeeded(session.write(0, 0, MIB))
            child.process.kill()
            child.process.join()
            for _ in range(200):
                if session.write(0, 0, MIB).WaitFor(20_000) > StatusCode.ERR_BEGIN:
                    break
            else:
                raise AssertionError("writes to a dead process go on succeeding")


@pytest.mark.device
def test_default_is_the_best():
    with engine_pair("TCP") as (one, other):
        for engine in (one, other):
            engine.create_backend(BackendType.XGMI)
        introduce(one, other)
        mine = one.register_torch_tensor(tensor_of("gpu", MIB, 3))
        theirs = other.register_torch_tensor(tensor_of("gpu", MIB))
        assert one.create_session(mine, theirs).stats().backend is BackendType.XGMI
