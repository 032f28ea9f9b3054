"""Symmetric memory of a context: allocations, arrays over them, and the peers' views of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mori._arrays import Array, DType, Framework, checked_shape, import_torch, size_bytes_of
from mori._raw import shmem as raw
from mori._raw import text
from mori.errors import InvalidError, StateError, UnavailableError
from mori.shmem._addresses import Addresses
from mori.shmem._facts import HeapStats
from mori.shmem._lease import Lease


class Memory(Addresses):
    """The part of Context that allocates."""

    _lease: Lease | None
    _pe: int

    def lease(self) -> Lease:
        """What keeps the context's memory mapped; held by views and operators."""
        lease = self._lease
        if lease is None:
            raise StateError("this shmem context was finalized")
        return lease

    def malloc(self, size_bytes: int) -> int:
        """Address of new symmetric memory, aligned to 256 bytes; 0 for size 0. Collective.

        Raises MismatchError (PEs ask for different sizes), NoMemoryError (on all PEs).
        """
        return raw.mori_shmem_malloc(self._live(), size_bytes)

    def malloc_align(self, alignment_bytes: int, size_bytes: int) -> int:
        """As malloc, at a multiple of `alignment_bytes`, a power of two up to 1 GiB."""
        return raw.mori_shmem_malloc_align(self._live(), alignment_bytes, size_bytes)

    def malloc_with_flags(self, size_bytes: int, flags: int) -> int:
        """As malloc, of a kind of memory: 0 default, 1 fine-grained, 3 uncached, as HIP counts.

        The heap's memory is all of these at once. Raises UnsupportedError for others,
        MismatchError when PEs disagree.
        """
        return raw.mori_shmem_malloc_with_flags(self._live(), size_bytes, flags)

    def heap_stats(self) -> HeapStats:
        """Statistics of this PE's heap."""
        return HeapStats.of_report(raw.mori_shmem_heap_stats(self._live()))

    def free(self, block: int | Array) -> None:
        """Returns a block to the heap: its address, or the array or tensor made over it.

        All PEs must free the same blocks before the next malloc. 0 is accepted; a pointer that is
        no live allocation raises NotFoundError. Views of the block stay safe to touch, but their
        contents may be those of a later allocation.
        """
        address, size = self._span_or_address(block, "ptr")
        raw.mori_shmem_free(self._live(), 0 if size == 0 else address)

    def array(self, shape: int | Sequence[int], dtype: DType = "float32") -> Array:
        """An array in new symmetric memory, zero at first use of it. Collective.

        On the host a numpy array, for a torch.dtype a tensor. On a GPU a tensor if torch is in
        the process, else a DeviceArray. Free it with `free(array)` on all PEs; dropping it does
        not.
        """
        framework, kind = self._kinds.of_dtype(dtype)
        # Checked before anything is allocated: the other PEs' heaps would go out of step.
        framework.refuse_unusable_dtype(kind, "array")
        return self._allocated(checked_shape(shape), framework, kind)

    def tensor(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """A torch tensor in new symmetric memory. Collective. See `array`."""
        torch = import_torch("Context.tensor")
        if not isinstance(dtype, torch.dtype):
            raise InvalidError(f"dtype is {dtype!r}, expected a torch.dtype")
        return self.array(shape, dtype)

    def _allocated(self, shape: tuple[int, ...], framework: Framework, dtype: DType) -> Array:
        address = self.malloc(size_bytes_of(shape, framework, dtype))
        try:
            return self._viewed(address, shape, framework, dtype)
        except BaseException:
            self.free(address)
            raise

    def view(self, address: int, shape: int | Sequence[int], dtype: DType) -> Array:
        """An array over memory of the own heap, of the kind that `array` gives.

        Raises NotFoundError when part of it is outside the heap.
        """
        framework, kind = self._kinds.of_dtype(dtype)
        framework.refuse_unusable_dtype(kind, "view")
        return self._viewed(address, checked_shape(shape), framework, kind)

    def _viewed(
        self, address: int, shape: tuple[int, ...], framework: Framework, dtype: DType
    ) -> Array:
        size = size_bytes_of(shape, framework, dtype)
        if size == 0:
            return framework.empty(dtype, shape)
        self._in_heap(address, size, self._pe)
        return framework.view(address, self.lease(), dtype, shape)

    def peer_view(self, array: Array, pe: int) -> Array:
        """The memory of PE `pe` that corresponds to a symmetric array of this one.

        Same kind, shape and dtype; on a GPU it is memory of the own device to its users,
        wherever it is. Raises UnavailableError when that PE is not mapped here, NotFoundError when
        the array is not in the own heap.
        """
        framework, found = self._kinds.of(array, "array")
        framework.refuse_unusable(found, "array")
        shape = tuple(found.shape)
        size = size_bytes_of(shape, framework, found.dtype)
        if size == 0:
            return array
        there = self._in_heap(framework.address(found), size, pe)
        if there == 0:
            reason = text(raw.mori_shmem_peer_info(self._live(), pe).reason)
            raise UnavailableError(
                f"the memory of PE {pe} is not mapped by PE {self._pe}: {reason}"
            )
        return framework.view(there, self.lease(), found.dtype, shape)

    def _in_heap(self, address: int, size: int, pe: int) -> int:
        """Address at PE `pe` of a range of the own heap, after checking both of its ends."""
        there = self.ptr_p2p(address, pe)
        self.ptr_p2p(address + size - 1, pe)
        return there

    def ptr_p2p(self, address: int, pe: int) -> int:
        """Address at which this PE can touch the corresponding memory of `pe`; 0: not mapped."""
        return raw.mori_shmem_ptr_p2p(self._live(), address, pe)

    def buffer_register(self, buffer: int | Array, size_bytes: int | None = None) -> None:
        """Makes a private buffer a legal source of puts and target of gets."""
        address, size = self._span(buffer, size_bytes, "buffer")
        raw.mori_shmem_buffer_register(self._live(), address, size)

    def buffer_deregister(self, buffer: int | Array, size_bytes: int | None = None) -> None:
        """Undoes buffer_register of exactly this range; NotFoundError for any other."""
        address, size = self._span(buffer, size_bytes, "buffer")
        raw.mori_shmem_buffer_deregister(self._live(), address, size)
