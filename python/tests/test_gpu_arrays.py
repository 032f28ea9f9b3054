"""Arrays on a GPU without one: what goes in and comes out, streams, and messages.

The device is the host under another name (fake_gpu.py), torch a module that looks like it
(fake_torch.py). What a real GPU does is tested in gpu/.
"""

import sys

import fake_gpu
import fake_torch
import mori.shmem as shmem
import numpy as np
import pytest
import routing
from fake_gpu import DlpackArray, InterfaceArray, read
from mori._arrays import kinds
from mori.errors import InvalidError, NotFoundError, StateError, UnavailableError, UnsupportedError
from mori.ops import EpDispatchCombineConfig, EpDispatchCombineOp
from mori.shmem import Context, DeviceArray
from pes import OPTIONS, on_threads

HIDDEN, TOP_K, MOST = 32, 2, 4


@pytest.fixture(autouse=True)
def fresh_kinds(monkeypatch):
    """No framework of an earlier test's torch, and no real torch."""
    monkeypatch.setattr(kinds, "_kinds", {})
    monkeypatch.delitem(sys.modules, "torch", raising=False)


@pytest.fixture
def gpu(monkeypatch):
    """(shmem, ep): GPU 0 of a fake driver."""
    return fake_gpu.pretend(monkeypatch)


@pytest.fixture
def torch(monkeypatch):
    module = fake_torch.make()
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def solo(**options):
    return Context(Context.unique_id(), 0, 1, **{**OPTIONS, "backend": "nvidia", **options})


def config_for(context, **changes):
    fields = {
        "rank": context.pe,
        "world_size": context.pe_count,
        "hidden_dim": HIDDEN,
        "scale_dim": 0,
        "scale_type_size": 0,
        "max_token_type_size": 4,
        "max_num_inp_token_per_rank": MOST,
        "num_experts_per_rank": 2,
        "num_experts_per_token": TOP_K,
    }
    return EpDispatchCombineConfig(**{**fields, **changes})


def op_for(context, **changes):
    return EpDispatchCombineOp(config_for(context, **changes), context=context)


def inputs(tokens=2, dtype=np.float32, seed=3):
    """(tokens, weights, indices) as numpy arrays."""
    generator = np.random.default_rng(seed)
    values = generator.integers(0, 50, (tokens, HIDDEN)).astype(dtype)
    weights = generator.random((tokens, TOP_K), np.float32)
    return values, weights, generator.integers(0, 2, (tokens, TOP_K)).astype(np.int32)


# What comes out without torch


def test_dispatch_and_combine_by_the_array_interface(gpu):
    """Two PEs, arrays of another library: the same rows and sums as on the host."""
    ranks = routing.random_ranks(
        11, [3, MOST], hidden=HIDDEN, dtype=np.float32, experts_per_rank=2, top_k=TOP_K
    )

    def body(context):
        own, op = ranks[context.pe], op_for(context)
        given = [InterfaceArray(a, device=(2, 0)) for a in (own.tokens, own.weights, own.indices)]
        out, weights, scales, indices, count = op.dispatch(given[0], given[1], None, given[2])
        assert scales is None
        sources = routing.received_by(context.pe, ranks, 2)
        assert isinstance(count, DeviceArray)
        assert read(count).tolist() == [len(sources)]
        rows = out[: len(sources)]
        expected = np.array([ranks[s].tokens[t] for s, t in sources])
        assert (read(rows) == expected).all()
        assert (read(weights)[0] == ranks[sources[0][0]].weights[sources[0][1]]).all()
        assert (read(indices)[0] == ranks[sources[0][0]].indices[sources[0][1]]).all()
        assert op.get_dispatch_src_token_pos().tolist() == [s * 2 * MOST + t for s, t in sources]
        combined, sums = op.combine(rows, weights[: len(sources)], given[2])
        outputs = [
            np.array([ranks[s].tokens[t] for s, t in routing.received_by(r, ranks, 2)])
            for r in range(2)
        ]
        wanted = routing.combined(context.pe, ranks, outputs, 2)
        assert (read(combined)[: len(own.tokens)] == wanted).all()
        assert sums.shape == (MOST, TOP_K)
        return out.device

    assert on_threads(2, body, backend="nvidia") == ["cuda:0"] * 2


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "float8_e4m3fnuz"])
def test_element_types_by_dlpack(gpu, dtype):
    bits, _, indices = inputs(dtype=np.uint8 if dtype.startswith("float8") else np.uint16)
    with solo() as context:
        op = op_for(context)
        out, *_ = op.dispatch(DlpackArray(bits, dtype), None, None, DlpackArray(indices))
        assert (out.dtype, out.shape, out.nbytes) == (dtype, (MOST, HIDDEN), bits.nbytes * 2)
        assert (read(out)[:2].view(bits.dtype) == bits).all()
        buffer = op.get_registered_combine_input_buffer(None)
        assert (buffer.dtype, buffer.shape) == (dtype, (MOST, HIDDEN))
        assert op.get_registered_combine_input_buffer("bfloat16", 8).shape == (MOST, 8)


