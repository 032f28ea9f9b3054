"""torch tensors, on the CPU or on the GPU of a context. An element type is a torch.dtype.

torch is looked up in sys.modules, so it is never imported unless the caller did so already or asks
for one of its tensors. Tensors over foreign memory on a GPU are made through DLPack, which believes
us where the memory is: a peer's memory, mapped here, is used on the own device.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from mori._arrays.dlpack import capsule, dtype_code
from mori._arrays.place import Place
from mori._raw import memory
from mori.errors import InvalidError

_BYTES = dtype_code("uint8", 1)


class TorchTensors:
    """torch.Tensor. See mori/_arrays/kinds.py for the interface."""

    name = "torch"

    def __init__(self, torch: Any, place: Place) -> None:
        self._torch = torch
        self.place = place
        # Both vendors' GPUs are "cuda" to torch.
        self.device = torch.device("cpu") if place.is_host else torch.device("cuda", place.index)
        self.float32 = torch.float32
        self.int32 = torch.int32
        self._strided = torch.strided
        self.current_stream = _stream_getter(torch, place, self.device)
        self.alias = torch.Tensor.detach  # a call of it makes no Python frame

    def dense_address(self, array: Any) -> int:
        """Address of a dense row-major tensor on the device; -1: refuse_unusable says why not."""
        if array.device == self.device and array.layout is self._strided and array.is_contiguous():
            return array.data_ptr()
        return -1

    def refuse_unusable(self, array: Any, name: str) -> None:
        """InvalidError unless a dense row-major tensor on the device of the context."""
        if array.device != self.device:
            if self.place.is_host:
                raise InvalidError(
                    f"{name} is on device {array.device}, the host backend takes cpu tensors"
                )
            raise InvalidError(f"{name} is on {array.device}, the context is on {self.device}")
        if array.layout is not self._strided or not array.is_contiguous():
            how = array.layout
            if how is self._strided:
                how = f"strides {array.stride()} for shape {tuple(array.shape)}"
            raise InvalidError(
                f"{name} has {how}, expected a dense row-major tensor: call .contiguous()"
            )

    def refuse_unusable_dtype(self, dtype: Any, name: str) -> None:
        """Nothing to refuse: torch has plain native numbers only."""

    def dtype_name(self, dtype: Any) -> str:
        return str(dtype).removeprefix("torch.")

    def dtype_named(self, name: str) -> Any:
        """The torch.dtype of this name; InvalidError if torch has none."""
        dtype = getattr(self._torch, name, None)
        if not isinstance(dtype, self._torch.dtype):
            raise InvalidError(f"dtype is {name}, expected one that torch knows")
        return dtype

    def itemsize(self, dtype: Any) -> int:
        return int(dtype.itemsize)

    def address(self, array: Any) -> int:
        return int(array.data_ptr())

    def view(self, address: int, keep: object, dtype: Any, shape: tuple[int, ...]) -> Any:
        size = math.prod(shape) * self.itemsize(dtype)
        if size == 0:
            return self.empty(dtype, shape)
        if self.place.is_host:
            flat = self._torch.frombuffer(memory(address, size, keep), dtype=dtype)
            return flat.view(shape)
        made = capsule(address, self.place.dlpack_device, _BYTES, (size,), keep)
        # As bytes first: older versions do not take narrow floats from DLPack.
        return self._torch.from_dlpack(made).view(dtype).view(shape)

    def empty(self, dtype: Any, shape: tuple[int, ...]) -> Any:
        return self._torch.empty(shape, dtype=dtype, device=self.device)

    def from_host(self, array: np.ndarray) -> Any:
        tensor = self._torch.from_numpy(array)
        return tensor if self.place.is_host else tensor.to(self.device)

    def is_read_only(self, array: Any) -> bool:
        return False


def _stream_getter(torch: Any, place: Place, device: Any) -> Callable[[], int]:
    """A function that returns torch's current stream on the device; 0 on the host."""
    if place.is_host:
        return lambda: 0
    # The same number without making a Stream object in each call; torch's own code generator
    # relies on it.
    raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    if raw is not None:
        return lambda: raw(place.index)
    return lambda: torch.cuda.current_stream(device).cuda_stream


def loaded_torch() -> Any | None:
    """torch, if it is in this process."""
    torch = sys.modules.get("torch")
    # A module still being imported by another thread has no Tensor yet.
    return torch if torch is not None and hasattr(torch, "Tensor") else None


def import_torch(what: str) -> Any:
    """torch itself, for functions that are about torch; ImportError says who wanted it."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"{what} needs torch, which is not installed: {error}") from error
    return torch


def gpu_backend_of_torch() -> str | None:
    """ "nvidia" or "amd" when torch is in the process and sees such a GPU, else None."""
    torch = loaded_torch()
    if torch is None or not torch.cuda.is_available():
        return None
    return "amd" if getattr(torch.version, "hip", None) else "nvidia"
