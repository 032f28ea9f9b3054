"""Kinds: which arrays a context takes at its place, and which it gives.

A framework (NumpyArrays, TorchTensors, ForeignArrays) puts one interface before the arrays of one
library at one place:

    name, place, float32, int32
    dense_address(array)        address of dense row-major memory at the place, else -1
    refuse_unusable(array, n)   InvalidError that says what is wrong with the array called n
    refuse_unusable_dtype(...)  the same of an element type
    dtype_name, itemsize        of an element type
    address(array)              without any check
    view(address, keep, dtype, shape), empty(dtype, shape), from_host(array), alias(array)
    current_stream()            handle of the stream that the library works on
    is_read_only(array)

What goes in: on the host numpy arrays, torch CPU tensors and whatever numpy takes by DLPack; on a
GPU torch tensors and what speaks __cuda_array_interface__ or DLPack. What comes out: on the host
arrays of the framework that went in; on a GPU torch tensors if torch is in the process, else
DeviceArrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mori._arrays.foreign_arrays import ForeignArray, ForeignArrays, foreign_array, is_foreign
from mori._arrays.numpy_arrays import NUMPY, NumpyArrays
from mori._arrays.place import HOST, Place
from mori._arrays.torch_tensors import TorchTensors, gpu_backend_of_torch, loaded_torch
from mori.errors import InvalidError

Array = Any  # numpy.ndarray, torch.Tensor, ForeignArray or DeviceArray
DType = Any  # numpy.dtype, torch.dtype or a name
Framework = NumpyArrays | TorchTensors | ForeignArrays


class Kinds:
    """The frameworks at one place. One for each place, see kinds_at."""

    def __init__(self, place: Place) -> None:
        self.place = place
        # Types whose arrays are used as they are: a call need not ask what they are.
        self.foreign = ForeignArrays(place)
        self.by_type: dict[type, Framework] = (
            {np.ndarray: NUMPY} if place.is_host else {ForeignArray: self.foreign}
        )
        self._torch: TorchTensors | None = None

    def _loaded_torch(self) -> TorchTensors | None:
        if self._torch is None and (torch := loaded_torch()) is not None:
            self._torch = TorchTensors(torch, self.place)
            self.by_type[torch.Tensor] = self._torch
        return self._torch

    def find(self, value: Any, name: str, stream: int = 0) -> tuple[Framework, Array] | None:
        """The framework of an array, and what it takes for it; None: `value` is no array."""
        tensors = self._loaded_torch()
        if tensors is not None and isinstance(value, tensors._torch.Tensor):
            self.by_type[type(value)] = tensors
            return tensors, value
        if isinstance(value, np.ndarray):
            if not self.place.is_host:
                raise InvalidError(
                    f"{name} is a numpy array in host memory, the context is on {self.place.name}"
                )
            return NUMPY, value
        if not is_foreign(value):
            return None
        found = foreign_array(value, name, stream)
        if not self.place.is_host:
            return self.foreign, found
        self.foreign.refuse_unusable(found, name)
        return NUMPY, _on_host(value, name)

    def of(self, value: Any, name: str, stream: int = 0) -> tuple[Framework, Array]:
        """As find; InvalidError when `value` is no array."""
        found = self.find(value, name, stream)
        if found is None:
            expected = "a numpy.ndarray" if self.place.is_host else "an array on the GPU"
            raise InvalidError(
                f"{name} is a {type(value).__name__}, expected {expected} or a torch.Tensor"
            )
        return found

    def results_of(self, framework: Framework) -> Framework:
        """The framework of what an operator gives to one who passes arrays of `framework`."""
        if self.place.is_host or isinstance(framework, TorchTensors):
            return framework
        if gpu_backend_of_torch() == self.place.backend and (tensors := self._loaded_torch()):
            return tensors
        return self.foreign

    def of_dtype(self, dtype: Any) -> tuple[Framework, DType]:
        """The framework of new arrays with this element type: a torch.dtype, or anything that
        numpy.dtype() takes; on a GPU also a name such as "bfloat16"."""
        tensors = self._loaded_torch()
        if tensors is not None and isinstance(dtype, tensors._torch.dtype):
            return tensors, dtype
        if not self.place.is_host:
            framework = self.results_of(self.foreign)
            return framework, framework.dtype_named(_name_of_dtype(dtype))
        return NUMPY, _numpy_dtype(dtype)


_kinds: dict[Place, Kinds] = {}


def kinds_at(place: Place) -> Kinds:
    """The frameworks at this place."""
    return _kinds.setdefault(place, Kinds(place))


def _on_host(value: Any, name: str) -> np.ndarray:
    try:
        return np.from_dlpack(value)
    except (BufferError, TypeError, ValueError, RuntimeError) as error:
        raise InvalidError(f"{name} is a {type(value).__name__}, and numpy: {error}") from None


def _numpy_dtype(dtype: Any) -> np.dtype:
    try:
        return np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):  # the last for text such as "f4,,"
        raise InvalidError(f"dtype is {dtype!r}, expected a numpy or torch dtype") from None


def _name_of_dtype(dtype: Any) -> str:
    if isinstance(dtype, str) and (dtype == "bfloat16" or dtype.startswith(("float8_", "float4_"))):
        return dtype
    kind = _numpy_dtype(dtype)
    NUMPY.refuse_unusable_dtype(kind, "array")
    return kind.name


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


def _is_on_host(value: Any) -> bool:
    torch = loaded_torch()
    return isinstance(value, np.ndarray) or (
        torch is not None and isinstance(value, torch.Tensor) and value.device.type == "cpu"
    )


def memory_of(value: Any, name: str, kinds: Kinds) -> tuple[Framework, Array]:
    """An array, a tensor or an object that exports a buffer, for transfers: at the place, or in
    host memory. InvalidError when it is none or is not dense."""
    found = (kinds_at(HOST) if _is_on_host(value) else kinds).find(value, name)
    if found is None:
        try:
            found = NUMPY, np.frombuffer(value, np.uint8)
        except (TypeError, ValueError, BufferError):
            raise InvalidError(
                f"{name} is a {type(value).__name__}, expected an address, an array, a tensor or "
                "a bytes-like object"
            ) from None
    found[0].refuse_unusable(found[1], name)
    return found


def span_of(value: Any, name: str, kinds: Kinds) -> tuple[int, int]:
    """Address and size in bytes of what memory_of takes."""
    framework, array = memory_of(value, name, kinds)
    return framework.address(array), size_bytes_of(tuple(array.shape), framework, array.dtype)