def test_declared_element_type_of_plain_bits(gpu):
    bits, _, indices = inputs(dtype=np.uint16)
    with solo() as context:
        op = op_for(context, data_type="bfloat16")
        out, *_ = op.dispatch(InterfaceArray(bits), None, None, InterfaceArray(indices))
        assert out.dtype == "bfloat16"
        assert out.__cuda_array_interface__["typestr"] == "<u2"
        op = op_for(context)
        with pytest.raises(InvalidError, match="input has dtype uint16, expected one of float32"):
            op.dispatch(InterfaceArray(bits), None, None, InterfaceArray(indices))


def test_empty_rank_and_unrouted_tokens(gpu):
    _, _, indices = inputs(0)
    with solo() as context:
        op, none = op_for(context), np.zeros((0, HIDDEN), np.float32)
        out, *_, count = op.dispatch(DlpackArray(none), None, None, InterfaceArray(indices))
        assert read(count).tolist() == [0]
        combined, _ = op.combine(out[:0], None, InterfaceArray(indices))
        assert combined.shape == (MOST, HIDDEN)


# What goes in


def test_wrong_device_is_named(gpu, torch):
    tokens, weights, indices = inputs()
    here, there = InterfaceArray(tokens, device=(2, 0)), InterfaceArray(tokens, device=(2, 1))
    rows = InterfaceArray(indices, device=(2, 0))
    cuda = fake_torch.cuda_tensor
    bad = [
        ((there, None, None, rows), "input is on cuda:1, the context is on cuda:0"),
        ((DlpackArray(tokens, device=(2, 3)), None, None, rows), "input is on cuda:3"),
        ((DlpackArray(tokens, device=(10, 0)), None, None, rows), "input is on hip:0"),
        ((InterfaceArray(tokens, device=(99, 0)), None, None, rows), "on device type 99:0"),
        ((tokens, None, None, rows), "input is a numpy array in host memory, the context is on c"),
        ((here, None, None, indices), "indices is a numpy array in host memory"),
        ((here, DlpackArray(weights, device=(2, 1)), None, rows), "weights is on cuda:1"),
        ((cuda(torch, tokens, index=1), None, None, rows), "input is on cuda:1, the context is on"),
        ((torch.from_numpy(tokens), None, None, rows), "input is on cpu, the context is on cuda:0"),
        ((here, cuda(torch, weights, index=2), None, rows), "weights is on cuda:2, the context"),
        (([1.0], None, None, rows), "input is a list, expected an array on the GPU or a torch"),
    ]
    with solo() as context:
        op = op_for(context)
        for arguments, message in bad:
            with pytest.raises(InvalidError, match=message):
                op.dispatch(*arguments)
        assert gpu[1].streams == []  # nothing was launched
        op.dispatch(here, None, None, rows)
        with pytest.raises(InvalidError, match="input is on cuda:1"):
            op.combine(there, None, rows)


def test_wrong_layout_shape_and_dtype(gpu):
    tokens, _, indices = inputs()
    wide = np.zeros((2, 2 * HIDDEN), np.float32)[:, ::2]
    rows = InterfaceArray(indices)
    bad = [
        ((InterfaceArray(wide), None, None, rows), r"strides \(256, 8\) for shape \(2, 32\)"),
        ((DlpackArray(tokens.reshape(-1)), None, None, rows), r"input has shape \(64,\)"),
        ((InterfaceArray(tokens.astype(">f4")), None, None, rows), "dtype >f4"),
        ((InterfaceArray(tokens.astype(np.float64)), None, None, rows), "dtype float64"),
        ((DlpackArray(tokens), None, None, DlpackArray(indices.astype(np.int64))), "int64"),
        ((DlpackArray(tokens), DlpackArray(indices), None, rows), "weights has dtype int32"),
    ]
    with solo() as context:
        op = op_for(context)
        for arguments, message in bad:
            with pytest.raises(InvalidError, match=message):
                op.dispatch(*arguments)
        # How far apart the rows of one row are is no matter.
        one = InterfaceArray(tokens[:1])
        one.__cuda_array_interface__["strides"] = (8 * HIDDEN, 4)
        op.dispatch(one, None, None, InterfaceArray(indices[:1]))


