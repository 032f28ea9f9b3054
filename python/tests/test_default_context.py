"""MORI's global functions, over the default context of a thread."""

import threading

import mori.shmem as shmem
import numpy as np
import pytest
from mori.errors import InvalidError, NotFoundError, StateError, UnsupportedError
from mori.shmem import Context
from pes import OPTIONS, run_python


@pytest.fixture
def one_pe(monkeypatch):
    monkeypatch.setenv("MORI_SHMEM_HEAP_SIZE", "8MiB")
    assert shmem.shmem_init_attr(1, 0, 1, shmem.shmem_get_unique_id()) == 0
    yield
    if shmem.shmem_is_initialized():
        shmem.shmem_finalize()


CALLS = {
    "mype": shmem.shmem_mype,
    "npes": shmem.shmem_npes,
    "num_qp_per_pe": shmem.shmem_num_qp_per_pe,
    "barrier_all": shmem.shmem_barrier_all,
    "barrier_on_stream": shmem.shmem_barrier_on_stream,
    "finalize": shmem.shmem_finalize,
    "malloc": lambda: shmem.shmem_malloc(8),
    "malloc_align": lambda: shmem.shmem_malloc_align(8, 8),
    "ext_malloc_with_flags": lambda: shmem.shmem_ext_malloc_with_flags(8, 0),
    "free": lambda: shmem.shmem_free(8),
    "heap_stats": shmem.shmem_heap_stats,
    "buffer_register": lambda: shmem.shmem_buffer_register(8, 8),
    "buffer_deregister": lambda: shmem.shmem_buffer_deregister(8, 8),
    "ptr_p2p": lambda: shmem.shmem_ptr_p2p(8, 0, 0),
    "module_init": lambda: shmem.shmem_module_init(0),
}


@pytest.mark.parametrize("name", CALLS)
def test_before_init(name):
    assert not shmem.shmem_is_initialized()
    with pytest.raises(StateError, match="not initialised"):
        CALLS[name]()


@pytest.mark.parametrize("name", CALLS)
def test_after_finalize(name, one_pe):
    assert shmem.shmem_finalize() == 0
    assert not shmem.shmem_is_initialized()
    with pytest.raises(StateError, match="finalized"):
        CALLS[name]()


def test_what_each_function_returns(one_pe):
    assert shmem.shmem_is_initialized()
    assert (shmem.shmem_mype(), shmem.shmem_npes()) == (0, 1)
    assert shmem.shmem_num_qp_per_pe() >= 1
    assert shmem.shmem_barrier_all() is None
    assert shmem.shmem_barrier_on_stream() is None
    assert shmem.shmem_barrier_on_stream(0) is None
    address = shmem.shmem_malloc(100)
    assert isinstance(address, int)
    assert shmem.shmem_malloc_align(4096, 100) % 4096 == 0
    for flags in (0, 1, 3):
        assert shmem.shmem_ext_malloc_with_flags(100, flags) > 0
    assert shmem.shmem_malloc(0) == 0
    assert shmem.shmem_ptr_p2p(address, 0, 0) == address
    private = np.zeros(64, np.uint8)
    start = private.__array_interface__["data"][0]
    assert shmem.shmem_buffer_register(start, 64) == 0
    assert shmem.shmem_buffer_deregister(start, 64) == 0
    assert shmem.shmem_free(address) is None
    assert shmem.shmem_free(0) is None


def test_second_init_is_refused_and_leaves_the_first(one_pe):
    with pytest.raises(StateError, match="initialised already, as PE 0 of 1"):
        shmem.shmem_init_attr(1, 0, 1, shmem.shmem_get_unique_id())
    assert shmem.shmem_npes() == 1
    shmem.shmem_barrier_all()


def test_init_again_after_finalize(one_pe):
    shmem.shmem_finalize()
    assert shmem.shmem_init_attr(1, 0, 1, shmem.shmem_get_unique_id()) == 0
    assert shmem.shmem_malloc(64) > 0


def test_bad_arguments_of_init():
    unique_id = shmem.shmem_get_unique_id()
    with pytest.raises(InvalidError, match="MPI_COMM"):
        shmem.shmem_init_attr(shmem.MORI_SHMEM_INIT_WITH_MPI_COMM, 0, 1, unique_id)
    with pytest.raises(InvalidError, match="flags is 7"):
        shmem.shmem_init_attr(7, 0, 1, unique_id)
    with pytest.raises(InvalidError):
        shmem.shmem_init_attr(1, 1, 1, unique_id)
    with pytest.raises(InvalidError, match="3 bytes, expected 128"):
        shmem.shmem_init_attr(1, 0, 1, b"abc")
    assert not shmem.shmem_is_initialized()


