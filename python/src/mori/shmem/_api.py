"""The functions of MORI's Python module `mori.shmem`, over the calling thread's context.

Names, argument order and return values are MORI's: addresses and sizes are integers, functions
that return a status there return 0 here. What is a negative status, an assert or a silent 0 there
is an exception here, under mori.MoriError. Each function takes `context=` for another context
than the thread's default.
"""

from __future__ import annotations

from typing import Any

from mori._arrays import import_torch
from mori._enums import MORI_SHMEM_INIT_WITH_MPI_COMM, MORI_SHMEM_INIT_WITH_UNIQUEID
from mori.errors import InvalidError, NotFoundError, StateError, UnsupportedError
from mori.shmem._context import Context
from mori.shmem._default import current_context, own_context, set_default_context
from mori.shmem._facts import HeapStats
from mori.shmem._launcher import join_communicator, join_launched

# Initialisation


def _refuse_second_init() -> None:
    context = own_context()
    if context is not None:
        raise StateError(
            f"this thread is initialised already, as PE {context.pe} of {context.pe_count}: call "
            "shmem_finalize() first, or make a further mori.shmem.Context"
        )


def shmem_get_unique_id() -> bytes:
    """Makes the id of a new group, 128 bytes; hand it to all PEs privately."""
    return Context.unique_id()


def shmem_init_attr(flags: int, rank: int, nranks: int, unique_id: Any) -> int:
    """Joins a group as PE `rank` of `nranks`; collective. Returns 0.

    flags: MORI_SHMEM_INIT_WITH_UNIQUEID, then `unique_id` is the group's; or
    MORI_SHMEM_INIT_WITH_MPI_COMM, then it is an mpi4py communicator, whose ranks become PEs.
    Raises StateError on a second call, InvalidError for a bad flag, rank or length of id (not
    128) or a communicator of other rank or size, and what Context raises.
    """
    if flags == MORI_SHMEM_INIT_WITH_MPI_COMM:
        _refuse_second_init()
        if not all(hasattr(unique_id, name) for name in ("Get_rank", "Get_size", "bcast")):
            raise InvalidError(
                "flags is MORI_SHMEM_INIT_WITH_MPI_COMM, so the last argument must be an mpi4py "
                f"communicator, not a {type(unique_id).__name__}"
            )
        own = (unique_id.Get_rank(), unique_id.Get_size())
        if own != (rank, nranks):
            raise InvalidError(
                f"rank {rank!r} of {nranks!r} given, in the communicator this is {own[0]} of "
                f"{own[1]}"
            )
        return join_communicator(unique_id, shmem_get_unique_id, _join)
    if flags != MORI_SHMEM_INIT_WITH_UNIQUEID:
        raise InvalidError(
            f"flags is {flags!r}, expected MORI_SHMEM_INIT_WITH_UNIQUEID "
            f"({MORI_SHMEM_INIT_WITH_UNIQUEID})"
        )
    _refuse_second_init()
    return _join(unique_id, rank, nranks)


def _join(unique_id: bytes, rank: int, nranks: int) -> int:
    set_default_context(Context(unique_id, rank, nranks))
    return 0


def shmem_mpi_init(communicator: Any = None) -> int:
    """Makes a PE of each rank of an mpi4py communicator, default COMM_WORLD; collective. Returns 0.

    Importing mpi4py.MPI initialises MPI if nobody has. Raises ImportError without mpi4py,
    StateError on a second call, and what Context raises.
    """
    _refuse_second_init()
    if communicator is None:
        try:
            from mpi4py import MPI
        except ImportError as error:
            raise ImportError(f"shmem_mpi_init needs mpi4py: {error}") from error
        communicator = MPI.COMM_WORLD
    return join_communicator(communicator, shmem_get_unique_id, _join)


def shmem_launcher_init() -> int:
    """Makes a PE of each process that a launcher started: torchrun, Open MPI, PMIx, MPICH, Slurm,
    or whatever sets RANK and WORLD_SIZE. Collective. Returns 0.

    Neither MPI nor a torch process group is needed. How the group's id travels stands in
    mori/shmem/_launcher.py. Raises StateError when no launcher is found or on a second call,
    UnavailableError when there is no way for the id, and what Context raises.
    """
    _refuse_second_init()
    return join_launched(shmem_get_unique_id, _join)


def shmem_torch_process_group_init(group_name: str) -> int:
    """Makes a PE of each rank of a registered torch process group; collective. Returns 0.

    Any group that can broadcast objects will do, a gloo group on the CPU and a subgroup without
    global rank 0 included; PE numbers are ranks within the group. Raises ImportError without
    torch, StateError when torch.distributed is not initialised or on a second call, NotFoundError
    for an unknown name.
    """
    import_torch("shmem_torch_process_group_init")
    import torch.distributed as distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        raise StateError(
            "torch.distributed is not initialised: call torch.distributed.init_process_group first"
        )
    _refuse_second_init()
    try:
        group = distributed.distributed_c10d._resolve_process_group(group_name)
    except (RuntimeError, ValueError, TypeError, KeyError) as error:
        raise NotFoundError(
            f"no torch process group is registered as {group_name!r}: {error}"
        ) from None
    rank, size = distributed.get_rank(group), distributed.get_world_size(group)
    if rank < 0:
        raise InvalidError(f"this process is not a member of the process group {group_name!r}")
    # A failure on the first rank is broadcast too: else the others would wait in vain.
    offer: list[Any] = [None]
    if rank == 0:
        try:
            offer[0] = shmem_get_unique_id()
        except Exception as error:
            offer[0] = error
    # src is a global rank, and the group's first rank need not be 0.
    distributed.broadcast_object_list(offer, src=distributed.get_global_rank(group, 0), group=group)
    if isinstance(offer[0], Exception):
        raise offer[0]
    return shmem_init_attr(MORI_SHMEM_INIT_WITH_UNIQUEID, rank, size, offer[0])


