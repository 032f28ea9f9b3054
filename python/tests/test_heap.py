"""The heap's modes and statistics as Python sees them; what each promises is tested in C++."""

import mori.shmem as shmem
import pytest
from mori.errors import InvalidError, NoMemoryError
from pes import on_processes, on_threads


def test_statistics_of_a_small_heap():
    def body(context):
        before = context.heap_stats()
        assert before.size == (1 << 20) - 8192
        assert (before.used, before.peak, before.allocation_count) == (0, 0, 0)
        assert before.largest_free_block == before.free == before.size
        block = context.malloc(1000)
        context.malloc(256)
        now = context.heap_stats()
        assert (now.used, now.peak, now.allocation_count) == (1280, 1280, 2)
        assert (now.committed, now.step, now.heap_mode) == (4096, 4096, "static")
        context.free(block)
        now = context.heap_stats()
        assert (now.used, now.peak, now.free_block_count) == (256, 1280, 2)
        with pytest.raises(NoMemoryError, match=f"largest free block {now.largest_free_block}"):
            context.malloc(now.largest_free_block + 1)
        context.malloc(now.largest_free_block)
        return context.heap_stats().largest_free_block

    assert on_threads(2, body, heap_bytes=1 << 20) == [1024, 1024]


def vmm_body(context):
    assert context.heap_stats().size == (1 << 36) - 8192
    ours = context.array(1 << 20, "float32")
    ours[:] = context.pe
    context.barrier_all()
    theirs = context.peer_view(ours, 1 - context.pe)
    assert (theirs == 1 - context.pe).all()
    context.barrier_all()
    return context.heap_stats().committed


def test_vmm_takes_chunks_between_processes(monkeypatch):
    monkeypatch.setenv("MORI_SHMEM_VMM_CHUNK_SIZE", "8M")
    taken = on_processes(2, vmm_body, heap_bytes=1 << 36, heap_mode="vmm")
    assert taken == [(8 << 20) - 8192] * 2


@pytest.mark.parametrize("mode", ["static_heap", "vmm", "vmm_heap", "isolation"])
def test_modes_by_environment(mode, monkeypatch):
    monkeypatch.setenv("MORI_SHMEM_MODE", mode)
    shmem.shmem_init_attr(1, 0, 1, shmem.shmem_get_unique_id())
    assert shmem.shmem_heap_stats().heap_mode == mode.removesuffix("_heap")
    address = shmem.shmem_malloc(100)
    assert shmem.shmem_ptr_p2p(address, 0, 0) == address
    shmem.shmem_free(address)
    shmem.shmem_finalize()


def test_a_misspelt_mode_is_refused(monkeypatch):
    monkeypatch.setenv("MORI_SHMEM_MODE", "vvm")
    with pytest.raises(InvalidError, match="MORI_SHMEM_MODE='vvm' is none of static, vmm"):
        shmem.shmem_init_attr(1, 0, 1, shmem.shmem_get_unique_id())
