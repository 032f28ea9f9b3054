"""Arrays of other libraries on a GPU: cupy beside torch, cupy without torch, and capsules."""

import json

import pytest

torch = pytest.importorskip("torch")

from layers import DEVICE, bits, inputs_of, op_for  # noqa: E402
from mori.shmem import DeviceArray  # noqa: E402
from pes import run_python  # noqa: E402

pytestmark = pytest.mark.device

WITHOUT_TORCH = """
import json, sys
import cupy
import numpy as np
from mori.ops import EpDispatchCombineConfig, EpDispatchCombineOp
from mori.shmem import Context, DeviceArray

with Context(Context.unique_id(), 0, 1, backend=sys.argv[1], heap_bytes=64 << 20) as context:
    config = EpDispatchCombineConfig(
        data_type="bfloat16", rank=0, world_size=1, hidden_dim=64, scale_dim=0, scale_type_size=0,
        max_token_type_size=4, max_num_inp_token_per_rank=16, num_experts_per_rank=4,
        num_experts_per_token=2, deterministic=True)
    op = EpDispatchCombineOp(config, context=context)
    values = np.arange(8 * 64, dtype=np.float32).reshape(8, 64)
    ids = np.tile(np.array([[1, 3]], np.int32), (8, 1))
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        tokens, indices = cupy.asarray(values), cupy.asarray(ids)
        out, weights, scales, rows, count = op.dispatch(tokens, None, None, indices)
        assert isinstance(out, DeviceArray), type(out)
        received = int(cupy.from_dlpack(count)[0])
        # Before combine, which copies its input into the same buffer.
        same = bool((cupy.from_dlpack(out)[:received] == tokens).all())
        back, _ = op.combine(cupy.from_dlpack(out) * 2, None, indices, stream=stream)
        mine = cupy.from_dlpack(back)[:8]
        double = bool((mine == 2 * tokens).all())
        halves = cupy.asarray(values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        half, *_ = op.dispatch(halves, None, None, indices)
        kind = [half.dtype, half.__cuda_array_interface__["typestr"]]
        equal = bool((cupy.asarray(half)[:8] == halves).all())
        block = context.array((4, 4), "float32")
        view = cupy.from_dlpack(block)
        view[:] = 5
        stream.synchronize()
        host = np.zeros((4, 4), np.float32)
        context.get(host, block, pe=0)
    positions = op.get_dispatch_src_token_pos()
    print(json.dumps({
        "torch": "torch" in sys.modules, "received": received, "same": same, "double": double,
        "kind": kind, "equal": equal, "host": host.sum().item(),
        "positions": [type(positions).__name__, positions.tolist()],
        "addresses": view.data.ptr == block.address}))
"""


def test_cupy_without_torch():
    pytest.importorskip("cupy")
    done = run_python(WITHOUT_TORCH, "amd" if torch.version.hip else "nvidia")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "torch": False,
        "received": 8,
        "same": True,
        "double": True,
        "kind": ["bfloat16", "<u2"],
        "equal": True,
        "host": 80.0,
        "positions": ["ndarray", list(range(8))],
        "addresses": True,
    }


def test_cupy_beside_torch(context):
    """Its arrays go in, tensors come out, with the same bits as from tensors."""
    cupy = pytest.importorskip("cupy")
    op, given = op_for(context), inputs_of(0, 1, 5, "float32").to(DEVICE)
    found = []
    for convert in (lambda t: t, cupy.from_dlpack):
        arrays = [convert(part) for part in vars(given).values()]
        out, weights, scales, indices, count = op.dispatch(*arrays)
        received = int(count[0])
        assert all(isinstance(t, torch.Tensor) for t in (out, weights, scales, indices, count))
        combined, _ = op.combine(convert(out[:received].clone()), None, arrays[3])
        found.append([bits(t) for t in (out[:received], scales[:received], combined)])
    assert found[0] == found[1]


class Wrapped:
    """An array that speaks DLPack alone."""

    def __init__(self, tensor):
        self._tensor = tensor

    def __dlpack_device__(self):
        return self._tensor.__dlpack_device__()

    def __dlpack__(self, *, stream=None):
        return self._tensor.__dlpack__(stream=stream)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dlpack_alone(context, dtype):
    op, given = op_for(context), inputs_of(0, 1, 6, dtype).to(DEVICE)
    out, *_, count = op.dispatch(
        Wrapped(given.tokens), Wrapped(given.weights), None, Wrapped(given.indices)
    )
    assert out.dtype == given.tokens.dtype
    expected = op_for(context).dispatch(given.tokens, given.weights, None, given.indices)[0]
    assert bits(out[: int(count[0])]) == bits(expected[: int(count[0])])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz"])
def test_torch_takes_device_arrays(context, dtype):
    """What is given to those without torch, given to torch."""
    tensor = context.tensor((4, 16), getattr(torch, dtype))
    array = DeviceArray(tensor.data_ptr(), (4, 16), dtype, context.place, context.lease())
    taken = torch.from_dlpack(array)
    assert (taken.dtype, taken.device, tuple(taken.shape)) == (
        tensor.dtype,
        tensor.device,
        (4, 16),
    )
    assert taken.data_ptr() == tensor.data_ptr()
    assert torch.from_dlpack(array[1:3]).data_ptr() == tensor[1:3].data_ptr()
    as_bytes = torch.as_tensor(array, device=DEVICE)
    assert as_bytes.data_ptr() == tensor.data_ptr()
