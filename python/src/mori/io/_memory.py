"""What can be registered, described: tensors, numpy arrays, what speaks DLPack or
__cuda_array_interface__, and objects that export a writable buffer. torch is never imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mori._arrays import NUMPY, loaded_torch
from mori._arrays.foreign_arrays import ForeignArray, foreign_array, is_foreign
from mori._arrays.place import DLPACK_CPU, DLPACK_CUDA, DLPACK_ROCM, device_name
from mori._enums import MemoryLocationType
from mori.errors import InvalidError
from mori.io._errors import InvalidSetupError

_CPU, _GPU = MemoryLocationType.CPU, MemoryLocationType.GPU
_HOST_DEVICES = (DLPACK_CPU, 3, 11)  # also pinned memory of both vendors
_GPU_DEVICES = (DLPACK_CUDA, DLPACK_ROCM, 13)


@dataclass(frozen=True, eq=False)
class Described:
    """Memory of this process; `keep` owns it."""

    address: int
    size_bytes: int
    location: MemoryLocationType
    device: int
    keep: Any


def describe(value: Any, name: str) -> Described:
    """Where the elements of an array are. InvalidSetupError, which is a RuntimeError too, when
    they do not lie densely or may not be written."""
    torch = loaded_torch()
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_tensor(value, name, torch)
    if isinstance(value, np.ndarray):
        return _of_numpy(value, name)
    if is_foreign(value):
        return _of_foreign(foreign_array(value, name, 0), name)
    try:
        array = np.frombuffer(value, np.uint8)
    except (TypeError, ValueError, BufferError):
        raise InvalidError(
            f"{name} is a {type(value).__name__}, expected a tensor, an array or a writable buffer"
        ) from None
    return _of_numpy(array, name)


def _of_tensor(tensor: Any, name: str, torch: Any) -> Described:
    if tensor.layout is not torch.strided or not tensor.is_contiguous():
        raise InvalidSetupError(f"{name} must be contiguous: call .contiguous()")
    kind = tensor.device.type
    if kind not in ("cpu", "cuda"):
        raise InvalidSetupError(f"{name} is on {tensor.device}, expected a cpu or cuda tensor")
    device = -1 if kind == "cpu" else int(tensor.device.index)
    size = tensor.numel() * tensor.element_size()
    return Described(tensor.data_ptr(), size, _CPU if kind == "cpu" else _GPU, device, tensor)


def _of_numpy(array: np.ndarray, name: str) -> Described:
    if not array.flags.c_contiguous:
        raise InvalidSetupError(
            f"{name} must be contiguous, its strides are {array.strides} for shape {array.shape}"
        )
    if array.dtype.hasobject:
        raise InvalidSetupError(f"{name} has dtype {array.dtype}, expected plain elements")
    if not array.flags.writeable:
        raise InvalidSetupError(f"{name} is read-only, expected memory that may be written")
    return Described(NUMPY.address(array), array.nbytes, _CPU, -1, array)


def _of_foreign(array: ForeignArray, name: str) -> Described:
    if not array.is_dense:
        raise InvalidSetupError(
            f"{name} must be contiguous, its strides are {array.strides} for shape {array.shape}"
        )
    if array.read_only:
        raise InvalidSetupError(f"{name} is read-only, expected memory that may be written")
    size = array.itemsize
    for extent in array.shape:
        size *= extent
    if array.device is None:
        return Described(array.address, size, MemoryLocationType.Unknown, -1, array)
    kind, index = array.device
    if kind in _HOST_DEVICES:
        return Described(array.address, size, _CPU, -1, array)
    if kind not in _GPU_DEVICES:
        raise InvalidSetupError(f"{name} is on {device_name(array.device)}, expected cpu or GPU")
    return Described(array.address, size, _GPU, index, array)