def test_bad_arguments_after_init(one_pe):
    with pytest.raises(UnsupportedError, match="host"):
        shmem.shmem_module_init(0)
    with pytest.raises(UnsupportedError, match="flags 4"):
        shmem.shmem_ext_malloc_with_flags(8, 4)
    with pytest.raises(InvalidError, match="flags is -1"):
        shmem.shmem_ext_malloc_with_flags(8, -1)
    with pytest.raises(InvalidError, match="my_pe is 3, this is PE 0"):
        shmem.shmem_ptr_p2p(shmem.shmem_malloc(8), 3, 0)
    with pytest.raises(InvalidError):
        shmem.shmem_malloc(-1)
    with pytest.raises(InvalidError):
        shmem.shmem_malloc(1 << 64)
    with pytest.raises(InvalidError, match=r"size is 1\.5"):
        shmem.shmem_malloc(1.5)
    with pytest.raises(MemoryError):
        shmem.shmem_malloc((1 << 64) - 1)
    with pytest.raises(NotFoundError):
        shmem.shmem_free(12345)


def test_pes_as_threads_have_a_default_each(monkeypatch):
    monkeypatch.setenv("MORI_SHMEM_HEAP_SIZE", "8MiB")
    unique_id = shmem.shmem_get_unique_id()
    seen = {}

    def pe_main(rank):
        shmem.shmem_init_attr(1, rank, 2, unique_id)
        address = shmem.shmem_malloc(64)
        shmem.shmem_barrier_all()
        seen[rank] = (shmem.shmem_mype(), shmem.shmem_ptr_p2p(address, rank, 1 - rank) != 0)
        shmem.shmem_barrier_all()
        shmem.shmem_finalize()

    threads = [threading.Thread(target=pe_main, args=(rank,), daemon=True) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == {0: (0, True), 1: (1, True)}


def test_worker_thread_uses_the_only_context(one_pe):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(shmem.shmem_npes()), daemon=True)
    thread.start()
    thread.join(10)
    assert seen == [1]


def test_worker_thread_must_choose_among_several(one_pe):
    with Context(Context.unique_id(), 0, 1, **OPTIONS) as second:
        seen = []

        def ask():
            try:
                shmem.shmem_npes()
            except StateError as error:
                seen.append(str(error))
            seen.append(shmem.shmem_npes(context=second))
            shmem.set_default_context(second)
            seen.append(shmem.current_context() is second)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(10)
        assert "the process has 2" in seen[0]
        assert seen[1:] == [1, True]


FORK = """
import os, sys
import numpy as np
import mori.shmem as shmem
from mori.shmem import Context
from mori._raw import shmem as raw
shmem.shmem_init_attr(1, 0, 1, shmem.shmem_get_unique_id())
context = shmem.current_context()
handle = context.handle()
block = context.array(8, np.int32)
child = os.fork()
if child == 0:
    try:
        seen = []
        for call in (shmem.shmem_mype, lambda: shmem.shmem_malloc(8), context.barrier_all,
                     lambda: raw.mori_shmem_barrier_all(handle),
                     lambda: raw.mori_shmem_malloc(handle, 8),
                     lambda: raw.mori_shmem_info(handle)):
            try:
                call()
                seen.append("no error")
            except shmem.current_context.__globals__["StateError"] as error:
                seen.append("StateError")
        context.finalize()
        print(seen, shmem.shmem_is_initialized(), flush=True)
        os._exit(0)
    finally:
        os._exit(9)
_, status = os.waitpid(child, 0)
block[:] = 5
shmem.shmem_barrier_all()
print(status, shmem.shmem_malloc(64) > 0, block.sum(), flush=True)
shmem.shmem_finalize()
"""


def test_fork_after_init():
    done = run_python(FORK, MORI_SHMEM_HEAP_SIZE="8MiB")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{['StateError'] * 6} False\n0 True 40\n"


def test_exit_without_finalize_is_clean():
    done = run_python(
        "import numpy as np, mori.shmem as s\n"
        "s.shmem_init_attr(1, 0, 1, s.shmem_get_unique_id())\n"
        "view = s.current_context().array(8)\n"
        "print('done')",
        MORI_SHMEM_HEAP_SIZE="8MiB",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_bad_environment_is_named(monkeypatch):
    monkeypatch.setenv("MORI_SHMEM_HEAP_SIZE", "lots")
    with pytest.raises(InvalidError, match="MORI_SHMEM_HEAP_SIZE"):
        Context(Context.unique_id(), 0, 1)


def test_log_level():
    for level in ("off", "error", "warn", "WARN", 2):
        shmem.set_log_level(level)
    with pytest.raises(InvalidError, match="'loud'"):
        shmem.set_log_level("loud")
    with pytest.raises(InvalidError):
        shmem.set_log_level(99)
    shmem.drain_log()
    assert shmem.drain_log() == []
