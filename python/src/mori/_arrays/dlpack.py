"""DLPack: foreign memory as a capsule that any array library takes, and the reverse.

A capsule needs two C functions, one that frees what it describes and one for a capsule that nobody
took. Written in Python they would run where an exception is pending or the interpreter is ending.
So `capsule` lets numpy make one, over an array of the same size that nobody reads, and corrects
what it says: device, element type. numpy's functions then release the array, and with it `keep`.
Layout: https://dmlc.github.io/dlpack/latest/c_api.html, structs DLManagedTensor and DLTensor.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from mori._arrays.numpy_arrays import NUMPY
from mori.errors import InvalidError

# Names of element types that numpy has not by itself: DLDataTypeCode, bits.
_NARROW = {
    "bfloat16": (4, 16),
    "float8_e4m3fn": (10, 8),
    "float8_e4m3fnuz": (11, 8),
    "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8),
}
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
NUMPY_CODES = frozenset(_CODES.values())
_KINDS = {0: "int", 1: "uint", 2: "float", 5: "complex"}
_CARRIERS = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


@dataclass(frozen=True)
class Described:
    """What a capsule says; strides in elements."""

    address: int
    device: tuple[int, int]
    dtype: str
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None


def _tensor_of(capsule: Any) -> _DLTensor:
    # DLTensor is the first member of DLManagedTensor.
    return _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))


def dtype_code(name: str, itemsize: int) -> tuple[int, int]:
    """DLDataTypeCode and bits of an element type by name; InvalidError if DLPack has none."""
    if name in _NARROW:
        return _NARROW[name]
    if name == "float4_e2m1fn_x2":
        return _CODES["u"], 8  # pairs: their bits
    try:
        kind = np.dtype(name).kind
    except TypeError:
        kind = ""
    if kind not in _CODES or itemsize not in _CARRIERS or (itemsize == 16 and kind != "c"):
        raise InvalidError(f"dtype is {name}, expected numbers that DLPack knows")
    return _CODES[kind], 8 * itemsize


def _dtype_name(code: int, bits: int, lanes: int) -> str:
    if lanes == 1:
        for name, known in _NARROW.items():
            if known == (code, bits):
                return name
        if code == 6 and bits == 8:
            return "bool"
        if code in _KINDS:
            return f"{_KINDS[code]}{bits}"
    return f"DLPack type {code} of {bits} bits" + (f" by {lanes}" if lanes != 1 else "")


def capsule(
    address: int,
    device: tuple[int, int],
    dtype: tuple[int, int],
    shape: tuple[int, ...],
    keep: object,
) -> Any:
    """A capsule over the dense memory at `address` that holds `keep` until its taker lets go.

    dtype: as of dtype_code. Element types of less than a byte are not known here.
    """
    code, bits = dtype
    carrier = NUMPY.view(address, keep, _CARRIERS[bits // 8], shape)
    made = carrier.__dlpack__()
    tensor = _tensor_of(made)
    tensor.device_type, tensor.device_id = device
    tensor.code, tensor.bits = code, bits
    return made


def describe(capsule: Any) -> Described:
    """Reads a capsule without taking it: keep the capsule while the memory is used."""
    tensor = _tensor_of(capsule)
    count = tensor.ndim
    strides = tuple(tensor.strides[:count]) if tensor.strides else None
    return Described(
        (tensor.data or 0) + tensor.byte_offset,
        (tensor.device_type, tensor.device_id),
        _dtype_name(tensor.code, tensor.bits, tensor.lanes),
        (tensor.bits * tensor.lanes + 7) // 8,
        tuple(tensor.shape[:count]),
        strides,
    )
