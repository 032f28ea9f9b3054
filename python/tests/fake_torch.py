"""A module that looks like torch with GPUs, over host memory: what mori asks of torch, no more.

Tensors know where their memory is, so that a test can read what lies there. Element types are read
from DLPack capsules byte by byte, independently of the package's own reading.
"""

from __future__ import annotations

import ctypes
import itertools
import types

import numpy as np

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
STRIDED = "strided"


class Dtype:
    def __init__(self, name, itemsize):
        self.name, self.itemsize = name, itemsize

    def __repr__(self):
        return f"torch.{self.name}"


class Device:
    def __init__(self, kind, index=None):
        self.type, self.index = kind, index

    def __eq__(self, other):
        return (self.type, self.index) == (other.type, other.index)

    def __hash__(self):
        return hash((self.type, self.index))

    def __repr__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"


class Tensor:
    """Dense unless strides are given. `keep` is whatever holds the memory."""

    def __init__(self, address, shape, dtype, device, keep, strides=None):
        self._address, self.shape, self.dtype, self.device = address, tuple(shape), dtype, device
        self._keep, self._strides, self.layout = keep, strides, STRIDED

    def is_contiguous(self):
        return self._strides is None

    def stride(self):
        return self._strides

    def data_ptr(self):
        return self._address

    def detach(self):
        return Tensor(self._address, self.shape, self.dtype, self.device, self._keep)

    def view(self, to):
        if isinstance(to, Dtype):
            (count,) = self.shape
            assert count * self.dtype.itemsize % to.itemsize == 0
            shape = (count * self.dtype.itemsize // to.itemsize,)
            return Tensor(self._address, shape, to, self.device, self._keep)
        assert np.prod(to, dtype=int) == np.prod(self.shape, dtype=int)
        return Tensor(self._address, to, self.dtype, self.device, self._keep)

    def to(self, device):
        return Tensor(self._address, self.shape, self.dtype, device, self._keep)

    def bits(self):
        """What lies in the memory, as unsigned integers."""
        size = int(np.prod(self.shape, dtype=int)) * self.dtype.itemsize
        raw = (ctypes.c_uint8 * size).from_address(self._address)
        kind = {1: "u1", 2: "u2", 4: "u4", 8: "u8"}[self.dtype.itemsize]
        return np.frombuffer(raw, kind).reshape(self.shape)


class Cuda:
    def __init__(self):
        self.available, self.current, self.stream, self.log = True, 0, 0, []

    def is_available(self):
        return self.available

    def mem_get_info(self):
        self.log.append("mem_get_info")
        return 1, 1

    def device(self, index):
        log = self.log

        class Guard:
            def __enter__(self):
                log.append(f"enter {index}")

            def __exit__(self, *_error):
                log.append(f"exit {index}")

        return Guard()

    def current_stream(self, device):
        self.log.append("current_stream")
        return types.SimpleNamespace(cuda_stream=self.stream)


NAMES = {
    **dict.fromkeys(("uint8", "int8", "bool", "float8_e4m3fn", "float8_e4m3fnuz"), 1),
    **dict.fromkeys(("float8_e5m2", "float4_e2m1fn_x2"), 1),
    **dict.fromkeys(("int16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "float32"), 4),
    **dict.fromkeys(("int64", "float64"), 8),
}


def make(*, hip=None, raw_stream=True):
    """The module. `made` counts its tensors from capsules."""
    torch = types.ModuleType("torch")
    torch.Tensor, torch.dtype, torch.device = Tensor, Dtype, Device
    torch.strided, torch.cuda = STRIDED, Cuda()
    torch.version = types.SimpleNamespace(hip=hip)
    for name, itemsize in NAMES.items():
        setattr(torch, name, Dtype(name, itemsize))
    torch._C = types.SimpleNamespace()
    if raw_stream:
        torch._C._cuda_getCurrentRawStream = lambda index: torch.cuda.stream
    torch.made = itertools.count()

    def from_dlpack(capsule):
        next(torch.made)
        start = _pointer_of(capsule, b"dltensor")
        fields = ctypes.string_at(start, 64)
        address = int.from_bytes(fields[:8], "little")
        kind, index = np.frombuffer(fields[8:16], np.int32)
        dimensions = int.from_bytes(fields[16:20], "little")
        code, bits, lanes = fields[20], fields[21], fields[22]
        assert (kind, code, bits, lanes) == (10 if hip else 2, 1, 8, 1)
        shape_at = int.from_bytes(fields[24:32], "little")
        assert int.from_bytes(fields[40:48], "little") == 0  # byte_offset
        shape = np.frombuffer(ctypes.string_at(shape_at, 8 * dimensions), np.int64).tolist()
        return Tensor(address, shape, torch.uint8, Device("cuda", int(index)), capsule)

    def from_numpy(array):
        dtype = getattr(torch, array.dtype.name)
        return Tensor(array.ctypes.data, array.shape, dtype, Device("cpu"), array)

    def empty(shape, dtype, device):
        return Tensor(0, shape, dtype, device, None)

    torch.from_dlpack, torch.from_numpy, torch.empty = from_dlpack, from_numpy, empty
    return torch


def cuda_tensor(torch, array, dtype=None, index=0):
    """A tensor on the GPU over the memory of a numpy array; dtype names what its bits are."""
    kind = getattr(torch, dtype or array.dtype.name)
    return Tensor(array.ctypes.data, array.shape, kind, Device("cuda", index), array)
