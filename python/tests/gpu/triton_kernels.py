"""Kernels of test_gpu_triton.py and of the compilation tests: each a use of the device functions
from Triton that a program has. PEs are called by number; `n` is the number of elements."""

import triton
import triton.language as tl
from mori.ir import triton as shmem


@triton.jit
def count_calls(words, old, source, sink):
    """Each program acts once with each kind of call; the words tell how often that was."""
    me = shmem.my_pe()
    shmem.uint64_atomic_add_thread(words, 1, me)
    before = shmem.uint64_atomic_fetch_add_thread(words + 1, 1, me)
    tl.store(old + tl.program_id(0), before)
    shmem.putmem_nbi_signal_thread(sink, source, 64, words + 2, 1, shmem.SIGNAL_ADD, me)
    shmem.putmem_nbi_signal_warp(sink, source, 64, words + 3, 1, shmem.SIGNAL_ADD, me)
    shmem.putmem_nbi_signal_block(sink, source, 64, words + 4, 1, shmem.SIGNAL_ADD, me)
    shmem.atomic_uint64_nonfetch_thread(words + 5, 1, 4, me)
    shmem.int64_atomic_add_thread(words + 6, 1, me)
    shmem.uint32_atomic_add_thread(words + 7, 1, me)


@triton.jit
def put_everywhere(inbox, outbox, n: tl.constexpr):
    """To the right neighbour, a row for each form; then all PEs meet."""
    right = (shmem.my_pe() + 1) % shmem.n_pes()
    shmem.putmem_nbi_thread(inbox, outbox, n * 4, right)
    shmem.putmem_nbi_warp(inbox + n, outbox + n, n * 4, right)
    shmem.putmem_nbi_block(inbox + 2 * n, outbox + 2 * n, n * 4, right)
    shmem.put_uint32_nbi_block(inbox + 3 * n, outbox + 3 * n, n, right)
    shmem.put_uint64_nbi_warp(inbox + 4 * n, outbox + 4 * n, n // 2, right)
    shmem.put_float_nbi_thread(inbox + 5 * n, outbox + 5 * n, n, right)
    shmem.put_double_nbi_block(inbox + 6 * n, outbox + 6 * n, n // 2, right)
    shmem.quiet_thread()
    shmem.barrier_all_block()


@triton.jit
def get_everywhere(copies, outbox, n: tl.constexpr):
    """From the right neighbour, a row for each form."""
    right = (shmem.my_pe() + 1) % shmem.n_pes()
    shmem.getmem_thread(copies, outbox, n * 4, right)
    shmem.getmem_warp(copies + n, outbox + n, n * 4, right)
    shmem.getmem_block(copies + 2 * n, outbox + 2 * n, n * 4, right)
    shmem.get_uint32_block(copies + 3 * n, outbox + 3 * n, n, right)
    shmem.get_uint64_nbi_warp(copies + 4 * n, outbox + 4 * n, n // 2, right)
    shmem.get_float_nbi_thread(copies + 5 * n, outbox + 5 * n, n, right)
    shmem.get_double_nbi_block(copies + 6 * n, outbox + 6 * n, n // 2, right)
    shmem.quiet_thread_pe(right)


@triton.jit
def put_values(words, small):
    """One value of each type to the right neighbour, each into a word of its own."""
    me = shmem.my_pe()
    right = (me + 1) % shmem.n_pes()
    shmem.int32_p(words, -1 - me, right)
    shmem.int64_p(words + 1, -1099511627776 - me.to(tl.int64), right)
    shmem.uint32_p(words + 2, 0xFFFFFFF0 + me.to(tl.int64), right)
    shmem.uint64_p(words + 3, 1099511627776 + me.to(tl.int64), right)
    shmem.float_p(words + 4, 1.5, right)
    shmem.double_p(words + 5, tl.full([], 2.5, tl.float64), right)
    shmem.int_p(words + 6, 7, right)
    shmem.long_p(words + 7, 8, right)
    shmem.longlong_p(words + 8, 9, right)
    shmem.uint_p(words + 9, 10, right)
    shmem.ulong_p(words + 10, 11, right)
    shmem.ulonglong_p(words + 11, 12, right)
    shmem.char_p(small, -2, right)
    shmem.uchar_p(small + 1, 250, right)
    shmem.short_p(small + 2, -300, right)
    shmem.ushort_p(small + 4, 65000, right)
    shmem.barrier_all_block()


@triton.jit
def ping_pong(box, signal, rounds, n: tl.constexpr):
    """PEs 0 and 1 send a block to and fro; each adds one to what came before it goes on."""
    me = shmem.my_pe()
    other = 1 - me
    at = tl.arange(0, n)
    for i in range(1, rounds + 1):
        if me == 1:
            shmem.uint64_wait_until_equals(signal, i)
        tl.store(box + n + at, tl.load(box + at) + 1)
        shmem.putmem_nbi_signal_block(box, box + n, n * 4, signal, i, shmem.SIGNAL_SET, other)
        if me == 0:
            shmem.uint64_wait_until_equals(signal, i)


@triton.jit(do_not_specialize=["epoch"])
def all_gather(gathered, mine, signals, epoch, n: tl.constexpr):
    """Program p brings part p of the own row to all PEs and waits for that part of all rows."""
    me, world, part = shmem.my_pe(), shmem.n_pes(), tl.program_id(0)
    programs = tl.num_programs(0)
    for i in range(world):
        pe = (me + i) % world
        shmem.putmem_nbi_signal_block(
            gathered + (me * programs + part) * n,
            mine + part * n,
            n * 4,
            signals + part * world + me,
            epoch,
            shmem.SIGNAL_SET,
            pe,
        )
    for pe in range(world):
        shmem.uint64_wait_until_greater_than(signals + part * world + pe, epoch - 1)


@triton.jit
def all_reduce_by_loads(total, mine, n: tl.constexpr):
    """Sums what all PEs have, read from them; PEs have met before, on their streams."""
    at = tl.program_id(0) * n + tl.arange(0, n)
    total_here = tl.zeros([n], tl.float32)
    for pe in range(shmem.n_pes()):
        theirs = shmem.ptr(mine, pe).to(tl.pointer_type(tl.float32))
        total_here += tl.load(theirs + at)
    tl.store(total + at, total_here)


@triton.jit(do_not_specialize=["epoch"])
def all_reduce_by_signals(total, mine, slots, signals, epoch, n: tl.constexpr):
    """The same by puts: every PE gets every row and sums for itself."""
    me, world, part = shmem.my_pe(), shmem.n_pes(), tl.program_id(0)
    programs = tl.num_programs(0)
    at = tl.arange(0, n)
    for pe in range(world):
        shmem.putmem_nbi_signal_block(
            slots + (me * programs + part) * n,
            mine + part * n,
            n * 4,
            signals + part * world + me,
            epoch,
            shmem.SIGNAL_SET,
            pe,
        )
    total_here = tl.zeros([n], tl.float32)
    for pe in range(world):
        shmem.uint64_wait_until_equals(signals + part * world + pe, epoch)
        total_here += tl.load(slots + (pe * programs + part) * n + at)
    tl.store(total + part * n + at, total_here)


@triton.jit
def meet(seen, mine, rounds):
    """Stores a number, meets, looks at what the neighbour stored, meets."""
    me, world = shmem.my_pe(), shmem.n_pes()
    right = (me + 1) % world
    wrong = 0
    for i in range(1, rounds + 1):
        shmem.int64_p(mine, i, right)
        shmem.barrier_all_block()
        wrong += (tl.load(mine, volatile=True) != i).to(tl.int32)
        shmem.barrier_all_thread()
    tl.store(seen, wrong)


@triton.jit
def change_words(words, found):
    """Every atomic, on words of the right neighbour; `found` gets what was before."""
    right = (shmem.my_pe() + 1) % shmem.n_pes()
    tl.store(found, shmem.atomic_uint64_fetch_thread(words, 5, 0, 14, right))  # fetch-add
    tl.store(found + 1, shmem.atomic_uint64_fetch_thread(words, 0, 0, 13, right))  # fetch-inc
    tl.store(found + 2, shmem.atomic_int64_fetch_thread(words, 12, 0, 15, right))  # and
    tl.store(found + 3, shmem.atomic_int64_fetch_thread(words, 3, 0, 16, right))  # or
    tl.store(found + 4, shmem.atomic_uint64_fetch_thread(words, 1, 0, 17, right))  # xor
    tl.store(found + 5, shmem.atomic_uint64_fetch_thread(words, 40, 0, 18, right))  # swap
    tl.store(found + 6, shmem.atomic_uint64_fetch_thread(words, 50, 40, 19, right))  # c-and-swap
    tl.store(found + 7, shmem.atomic_uint64_fetch_thread(words, 60, 41, 19, right))  # no match
    tl.store(found + 8, shmem.atomic_uint64_fetch_thread(words, 0, 0, 12, right))  # fetch
    shmem.atomic_uint32_nonfetch_thread(words + 1, 9, 3, right)  # set
    tl.store(found + 9, shmem.uint32_atomic_fetch_add_thread(words + 1, 2, right).to(tl.int64))
    tl.store(found + 10, shmem.int64_atomic_fetch_add_thread(words + 2, -3, right))
    tl.store(found + 11, shmem.atomic_uint32_fetch_thread(words + 1, 1, 0, 14, right).to(tl.int64))
    shmem.fence_thread()
    shmem.barrier_all_block()


@triton.jit
def who(found):
    """What a module says of its PE, whoever it is, or that there is none."""
    tl.store(found, shmem.my_pe())
    tl.store(found + 1, shmem.n_pes())
    tl.store(found + 2, shmem.quiet_thread())


@triton.jit
def put_to(words, pe, found):
    """A put that may be refused; `found` gets its status."""
    tl.store(found, shmem.int64_p(words, 1, pe))


@triton.jit
def wait_for(word, value, found):
    tl.store(found, shmem.int64_wait_until_equals(word, value))
    tl.store(found + 1, shmem.int64_wait_until_greater_than(word, value).to(tl.int32))
