"""numpy arrays, in host memory. An element type is a numpy.dtype, ml_dtypes' included."""

from __future__ import annotations

from typing import Any

import numpy as np

from mori._arrays.place import HOST
from mori._raw import address_of, buffer_pointer, memory
from mori.errors import InvalidError


class NumpyArrays:
    """numpy.ndarray of any native element type. See mori/_arrays/kinds.py for the interface."""

    name = "numpy"
    place = HOST
    float32 = np.dtype(np.float32)
    int32 = np.dtype(np.int32)

    def dense_address(self, array: np.ndarray) -> int:
        """Address of dense row-major native numbers; -1: refuse_unusable says what is wrong."""
        dtype = array.dtype
        if array.flags.c_contiguous and dtype.isnative and not dtype.hasobject:
            return self.address(array)
        return -1

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

    def dtype_name(self, dtype: Any) -> str:
        kind = np.dtype(dtype)
        # numpy's name says nothing of the byte order.
        return kind.name if kind.isnative else kind.str

    def itemsize(self, dtype: Any) -> int:
        return int(np.dtype(dtype).itemsize)

    def address(self, array: np.ndarray) -> int:
        try:
            return address_of(buffer_pointer(array))
        except (ValueError, TypeError, BufferError):
            # ml_dtypes' elements have no buffer format; their bytes have.
            return address_of(buffer_pointer(array.view(np.uint8)))

    def view(self, address: int, keep: object, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
        kind = np.dtype(dtype)
        size = kind.itemsize
        for extent in shape:
            size *= extent
        if size == 0:
            return self.empty(kind, shape)
        return np.frombuffer(memory(address, size, keep), dtype=kind).reshape(shape)

    def empty(self, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
        return np.empty(shape, dtype)

    def from_host(self, array: np.ndarray) -> np.ndarray:
        return array

    def alias(self, array: np.ndarray) -> np.ndarray:
        return array[...]

    def current_stream(self) -> int:
        return 0

    def is_read_only(self, array: np.ndarray) -> bool:
        return not array.flags.writeable


NUMPY = NumpyArrays()
