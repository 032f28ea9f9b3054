"""Offsets and sizes of a batch as C arrays of uint64, without a Python step per element.

numpy arrays of uint64 or int64 that lie densely, and other buffers of such numbers (array.array,
torch CPU tensors), are passed as they are; lists and tuples are converted by numpy in one go.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mori._ffi import ffi
from mori._raw import CData
from mori.errors import InvalidError

_WORDS = ffi.typeof("uint64_t[]")
_from_buffer = ffi.from_buffer
_UINT64, _INT64 = np.dtype(np.uint64), np.dtype(np.int64)
NAMES = ("local_offsets", "remote_offsets", "sizes")


class RangeError(InvalidError):
    """An offset or size that C's uint64 cannot hold: a range error that C cannot find itself."""


def words(values: Any, name: str) -> CData:
    """`values` as `uint64_t[]`, which keeps the memory; InvalidError for what is no array of whole
    numbers. The signs of int64 are not looked at: C finds the range error (see negative_in)."""
    if type(values) is np.ndarray:
        dtype = values.dtype
        if (dtype is _UINT64 or dtype is _INT64) and values.ndim == 1 and values.flags.c_contiguous:
            return _from_buffer(_WORDS, values)
    return _from_buffer(_WORDS, _array(values, name))


def _array(values: Any, name: str) -> np.ndarray:
    """A dense one-dimensional array of uint64 or int64."""
    if isinstance(values, str | bytes | dict | set):
        raise InvalidError(f"{name} is a {type(values).__name__}, expected a sequence of integers")
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise InvalidError(f"{name} is no sequence of integers: {error}") from None
    if array.ndim != 1:
        raise InvalidError(
            f"{name} has {array.ndim} dimensions, expected 1"
            if array.ndim or _is_array(values)
            else f"{name} is a {type(values).__name__}, expected a sequence of integers"
        )
    if array.size == 0:
        return np.empty(0, np.uint64)
    if array.dtype.kind in "iu":
        wide = _UINT64 if array.dtype.kind == "u" else _INT64
        return np.ascontiguousarray(array, wide)
    return _one_by_one(values, name)


def _is_array(values: Any) -> bool:
    return hasattr(values, "dtype")


def _one_by_one(values: Any, name: str) -> np.ndarray:
    """What numpy has no integer type for: says which element is wrong."""
    exact = []
    for index, value in enumerate(values):
        try:
            exact.append(value.__index__())
        except (AttributeError, TypeError):
            raise InvalidError(f"{name}[{index}] is {value!r}, expected an integer") from None
        if exact[-1] < 0:
            raise RangeError(f"{name}[{index}] is {exact[-1]}, expected 0 or more")
        if exact[-1] >= 1 << 64:
            raise RangeError(f"{name}[{index}] is {exact[-1]}, expected less than {1 << 64}")
    return np.array(exact, np.uint64)


def negative_in(*lists: Any) -> str:
    """Names the first negative number in local offsets, remote offsets and sizes; "" if none."""
    for name, values in zip(NAMES, lists, strict=True):
        array = np.asarray(values)
        if array.dtype.kind == "i" and array.size and array.min() < 0:
            index = int(np.argmax(array < 0))
            return f"{name}[{index}] is {array[index]}, expected 0 or more"
    return ""
