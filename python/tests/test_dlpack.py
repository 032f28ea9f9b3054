"""Capsules over foreign memory: what they say, and how long they keep what they describe."""

import ctypes
import gc
import weakref

import numpy as np
import pytest
from mori._arrays import NUMPY, DeviceArray, Place
from mori._arrays.dlpack import capsule, describe, dtype_code
from mori.errors import InvalidError

CPU, CUDA = (1, 0), (2, 5)


class Owner:
    """Stands for what keeps memory."""


def memory(dtype="u1", count=64):
    array = np.arange(count, dtype=dtype)
    return array, array.ctypes.data


@pytest.mark.parametrize(
    ("name", "itemsize", "code"),
    [
        ("float32", 4, (2, 32)),
        ("float64", 8, (2, 64)),
        ("float16", 2, (2, 16)),
        ("bfloat16", 2, (4, 16)),
        ("float8_e4m3fn", 1, (10, 8)),
        ("float8_e4m3fnuz", 1, (11, 8)),
        ("float8_e5m2", 1, (12, 8)),
        ("float4_e2m1fn_x2", 1, (1, 8)),
        ("int32", 4, (0, 32)),
        ("uint8", 1, (1, 8)),
        ("complex64", 8, (5, 64)),
        ("complex128", 16, (5, 128)),
        ("bool", 1, (6, 8)),
    ],
)
def test_what_a_capsule_says(name, itemsize, code):
    array, address = memory()
    assert dtype_code(name, itemsize) == code
    made = capsule(address, CUDA, code, (2, 2), array)
    found = describe(made)
    assert (found.address, found.device, found.shape) == (address, CUDA, (2, 2))
    assert found.itemsize == itemsize
    assert found.dtype == ("uint8" if name == "float4_e2m1fn_x2" else name)
    assert found.strides in (None, (2, 1))


@pytest.mark.parametrize("name", ["void8", "object", "str32", "float128"])
def test_types_that_have_no_code(name):
    with pytest.raises(InvalidError, match=f"dtype is {name}"):
        dtype_code(name, 16)


def test_numpy_reads_what_we_write():
    array, address = memory("i4", 12)

    class Exporter:
        def __dlpack_device__(self):
            return CPU

        def __dlpack__(self, **_how):
            return capsule(address, CPU, (0, 32), (3, 4), array)

    view = np.from_dlpack(Exporter())
    assert view.dtype == np.int32
    assert view.tolist() == array.reshape(3, 4).tolist()
    array[5] = 77
    assert view[1, 1] == 77


def test_unread_capsule_lets_go():
    owner = Owner()
    gone = weakref.ref(owner)
    _, address = memory()
    made = capsule(address, CUDA, (1, 8), (64,), owner)
    del owner
    gc.collect()
    assert gone() is not None
    del made
    gc.collect()
    assert gone() is None


def test_capsule_dropped_while_an_error_is_on_its_way():
    """As when a library refuses what a capsule says: the error must come through unchanged."""
    owner = Owner()
    gone = weakref.ref(owner)

    def refused(owner):
        made = capsule(memory()[1], CUDA, (1, 8), (64,), owner)
        raise KeyError(describe(made).dtype)

    with pytest.raises(KeyError, match="uint8"):
        refused(owner)
    del owner
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float32"])
def test_torch_takes_it_and_lets_go(name):
    torch = pytest.importorskip("torch")
    array, address = memory()
    owner = Owner()
    gone = weakref.ref(owner)
    made = capsule(address, CPU, (1, 8), (64,), (owner, array))
    del owner
    tensor = torch.from_dlpack(made).view(getattr(torch, name)).view(4, -1)
    del made
    part = tensor[1:]
    del tensor
    gc.collect()
    assert gone() is not None
    assert part.data_ptr() == address + 16
    assert part.view(torch.uint8).flatten().tolist() == list(range(16, 64))
    del part
    gc.collect()
    assert gone() is None


def test_empty_shapes():
    _, address = memory()
    found = describe(capsule(address, CUDA, (2, 32), (0, 4), None))
    assert found.shape == (0, 4)


# DeviceArray


def device_array(shape=(4, 4), dtype="float32"):
    array, address = memory()
    return DeviceArray(address, shape, dtype, Place("nvidia", 5), array), address


def test_rows_of_a_device_array():
    array, address = device_array()
    cases = {
        (None, 2): (2, 0),
        (1, None): (3, 16),
        (1, 3): (2, 16),
        (-1, None): (1, 48),
        (3, 1): (0, 48),
        (None, 99): (4, 0),
    }
    for (start, stop), (count, offset) in cases.items():
        part = array[start:stop]
        assert (part.shape, part.address) == ((count, 4), address + offset), (start, stop)
    with pytest.raises(InvalidError, match="step is 2"):
        array[::2]
    with pytest.raises(TypeError, match="index is 1"):
        array[1]
    with pytest.raises(TypeError, match="has no length"):
        len(device_array(shape=())[0])


def test_device_array_by_dlpack():
    array, address = device_array(dtype="bfloat16")
    assert array.__dlpack_device__() == CUDA
    assert array.nbytes == 32
    for how in ({}, {"stream": 7}, {"max_version": (1, 0), "dl_device": CUDA, "copy": False}):
        found = describe(array.__dlpack__(**how))
        assert (found.address, found.dtype, found.shape) == (address, "bfloat16", (4, 4))
    with pytest.raises(BufferError, match="on cuda:5, not on cpu"):
        array.__dlpack__(dl_device=CPU)
    with pytest.raises(BufferError, match="copy=None"):
        array.__dlpack__(copy=True)


@pytest.mark.parametrize(
    ("dtype", "typestr"),
    [("float32", "<f4"), ("bfloat16", "<u2"), ("float8_e4m3fnuz", "|u1"), ("int64", "<i8")],
)
def test_device_array_by_its_interface(dtype, typestr):
    array, address = device_array(shape=(2, 2), dtype=dtype)
    described = array.__cuda_array_interface__
    assert described["data"] == (address, False)
    assert (described["typestr"], described["shape"]) == (typestr, (2, 2))
    assert described["version"] == 3


def test_device_array_of_an_unknown_type():
    with pytest.raises(InvalidError, match="dtype is 'float7'"):
        device_array(dtype="float7")


def test_views_of_numpy_keep_their_owner():
    owner = Owner()
    gone = weakref.ref(owner)
    backing = (ctypes.c_uint8 * 8)()
    view = NUMPY.view(ctypes.addressof(backing), owner, np.uint16, (2, 2))
    del owner
    gc.collect()
    assert gone() is not None
    view[:] = 1
    assert bytes(backing) == b"\1\0" * 4
    del view
    gc.collect()
    assert gone() is None
