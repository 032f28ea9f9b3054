"""One process of a launcher's: joins as it is told, twice, and proves that all PEs are there.

usage: launched_program.py mpi|halves|launcher [DIRECTORY]
Prints one line, "OK PE COUNT TRANSPORT"; DIRECTORY is for programs that want to know who started.
"""

import faulthandler
import sys

import mori.shmem as shmem


def join(how):
    if how == "launcher":
        return shmem.shmem_launcher_init()
    from mpi4py import MPI

    if how == "mpi":
        return shmem.shmem_mpi_init()
    world = MPI.COMM_WORLD
    half = world.Split(world.Get_rank() % 2)
    return shmem.shmem_init_attr(
        shmem.MORI_SHMEM_INIT_WITH_MPI_COMM, half.Get_rank(), half.Get_size(), half
    )


def main():
    faulthandler.dump_traceback_later(60, exit=True)
    for turn in range(2):
        join(sys.argv[1])
        pe, count = shmem.shmem_mype(), shmem.shmem_npes()
        context = shmem.current_context()
        block = context.array(count, "int64")
        block[:] = 0
        context.barrier_all()
        for other in range(count):
            context.peer_view(block, other)[pe] = 100 * turn + pe
        context.barrier_all()
        assert list(block) == [100 * turn + other for other in range(count)], list(block)
        context.barrier_all()
        shmem.shmem_finalize()
    sys.stdout.write(f"OK {pe} {count}\n")


main()