class Broken:
    """Speaks a protocol, and not well."""

    def __init__(self):
        self.__cuda_array_interface__ = {"shape": (2, HIDDEN)}


def test_broken_protocol_is_an_invalid_argument(gpu):
    with solo() as context:
        op = op_for(context)
        with pytest.raises(InvalidError, match="input is a Broken whose memory cannot be used"):
            op.dispatch(Broken(), None, None, InterfaceArray(inputs()[2]))


def test_dlpack_arrays_on_the_host():
    """The host backend takes what numpy takes."""
    tokens, _, indices = inputs()
    with Context(Context.unique_id(), 0, 1, **OPTIONS) as context:
        op = op_for(context)
        given = DlpackArray(tokens, device=(1, 0)), DlpackArray(indices, device=(1, 0))
        out, *_, count = op.dispatch(given[0], None, None, given[1])
        assert isinstance(out, np.ndarray)
        assert (out[: count[0]] == tokens).all()
        with pytest.raises(InvalidError, match="input is on cuda:0, the context is on cpu"):
            op.dispatch(DlpackArray(tokens), None, None, indices)


# Streams


class Stream:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (77, 77),
        (np.int64(78), 78),
        (Stream(cuda_stream=79), 79),
        (Stream(ptr=80), 80),
        (Stream(__cuda_stream__=lambda: (0, 81), ptr=1), 81),
        (Stream(__cuda_stream__=(0, 82)), 82),
    ],
)
def test_stream_of_the_call(gpu, torch, stream, handle):
    torch.cuda.stream = 5
    tokens, _, indices = inputs()
    given = InterfaceArray(tokens, stream=9), InterfaceArray(indices)
    with solo() as context:
        op = op_for(context)
        out, *_ = op.dispatch(given[0], None, None, given[1], stream=stream)
        op.combine(out, None, given[1], stream=stream)
        context.barrier_on_stream(stream)
        assert gpu[1].streams == [handle, handle]
        assert gpu[0].streams == [handle]


@pytest.mark.parametrize("raw_stream", [True, False])
def test_streams_that_libraries_work_on(gpu, monkeypatch, raw_stream):
    torch = fake_torch.make(raw_stream=raw_stream)
    monkeypatch.setitem(sys.modules, "torch", torch)
    tokens, _, indices = inputs()
    tensor = fake_torch.cuda_tensor(torch, tokens), fake_torch.cuda_tensor(torch, indices)
    with solo() as context:
        op = op_for(context)
        for torch.cuda.stream in (5, 6):  # asked in each call
            op.dispatch(tensor[0], None, None, tensor[1])
        op.dispatch(InterfaceArray(tokens, stream=1), None, None, tensor[1])
        op.dispatch(InterfaceArray(tokens, stream=99), None, None, tensor[1])
        given = DlpackArray(tokens)
        op.dispatch(given, None, None, tensor[1])
        op.dispatch(given, None, None, tensor[1], stream=123)
        shmem.shmem_barrier_on_stream(context=context)
        assert gpu[1].streams == [5, 6, 0, 99, 0, 123]
        assert given.streams == [1, 123]  # 1: DLPack's number of the default stream
        assert gpu[0].streams == [6]


@pytest.mark.parametrize("stream", ["0", 1.5, object(), -1, 1 << 64])
def test_bad_streams(gpu, stream):
    tokens, _, indices = inputs()
    with solo() as context:
        op = op_for(context)
        with pytest.raises(InvalidError, match="stream is"):
            op.dispatch(InterfaceArray(tokens), None, None, InterfaceArray(indices), stream=stream)
        with pytest.raises(InvalidError, match="stream is"):
            context.barrier_on_stream(stream)


# What comes out with torch


