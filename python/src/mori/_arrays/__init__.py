"""Arrays of all libraries behind one small interface: where their bytes are, and arrays over ours.

kinds.py says what the interface is and which arrays go in and come out where; read it first. Used
by mori/shmem and mori/ops. Nothing here imports an array library but numpy.
"""

from __future__ import annotations

from mori._arrays.device_array import DeviceArray
from mori._arrays.kinds import (
    NUMPY,
    Array,
    DType,
    Framework,
    Kinds,
    checked_shape,
    kinds_at,
    memory_of,
    size_bytes_of,
    span_of,
)
from mori._arrays.place import HOST, Place
from mori._arrays.stream import stream_handle
from mori._arrays.torch_tensors import gpu_backend_of_torch, import_torch, loaded_torch

__all__ = [
    "HOST",
    "NUMPY",
    "Array",
    "DType",
    "DeviceArray",
    "Framework",
    "Kinds",
    "Place",
    "checked_shape",
    "gpu_backend_of_torch",
    "import_torch",
    "kinds_at",
    "loaded_torch",
    "memory_of",
    "size_bytes_of",
    "span_of",
    "stream_handle",
]