def shmem_is_initialized() -> bool:
    """True when the functions below would find a context to work on."""
    try:
        current_context()
    except StateError:
        return False
    return True


def shmem_finalize(*, context: Context | None = None) -> int:
    """Leaves the group; afterwards a new one may be joined. Returns 0.

    Not a barrier. Tensors and arrays that view symmetric memory stay safe to touch; see
    mori.shmem.Context. Raises StateError when not initialised.
    """
    current_context(context).finalize()
    return 0


def shmem_module_init(hip_module: int, *, context: Context | None = None) -> int:
    """Gives this PE to a loaded GPU module that is linked with the device bitcode. Returns 0.

    hip_module is the driver's handle, hipModule_t or CUmodule. After shmem_finalize its kernels do
    nothing until it is initialised again. Raises NotFoundError when the module holds no state of
    mori.shmem, StateError when it is another PE's of this process, UnsupportedError on the host
    backend, which has no device modules.
    """
    chosen = current_context(context)
    if chosen.place.is_host:
        raise UnsupportedError(
            "shmem_module_init needs a GPU: this context runs on the host backend, which has no "
            "device modules"
        )
    chosen.module_init(hip_module)
    return 0


# Queries


def shmem_mype(*, context: Context | None = None) -> int:
    """Number of this PE."""
    return current_context(context).pe


def shmem_npes(*, context: Context | None = None) -> int:
    """Number of PEs."""
    return current_context(context).pe_count


def shmem_num_qp_per_pe(*, context: Context | None = None) -> int:
    """RDMA queue pairs per PE."""
    return current_context(context).info().queue_pair_per_pe_count


# Memory


def shmem_malloc(size: int, *, context: Context | None = None) -> int:
    """Address of `size` bytes of symmetric memory; 0 for size 0. Collective.

    Raises NoMemoryError, on all PEs, when the heap is exhausted; MismatchError when PEs ask for
    different sizes.
    """
    return current_context(context).malloc(size)


def shmem_malloc_align(alignment: int, size: int, *, context: Context | None = None) -> int:
    """As shmem_malloc, at a multiple of `alignment`, a power of two up to 1 GiB."""
    return current_context(context).malloc_align(alignment, size)


def shmem_ext_malloc_with_flags(size: int, flags: int, *, context: Context | None = None) -> int:
    """As shmem_malloc, of a kind of memory: 0 default, 1 fine-grained, 3 uncached, as HIP counts.

    The heap's memory is all of these at once. Raises UnsupportedError for other flags.
    """
    return current_context(context).malloc_with_flags(size, flags)


def shmem_heap_stats(*, context: Context | None = None) -> HeapStats:
    """Size, use, peak and largest free block of this PE's heap, and what memory is behind it."""
    return current_context(context).heap_stats()


def shmem_free(ptr: int, *, context: Context | None = None) -> None:
    """Returns a block to the heap; 0 is accepted.

    Raises NotFoundError for a pointer that is no live allocation (foreign, or freed already).
    """
    current_context(context).free(ptr)


def shmem_buffer_register(ptr: int, size: int, *, context: Context | None = None) -> int:
    """Makes private memory a legal source of puts and target of gets. Returns 0."""
    current_context(context).buffer_register(ptr, size)
    return 0


def shmem_buffer_deregister(ptr: int, size: int, *, context: Context | None = None) -> int:
    """Undoes shmem_buffer_register of exactly this range. Returns 0."""
    current_context(context).buffer_deregister(ptr, size)
    return 0


def shmem_ptr_p2p(ptr: int, my_pe: int, dest_pe: int, *, context: Context | None = None) -> int:
    """Address at which this PE can touch the memory of `dest_pe` that corresponds to `ptr`.

    0 when that PE is not mapped here. Raises InvalidError when my_pe is not this PE or dest_pe
    is out of range, NotFoundError when ptr is outside the heap.
    """
    chosen = current_context(context)
    if my_pe != chosen.pe:
        raise InvalidError(f"my_pe is {my_pe!r}, this is PE {chosen.pe}")
    return chosen.ptr_p2p(ptr, dest_pe)


# Synchronisation


def shmem_barrier_all(*, context: Context | None = None) -> None:
    """All PEs wait for all PEs; puts issued before are complete at their targets."""
    current_context(context).barrier_all()


def shmem_barrier_on_stream(stream: Any = None, *, context: Context | None = None) -> None:
    """The same, enqueued on a stream of the GPU: a handle, or an object of torch, cupy or the like.

    None: the stream that torch works on, the default stream without torch. The host backend has no
    streams: only None and 0 are accepted, and the call blocks.
    """
    current_context(context).barrier_on_stream(stream)