def test_tensors_in_tensors_out(gpu, torch):
    tokens, weights, indices = inputs(dtype=np.uint16)
    given = (
        fake_torch.cuda_tensor(torch, tokens, "bfloat16"),
        fake_torch.cuda_tensor(torch, weights),
        fake_torch.cuda_tensor(torch, indices),
    )
    with solo() as context:
        op = op_for(context)
        out, got, _, rows, count = op.dispatch(*given[:2], None, given[2])
        assert all(isinstance(t, fake_torch.Tensor) for t in (out, got, rows, count))
        assert (out.dtype, out.shape) == (torch.bfloat16, (MOST, HIDDEN))
        assert (got.dtype, rows.dtype, count.dtype) == (torch.float32, torch.int32, torch.int32)
        assert {str(t.device) for t in (out, got, rows, count)} == {"cuda:0"}
        assert count.bits().tolist() == [2]
        assert (out.bits()[:2] == tokens).all()
        positions = op.get_dispatch_src_token_pos()
        assert (str(positions.device), positions.bits().tolist()) == ("cuda:0", [0, 1])
        combined, sums = op.combine(out, got, given[2])
        assert (combined.dtype, sums.dtype) == (torch.bfloat16, torch.float32)
        buffer = op.get_registered_combine_input_buffer(torch.float8_e4m3fn, 16)
        assert (buffer.dtype, buffer.shape) == (torch.float8_e4m3fn, (MOST, 16))
        assert op.get_registered_combine_input_buffer(None).dtype is torch.bfloat16


def test_other_arrays_in_tensors_out(gpu, torch):
    bits, _, indices = inputs(dtype=np.uint16)
    scales = np.array([[1, 2]] * 2, np.uint8)
    with solo() as context:
        op = op_for(context, data_type="float16", scale_dim=2, scale_type_size=1)
        given = InterfaceArray(bits), InterfaceArray(scales), InterfaceArray(indices)
        out, _, got, rows, _ = op.dispatch(given[0], None, given[1], given[2])
        assert (out.dtype, got.dtype, rows.dtype) == (torch.float16, torch.uint8, torch.int32)
        assert got.bits()[:2].tolist() == [[1, 2]] * 2
        # What torch has no name for is refused before anything is launched.
        words = DlpackArray(np.zeros((2, 2), np.uint16))
        op = op_for(context, data_type="float16", scale_dim=2, scale_type_size=2)
        launched = len(gpu[1].streams)
        with pytest.raises(InvalidError, match="dtype is uint16, expected one that torch knows"):
            op.dispatch(given[0], None, words, given[2])
        assert len(gpu[1].streams) == launched


def test_torch_without_the_gpu_gives_no_tensors(gpu, torch):
    torch.cuda.available = False
    tokens, _, indices = inputs()
    with solo() as context:
        out, *_ = op_for(context).dispatch(
            InterfaceArray(tokens), None, None, InterfaceArray(indices)
        )
        assert isinstance(out, DeviceArray)


def test_views_are_made_once(gpu, torch):
    """A call hands out aliases of the views that an earlier one made."""
    tokens, weights, indices = inputs()
    cuda = fake_torch.cuda_tensor
    given = cuda(torch, tokens), cuda(torch, weights), None, cuda(torch, indices)
    with solo() as context:
        op = op_for(context)
        first = op.dispatch(*given)
        made = next(torch.made)
        for _ in range(3):
            again = op.dispatch(*given)
            op.combine(again[0], again[1], given[3])
        assert next(torch.made) == made + 1 + 2  # combine's two
        assert again[0] is not first[0]
        assert again[0].data_ptr() == first[0].data_ptr()
        narrow = cuda(torch, np.ones((2, 16), np.float32))
        assert op.dispatch(narrow, None, None, given[3])[0].shape == (MOST, 16)
        assert op.dispatch(*given)[0].shape == (MOST, HIDDEN)
        made = next(torch.made)
        op.dispatch(narrow, None, None, given[3])
        op.dispatch(*given)
        assert next(torch.made) == made + 1


def test_views_are_bounded(gpu, torch):
    row = fake_torch.cuda_tensor(torch, inputs(tokens=1)[2])
    with solo() as context:
        op = op_for(context, hidden_dim=512)
        for hidden in range(4, 512, 4):
            given = fake_torch.cuda_tensor(torch, np.full((1, hidden), hidden, np.float32))
            out = op.dispatch(given, None, None, row)[0]
            assert out.shape == (MOST, hidden)
        assert len(op._results._views) <= 32


