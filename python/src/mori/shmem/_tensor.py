"""MORI's helpers that put torch tensors into symmetric memory. torch is imported when called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mori._arrays import import_torch
from mori._raw import number
from mori.errors import InvalidError
from mori.shmem._context import Context
from mori.shmem._default import current_context
from mori.shmem._lease import Lease

# Marks the tensors that symm_mori_shmem_tensor accepts, as MORI does.
_MARK = "__symm_tensor__"


class MoriShmemBuffer:
    """`nbytes` bytes of the own heap at `ptr`, as a flat array of uint8 for others to view.

    On a GPU for torch.as_tensor, by __cuda_array_interface__; on the host for numpy.asarray, by
    __array_interface__. dtype is the element type that the caller means; it is kept, not applied.
    """

    def __init__(
        self, ptr: int, nbytes: int, dtype: Any, *, context: Context | None = None
    ) -> None:
        self.ptr = number(ptr, "ptr")
        self.nbytes = number(nbytes, "nbytes")
        self.dtype = dtype
        chosen = current_context(context)
        if self.nbytes:
            # Refuses ranges outside the heap.
            chosen.view(self.ptr, self.nbytes, "uint8")
        self._lease: Lease = chosen.lease()
        self._place = chosen.place

    def _described(self) -> dict[str, Any]:
        return {
            "data": (self.ptr, False),
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "strides": None,
            "version": 3,
        }

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if not self._place.is_host:
            raise AttributeError(f"the memory is on {self._place.name}, no array of numpy")
        return self._described()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self._place.is_host:
            raise AttributeError("the memory is on the host")
        return self._described()


def mori_shmem_create_tensor(
    shape: int | Sequence[int], dtype: Any, *, context: Context | None = None
) -> Any:
    """A torch tensor in new symmetric memory; collective. Free it on all PEs."""
    tensor = current_context(context).tensor(shape, dtype)
    setattr(tensor, _MARK, True)
    return tensor


def mori_shmem_free_tensor(tensor: Any, *, context: Context | None = None) -> None:
    """Returns the memory of mori_shmem_create_tensor; NotFoundError if it is no live block.

    The tensor stays safe to touch, but its contents may be those of a later allocation.
    """
    import_torch("mori_shmem_free_tensor")
    current_context(context).free(tensor)


def symm_mori_shmem_tensor(tensor: Any, peer: int, *, context: Context | None = None) -> Any:
    """The memory of PE `peer` that corresponds to a tensor of mori_shmem_create_tensor.

    Raises InvalidError for another tensor, UnavailableError when that PE is not mapped here.
    """
    if not hasattr(tensor, _MARK):
        raise InvalidError("tensor was not made by mori_shmem_create_tensor")
    return current_context(context).peer_view(tensor, peer)


def mori_shmem_create_tensor_list_intra_node(
    shape: int | Sequence[int],
    dtype: Any,
    num_ranks: int | None = None,
    *,
    context: Context | None = None,
) -> list[Any]:
    """One new symmetric tensor as the PEs of this node see it: item i is that of PE i.

    The own item is the tensor to free. num_ranks: how many PEs, default all; must not exceed
    them. Raises UnavailableError when one of them is not mapped here.
    """
    chosen = current_context(context)
    count = chosen.pe_count if num_ranks is None else number(num_ranks, "num_ranks")
    if not chosen.pe < count <= chosen.pe_count:
        raise InvalidError(f"num_ranks is {count}, expected {chosen.pe + 1} .. {chosen.pe_count}")
    own = mori_shmem_create_tensor(shape, dtype, context=chosen)
    return [own if pe == chosen.pe else chosen.peer_view(own, pe) for pe in range(count)]
