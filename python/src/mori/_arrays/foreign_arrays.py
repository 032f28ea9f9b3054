"""Arrays of other libraries, by the two protocols they share: __cuda_array_interface__ and DLPack.

cupy, numba, JAX and the like. What a protocol says is read into a ForeignArray; results for such a
caller are DeviceArrays. An element type is its name in numpy or ml_dtypes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mori._arrays.device_array import DeviceArray, itemsize_of
from mori._arrays.dlpack import describe, dtype_code
from mori._arrays.place import DLPACK_ROCM, Place, device_name
from mori.errors import InvalidError


@dataclass(frozen=True, eq=False)
class ForeignArray:
    """An array as its library describes it; usable while this object lives.

    strides      in bytes; None: dense and row-major
    device       as of DLPack; None: the array does not say
    stream       on which the array's contents are ready; None: the array does not say
    """

    address: int
    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    strides: tuple[int, ...] | None
    device: tuple[int, int] | None
    read_only: bool
    stream: int | None
    keep: object

    @property
    def is_dense(self) -> bool:
        """Row-major without gaps; how far apart the elements of an extent of 1 are is no matter."""
        if self.strides is None or 0 in self.shape:
            return True
        expected = self.itemsize
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent != 1 and stride != expected:
                return False
            expected *= extent
        return True


class ForeignArrays:
    """Takes ForeignArray, gives DeviceArray. See mori/_arrays/kinds.py for the interface."""

    name = "foreign"
    float32 = "float32"
    int32 = "int32"

    def __init__(self, place: Place) -> None:
        self.place = place

    def dense_address(self, array: ForeignArray) -> int:
        here = array.device is None or self.place.holds(array.device)
        return array.address if here and array.is_dense else -1

    def refuse_unusable(self, array: ForeignArray, name: str) -> None:
        """InvalidError unless dense, row-major and on the device of the context."""
        if array.device is not None and not self.place.holds(array.device):
            raise InvalidError(
                f"{name} is on {device_name(array.device)}, the context is on {self.place.name}"
            )
        if not array.is_dense:
            raise InvalidError(
                f"{name} has strides {array.strides} for shape {array.shape}, expected a dense "
                "row-major array"
            )

    def refuse_unusable_dtype(self, dtype: str, name: str) -> None:
        """InvalidError for what no array library could take."""
        dtype_code(dtype, itemsize_of(dtype))

    def dtype_name(self, dtype: str) -> str:
        return dtype

    def dtype_named(self, name: str) -> str:
        return name

    def itemsize(self, dtype: str) -> int:
        return itemsize_of(dtype)

    def address(self, array: ForeignArray | DeviceArray) -> int:
        return array.address

    def view(self, address: int, keep: object, dtype: str, shape: tuple[int, ...]) -> DeviceArray:
        return DeviceArray(address, shape, dtype, self.place, keep)

    def empty(self, dtype: str, shape: tuple[int, ...]) -> DeviceArray:
        return DeviceArray(0, shape, dtype, self.place, None)

    def from_host(self, array: np.ndarray) -> np.ndarray:
        """Stays on the host: nothing here copies."""
        return array

    def alias(self, array: DeviceArray) -> DeviceArray:
        return array

    def current_stream(self) -> int:
        return 0

    def is_read_only(self, array: ForeignArray) -> bool:
        return array.read_only


def is_foreign(value: Any) -> bool:
    """Whether `value` speaks one of the protocols."""
    return hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__")


def foreign_array(value: Any, name: str, stream: int) -> ForeignArray:
    """Reads what `value` says of itself; `stream` is where it is to be used.

    InvalidError when it says something that is not so or cannot be known.
    """
    if isinstance(value, DeviceArray):
        device, size = value.__dlpack_device__(), value.itemsize
        return ForeignArray(
            value.address, value.shape, value.dtype, size, None, device, False, None, value
        )
    # Some raise AttributeError for element types that this protocol has no name for.
    described = getattr(value, "__cuda_array_interface__", None)
    try:
        taken = None if described is None else _by_interface(value, described)
        return taken if taken is not None else _by_dlpack(value, stream)
    except (AttributeError, BufferError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise InvalidError(
            f"{name} is a {type(value).__name__} whose memory cannot be used: {error}"
        ) from None


def _by_interface(value: Any, described: dict[str, Any]) -> ForeignArray | None:
    """By __cuda_array_interface__; None when DLPack must say what the elements are."""
    kind = np.dtype(described["typestr"])
    dtype, size = kind.name, kind.itemsize
    if kind.kind == "V" or not kind.isnative:
        if hasattr(value, "__dlpack__"):
            return None
        dtype = kind.str
    address, read_only = described["data"]
    strides = described.get("strides")
    device = value.__dlpack_device__() if hasattr(value, "__dlpack_device__") else None
    return ForeignArray(
        int(address),
        tuple(described["shape"]),
        dtype,
        size,
        None if strides is None else tuple(strides),
        None if device is None else (int(device[0]), int(device[1])),
        bool(read_only),
        _stream_of(described.get("stream")),
        value,
    )


def _stream_of(said: int | None) -> int | None:
    """The protocol's 1 is the default stream, which drivers also know as 0."""
    return 0 if said == 1 else said


def _by_dlpack(value: Any, stream: int) -> ForeignArray:
    """By a capsule, which `keep` holds; the array's library orders its writes before `stream`."""
    kind = int(value.__dlpack_device__()[0])
    if kind == 1:
        made = value.__dlpack__()
    else:
        # Nvidia's default stream has the number 1 there, AMD's 0.
        made = value.__dlpack__(stream=stream if kind == DLPACK_ROCM or stream else 1)
    found = describe(made)
    strides = found.strides
    return ForeignArray(
        found.address,
        found.shape,
        found.dtype,
        found.itemsize,
        None if strides is None else tuple(stride * found.itemsize for stride in strides),
        found.device,
        False,
        stream,
        (value, made),
    )