def test_results_outlive_operator_and_context(gpu, torch):
    tokens, _, indices = inputs()
    context = solo()
    op = op_for(context)
    given = fake_torch.cuda_tensor(torch, tokens), fake_torch.cuda_tensor(torch, indices)
    out = op.dispatch(given[0], None, None, given[1])[0]
    rows = op.dispatch(given[0], None, None, given[1])[3]
    context.finalize()
    del op, context
    assert (out.bits()[:2] == tokens.view("u4")).all()
    assert (rows.bits()[:2] == indices.view("u4")).all()


# Symmetric memory


def test_symmetric_arrays_without_torch(gpu):
    def body(context):
        block = context.array((4, 8), "bfloat16")
        assert isinstance(block, DeviceArray)
        assert (block.dtype, block.shape, len(block), block.ndim) == ("bfloat16", (4, 8), 4, 2)
        assert repr(block) == "<mori.shmem.DeviceArray: [4, 8] bfloat16 on cuda:0>"
        read(block)[:] = context.pe + 1
        context.barrier_all()
        there = context.peer_view(block, 1 - context.pe)
        assert (there.dtype, there.shape) == ("bfloat16", (4, 8))
        assert (read(there) == 2 - context.pe).all()
        part = block[1:3]
        assert (part.shape, part.address) == ((2, 8), block.address + 16)
        host = np.zeros((4, 8), np.uint16)
        context.get(host, block, pe=1 - context.pe)  # into host memory
        assert (host == 2 - context.pe).all()
        context.barrier_all()
        context.put(block, np.full((4, 8), 9, np.uint16), pe=1 - context.pe)
        context.quiet()
        context.barrier_all()
        assert (read(block) == 9).all()
        assert context.view(block.address, 4, np.float32).dtype == "float32"
        context.free(block)
        with pytest.raises(NotFoundError):
            context.free(block)

    on_threads(2, body, backend="nvidia")


def test_symmetric_tensors(gpu, torch):
    def body(context):
        shmem.set_default_context(context)
        assert "cuda:0" in repr(context)
        tensor = shmem.mori_shmem_create_tensor((4, 8), torch.bfloat16)
        assert (str(tensor.device), tensor.shape) == ("cuda:0", (4, 8))
        assert tensor.dtype is torch.bfloat16
        tensor.bits()[:] = context.pe + 1
        context.barrier_all()
        other = shmem.symm_mori_shmem_tensor(tensor, 1 - context.pe)
        assert (other.bits() == 2 - context.pe).all()
        assert str(other.device) == "cuda:0"
        # Names of numpy give tensors too, since torch is there.
        assert context.array(3, "float16").dtype is torch.float16
        context.barrier_all()
        shmem.mori_shmem_free_tensor(tensor)

    on_threads(2, body, backend="nvidia")


def test_peer_that_is_not_mapped(gpu):
    gpu[0].hidden_peers.add(1)

    def body(context):
        block = context.array(4, "float32")
        if context.pe == 0:
            with pytest.raises(UnavailableError, match="the memory of PE 1 is not mapped by PE 0"):
                context.peer_view(block, 1)
            assert context.ptr_p2p(block.address, 1) == 0
        context.barrier_all()

    on_threads(2, body, backend="nvidia")


@pytest.mark.parametrize("dtype", ["U4", "O", ">f4", "f4,f4", "datetime64[s]", "bfloat17"])
def test_unusable_element_types(gpu, dtype):
    with solo() as context:
        used = context.info().used_bytes
        with pytest.raises(InvalidError):
            context.array(4, dtype)
        assert context.info().used_bytes == used


def test_buffer_for_torch(gpu):
    with solo() as context:
        address = context.malloc(256)
        buffer = shmem.MoriShmemBuffer(address, 256, "float32", context=context)
        assert not hasattr(buffer, "__array_interface__")
        described = buffer.__cuda_array_interface__
        assert (described["data"], described["shape"]) == ((address, False), (256,))
        assert described["typestr"] == "|u1"


def test_modules(gpu):
    library, _ = gpu
    with solo() as context:
        assert shmem.shmem_module_init(4096, context=context) == 0
        assert library.modules == {4096}
        context.module_forget(4096)
        assert library.modules == set()
    with pytest.raises(StateError, match="finalized"):
        context.module_init(4096)


def test_flags_that_no_memory_has(gpu):
    with solo() as context, pytest.raises(UnsupportedError, match="flags 2 are none of"):
        shmem.shmem_ext_malloc_with_flags(8, 2, context=context)
