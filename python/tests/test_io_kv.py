"""Paged KV caches as vLLM lays them out: [2, blocks, 16, heads, 128], keys and values of 16-token
blocks, moved block by block between caches whose block tables differ."""

import numpy as np
import pytest
from io_pairs import BACKENDS, engine_pair, succeeded
from mori.io import MemoryDesc, wait_all

TOKENS, DIMENSION = 16, 128


def cache_of(blocks, heads, seed):
    """A cache with contents; seed None: zeros."""
    shape = (2, blocks, TOKENS, heads, DIMENSION)
    if seed is None:
        return np.zeros(shape, np.uint16)
    return np.random.default_rng(seed).integers(0, 1 << 16, shape, np.uint16)


def offsets_of(cache, table):
    """Byte offsets of the blocks of a table, keys then values."""
    block = cache[0, 0].nbytes
    keys = np.asarray(table, np.uint64) * np.uint64(block)
    return np.concatenate([keys, keys + np.uint64(cache[0].nbytes)])


@pytest.fixture(params=BACKENDS)
def pair(request):
    with engine_pair(request.param) as engines:
        yield engines


@pytest.mark.parametrize("heads", [1, 8])
@pytest.mark.parametrize("operation", ["read", "write"])
@pytest.mark.parametrize("order", ["same", "strided", "shuffled"])
def test_paged_blocks(pair, heads, operation, order):
    initiator, target = pair
    blocks, count = 96, 40
    random = np.random.default_rng(count)
    tables = {
        "same": (np.arange(count), np.arange(count)),
        "strided": (np.arange(count) * 2, np.arange(count) * 2 + 1),
        "shuffled": (random.permutation(blocks)[:count], random.permutation(blocks)[:count]),
    }
    here_table, there_table = tables[order]
    source, sink = cache_of(blocks, heads, 1), cache_of(blocks, heads, None)
    local, remote = (source, sink) if operation == "write" else (sink, source)
    here = initiator.register_torch_tensor(local)
    there = MemoryDesc.unpack(target.register_torch_tensor(remote).pack())
    session = initiator.create_session(here, there, required=True)
    here_offsets, there_offsets = offsets_of(local, here_table), offsets_of(remote, there_table)
    sizes = np.full(2 * count, local[0, 0].nbytes, np.uint64)
    call = session.batch_write if operation == "write" else session.batch_read
    succeeded(call(here_offsets, there_offsets, sizes, 9))
    assert target.wait_inbound(initiator.key, 9, 20).size_bytes == int(sizes.sum())
    source_table, sink_table = (
        (here_table, there_table) if operation == "write" else (there_table, here_table)
    )
    wanted = cache_of(blocks, heads, None)
    wanted[:, sink_table] = source[:, source_table]
    assert (sink == wanted).all()


def test_one_head_of_many(pair):
    """A tensor-parallel peer has one of eight heads: pieces of 256 bytes, one for each token."""
    initiator, target = pair
    blocks, heads, head = 12, 8, 3
    source, sink = cache_of(blocks, heads, 2), cache_of(blocks, 1, None)
    here = initiator.register_torch_tensor(source)
    there = target.register_torch_tensor(sink)
    session = initiator.create_session(here, there, required=True)
    size = DIMENSION * 2
    count = 2 * blocks * TOKENS
    here_offsets = (np.arange(count, dtype=np.uint64) * heads + head) * size
    there_offsets = np.arange(count, dtype=np.uint64)[::-1] * np.uint64(size)
    succeeded(session.batch_write(here_offsets, there_offsets, np.full(count, size)))
    wanted = source[:, :, :, head].reshape(count, DIMENSION)[::-1]
    assert (sink.reshape(count, DIMENSION) == wanted).all()


def test_layers_as_regions(pair):
    """One region and one session for each of 8 layers, all in flight at once; torch's layout."""
    torch = pytest.importorskip("torch")
    initiator, target = pair
    layers, blocks = 8, 24
    torch.manual_seed(3)
    sources = [
        torch.randn(2, blocks, TOKENS, 2, DIMENSION).to(torch.bfloat16) for _ in range(layers)
    ]
    sinks = [torch.zeros_like(source) for source in sources]
    heres = [initiator.register_torch_tensor(one) for one in sources]
    theres = [target.register_torch_tensor(one) for one in sinks]
    sessions = [initiator.create_session(*both) for both in zip(heres, theres, strict=True)]
    table = torch.randperm(blocks)[:10]
    block = sources[0][0, 0].nbytes
    keys = table * block
    offsets = torch.cat([keys, keys + sources[0][0].nbytes])
    sizes = torch.full_like(offsets, block)
    statuses = [session.batch_write(offsets, offsets, sizes) for session in sessions]
    assert wait_all(statuses, 20_000) == 0
    for source, sink in zip(sources, sinks, strict=True):
        assert torch.equal(sink[:, table], source[:, table])
        assert int(sink.count_nonzero()) == int(source[:, table].count_nonzero())
