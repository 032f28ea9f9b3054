"""DeviceArray: memory on a GPU where no array library is, for any of them to take without a copy.

Results of operators and symmetric memory are handed out so on a GPU when torch is not in the
process: `cupy.from_dlpack(array)`, `jax.dlpack.from_dlpack(array)`, `torch.from_dlpack(array)`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mori._arrays.dlpack import NUMPY_CODES, capsule, dtype_code
from mori._arrays.place import Place, device_name
from mori.errors import InvalidError

# The element types of numpy that stand in __cuda_array_interface__ for the bits of others.
_BITS = {1: "|u1", 2: "<u2"}


def itemsize_of(dtype: str) -> int:
    """Bytes of an element type by name; InvalidError for an unknown one."""
    if dtype == "bfloat16":
        return 2
    if dtype.startswith(("float8_", "float4_")):
        return 1
    try:
        return int(np.dtype(dtype).itemsize)
    except TypeError:
        raise InvalidError(f"dtype is {dtype!r}, expected the name of an element type") from None


class DeviceArray:
    """Dense row-major memory on a GPU: `address`, `shape`, `dtype` (a name, as "bfloat16").

    Not a copy, and nothing is computed with it. It keeps what it views alive. What is written to
    the memory is ordered by streams: take it on the stream of the call that wrote it, or wait.
    `array[:n]` is the first n rows.
    """

    __slots__ = ("_keep", "_place", "address", "dtype", "itemsize", "shape")

    def __init__(
        self, address: int, shape: tuple[int, ...], dtype: str, place: Place, keep: object
    ) -> None:
        self.address, self.shape, self.dtype = address, shape, dtype
        self.itemsize = itemsize_of(dtype)
        self._place, self._keep = place, keep

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * self.itemsize

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def device(self) -> str:
        """ "cuda:0", "hip:0"."""
        return self._place.name

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    def __getitem__(self, rows: slice) -> DeviceArray:
        if not isinstance(rows, slice):
            raise TypeError(f"index is {rows!r}, expected a slice of rows, as in array[:n]")
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise InvalidError(f"step is {step}, expected 1")
        count = max(0, stop - start)
        row_bytes = math.prod(self.shape[1:]) * self.itemsize
        address = self.address + start * row_bytes
        shape = (count, *self.shape[1:])
        return DeviceArray(address, shape, self.dtype, self._place, self._keep)

    def __repr__(self) -> str:
        return f"<mori.shmem.DeviceArray: {list(self.shape)} {self.dtype} on {self.device}>"

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._place.dlpack_device

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule; BufferError for a copy or another device. `stream` is not waited for."""
        own = self._place.dlpack_device
        if dl_device is not None and tuple(dl_device) != own:
            raise BufferError(f"the array is on {self.device}, not on {device_name(dl_device)}")
        if copy:
            raise BufferError("the array is handed out as it is: copy=None or False")
        code = dtype_code(self.dtype, self.itemsize)
        return capsule(self.address, own, code, self.shape, self._keep)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Elements that numpy does not know stand here as unsigned integers of their size."""
        code, _ = dtype_code(self.dtype, self.itemsize)
        typestr = np.dtype(self.dtype).str if code in NUMPY_CODES else _BITS[self.itemsize]
        return {
            "data": (self.address, False),
            "shape": self.shape,
            "typestr": typestr,
            "strides": None,
            "stream": None,
            "version": 3,
        }
