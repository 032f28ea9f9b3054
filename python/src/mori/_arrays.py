"""numpy arrays and torch CPU tensors behind one small interface.

The library deals in addresses, shapes and element types; a Framework says where an array's bytes
are and makes arrays over foreign memory. torch is looked up in sys.modules, so it is never
imported unless the caller did so already or names one of its types. Used by mori/shmem and
mori/ops.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from mori._raw import CData, buffer_pointer, typed_pointer
from mori.errors import InvalidError

Array = Any  # a numpy.ndarray or a torch.Tensor
DType = Any  # a numpy.dtype or a torch.dtype


class NumpyArrays:
    """numpy.ndarray of any native element type, ml_dtypes' included."""

    name = "numpy"
    float32: DType = np.dtype(np.float32)
    int32: DType = np.dtype(np.int32)

    def refuse_unusable(self, array: np.ndarray, name: str) -> None:
        """InvalidError unless the elements lie densely in row-major order."""
        if not array.flags.c_contiguous:
            raise InvalidError(
                f"{name} has strides {array.strides} for shape {array.shape}, expected a dense "
                "row-major array: pass numpy.ascontiguousarray(...)"
            )
        self.refuse_unusable_dtype(array.dtype, name)

    def refuse_unusable_dtype(self, dtype: np.dtype, name: str) -> None:
        """InvalidError for references to objects, which no other PE could follow, and for
        numbers in foreign byte order."""
        if dtype.hasobject or not dtype.isnative:
            raise InvalidError(f"{name} has dtype {dtype!r}, expected native numbers")

    def dtype_name(self, dtype: DType) -> str:
        kind = np.dtype(dtype)
        # numpy's name says nothing of the byte order.
        return kind.name if kind.isnative else kind.str

    def itemsize(self, dtype: DType) -> int:
        return int(np.dtype(dtype).itemsize)

    def pointer(self, kind: str, array: np.ndarray) -> CData:
        try:
            return buffer_pointer(kind, array)
        except (ValueError, TypeError, BufferError):
            # ml_dtypes' elements have no buffer format; their bytes have.
            return buffer_pointer(kind, array.view(np.uint8))

    def address(self, array: np.ndarray) -> int:
        return int(array.__array_interface__["data"][0])

    def view(self, buffer: CData, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
        return np.frombuffer(buffer, dtype=dtype).reshape(shape)

    def empty(self, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
        return np.empty(shape, dtype)

    def alias(self, array: np.ndarray) -> np.ndarray:
        return array[...]


class TorchTensors:
    """torch.Tensor on the CPU. Made only when torch is in the process already."""

    name = "torch"

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.float32: DType = torch.float32
        self.int32: DType = torch.int32

    def refuse_unusable(self, array: Any, name: str) -> None:
        """InvalidError unless a dense row-major tensor on the CPU."""
        if not array.is_cpu:
            raise InvalidError(
                f"{name} is on device {array.device}, the host backend takes cpu tensors"
            )
        if array.layout is not self._torch.strided or not array.is_contiguous():
            how = array.layout
            if how is self._torch.strided:
                how = f"strides {array.stride()} for shape {tuple(array.shape)}"
            raise InvalidError(
                f"{name} has {how}, expected a dense row-major tensor: call .contiguous()"
            )

    def refuse_unusable_dtype(self, dtype: DType, name: str) -> None:
        """Nothing to refuse: torch has plain native numbers only."""

    def dtype_name(self, dtype: DType) -> str:
        return str(dtype).removeprefix("torch.")

    def itemsize(self, dtype: DType) -> int:
        return int(dtype.itemsize)

    def pointer(self, kind: str, array: Any) -> CData:
        return typed_pointer(kind, array.data_ptr())

    def address(self, array: Any) -> int:
        return int(array.data_ptr())

    def view(self, buffer: CData, dtype: DType, shape: tuple[int, ...]) -> Any:
        return self._torch.frombuffer(buffer, dtype=dtype).view(shape)

    def empty(self, dtype: DType, shape: tuple[int, ...]) -> Any:
        return self._torch.empty(shape, dtype=dtype)

    def alias(self, array: Any) -> Any:
        return array.detach()


Framework = NumpyArrays | TorchTensors
NUMPY = NumpyArrays()
_torch_tensors: TorchTensors | None = None


def _loaded_torch() -> TorchTensors | None:
    global _torch_tensors
    if _torch_tensors is None:
        torch = sys.modules.get("torch")
        # A module still being imported by another thread has no Tensor yet.
        if torch is not None and hasattr(torch, "Tensor"):
            _torch_tensors = TorchTensors(torch)
    return _torch_tensors


def import_torch(what: str) -> Any:
    """torch itself, for functions that are about torch; ImportError says who wanted it."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"{what} needs torch, which is not installed: {error}") from error
    return torch


def framework_of(array: Any) -> Framework | None:
    """The framework that `array` belongs to; None when it is no array."""
    if isinstance(array, np.ndarray):
        return NUMPY
    tensors = _loaded_torch()
    if tensors is not None and isinstance(array, tensors._torch.Tensor):
        return tensors
    return None


def required_framework_of(array: Any, name: str) -> Framework:
    """As framework_of; InvalidError when `array` is no array."""
    framework = framework_of(array)
    if framework is None:
        raise InvalidError(
            f"{name} is a {type(array).__name__}, expected a numpy.ndarray or a torch.Tensor"
        )
    return framework


def framework_of_dtype(dtype: Any) -> tuple[Framework, DType]:
    """Whose element type this is: a torch.dtype, or anything that numpy.dtype() takes."""
    tensors = _loaded_torch()
    if tensors is not None and isinstance(dtype, tensors._torch.dtype):
        return tensors, dtype
    try:
        return NUMPY, np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):  # the last for text such as "f4,,"
        raise InvalidError(f"dtype is {dtype!r}, expected a numpy or torch dtype") from None


def checked_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """`shape` as a tuple; InvalidError for negative or non-integer extents."""
    extents: Sequence[Any] = shape if isinstance(shape, Sequence) else (shape,)
    try:
        result = tuple(int(extent.__index__()) for extent in extents)
    except (AttributeError, TypeError):
        raise InvalidError(f"shape is {shape!r}, expected integers") from None
    if any(extent < 0 for extent in result):
        raise InvalidError(f"shape is {result}, expected no negative extent")
    return result


def size_bytes_of(shape: tuple[int, ...], framework: Framework, dtype: DType) -> int:
    """Bytes of a dense array; Python integers do not overflow."""
    return math.prod(shape) * framework.itemsize(dtype)


def span_of(value: Any, name: str) -> tuple[int, int]:
    """Address and size in bytes of an array, a tensor or an object that exports a buffer."""
    framework = framework_of(value)
    if framework is None:
        try:
            value = np.frombuffer(value, np.uint8)
        except (TypeError, ValueError, BufferError):
            raise InvalidError(
                f"{name} is a {type(value).__name__}, expected an address, an array, a tensor or "
                "a bytes-like object"
            ) from None
        framework = NUMPY
    framework.refuse_unusable(value, name)
    shape = tuple(value.shape)
    return framework.address(value), size_bytes_of(shape, framework, value.dtype)
