"""The device functions for kernels under @triton.jit.

Generated from libmori-shmem/functions/declarations.py. A call acts once in each
program, whatever its number of warps: see mori/ir/triton/__init__.py.
"""

from __future__ import annotations

from triton.language.core import extern as _extern

from mori.ir.triton._call import call as _call


@_extern
def my_pe(_semantic=None):
    return _call("my_pe", (), _semantic)


@_extern
def n_pes(_semantic=None):
    return _call("n_pes", (), _semantic)


@_extern
def ptr_p2p(address, from_pe, pe, _semantic=None):
    return _call("ptr_p2p", (address, from_pe, pe), _semantic)


@_extern
def ptr(address, pe, _semantic=None):
    return _call("ptr", (address, pe), _semantic)


@_extern
def quiet_thread(_semantic=None):
    return _call("quiet_thread", (), _semantic)


@_extern
def quiet_thread_pe(pe, _semantic=None):
    return _call("quiet_thread_pe", (pe,), _semantic)


@_extern
def quiet_thread_pe_qp(pe, qp=0, _semantic=None):
    return _call("quiet_thread_pe_qp", (pe, qp), _semantic)


@_extern
def fence_thread(_semantic=None):
    return _call("fence_thread", (), _semantic)


@_extern
def fence_thread_pe(pe, _semantic=None):
    return _call("fence_thread_pe", (pe,), _semantic)


@_extern
def fence_thread_pe_qp(pe, qp=0, _semantic=None):
    return _call("fence_thread_pe_qp", (pe, qp), _semantic)


@_extern
def barrier_all_thread(_semantic=None):
    return _call("barrier_all_thread", (), _semantic)


@_extern
def barrier_all_block(_semantic=None):
    return _call("barrier_all_block", (), _semantic)


@_extern
def putmem_nbi_thread(dest, source, bytes, pe, qp=0, _semantic=None):
    return _call("putmem_nbi_thread", (dest, source, bytes, pe, qp), _semantic)


@_extern
def put_uint32_nbi_thread(dest, source, count, pe, qp=0, _semantic=None):
    return _call("put_uint32_nbi_thread", (dest, source, count, pe, qp), _semantic)


@_extern
def put_uint64_nbi_thread(dest, source, count, pe, qp=0, _semantic=None):
    return _call("put_uint64_nbi_thread", (dest, source, count, pe, qp), _semantic)


@_extern
def put_float_nbi_thread(dest, source, count, pe, qp=0, _semantic=None):
    return _call("put_float_nbi_thread", (dest, source, count, pe, qp), _semantic)


@_extern
def put_double_nbi_thread(dest, source, count, pe, qp=0, _semantic=None):
    return _call("put_double_nbi_thread", (dest, source, count, pe, qp), _semantic)


@_extern
def putmem_nbi_warp(dest, source, bytes, pe, qp=0, _semantic=None):
    return _call("putmem_nbi_warp", (dest, source, bytes, pe, qp), _semantic)


@_extern
def put_uint32_nbi_warp(dest, source, count, pe, qp=0, _semantic=None):
    return _call("put_uint32_nbi_warp", (dest, source, count, pe, qp), _semantic)


@_extern
def put_uint64_nbi_warp(dest, source, count, pe, qp=0, _semantic=None):
    return _call("put_uint64_nbi_warp", (dest, source, count, pe, qp), _semantic)


@_extern
def put_float_nbi_warp(dest, source, count, pe, qp=0, _semantic=None):
    return _call("put_float_nbi_warp", (dest, source, count, pe, qp), _semantic)


@_extern
def put_double_nbi_warp(dest, source, count, pe, qp=0, _semantic=None):
    return _call("put_double_nbi_warp", (dest, source, count, pe, qp), _semantic)


@_extern
def putmem_nbi_block(dest, source, bytes, pe, qp=0, _semantic=None):
    return _call("putmem_nbi_block", (dest, source, bytes, pe, qp), _semantic)


@_extern
def put_uint32_nbi_block(dest, source, count, pe, qp=0, _semantic=None):
    return _call("put_uint32_nbi_block", (dest, source, count, pe, qp), _semantic)


@_extern
def put_uint64_nbi_block(dest, source, count, pe, qp=0, _semantic=None):
    return _call("put_uint64_nbi_block", (dest, source, count, pe, qp), _semantic)


@_extern
def put_float_nbi_block(dest, source, count, pe, qp=0, _semantic=None):
    return _call("put_float_nbi_block", (dest, source, count, pe, qp), _semantic)


@_extern
def put_double_nbi_block(dest, source, count, pe, qp=0, _semantic=None):
    return _call("put_double_nbi_block", (dest, source, count, pe, qp), _semantic)


@_extern
def getmem_nbi_thread(dest, source, bytes, pe, qp=0, _semantic=None):
    return _call("getmem_nbi_thread", (dest, source, bytes, pe, qp), _semantic)


@_extern
def get_uint32_nbi_thread(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_uint32_nbi_thread", (dest, source, count, pe, qp), _semantic)


@_extern
def get_uint64_nbi_thread(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_uint64_nbi_thread", (dest, source, count, pe, qp), _semantic)


@_extern
def get_float_nbi_thread(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_float_nbi_thread", (dest, source, count, pe, qp), _semantic)


@_extern
def get_double_nbi_thread(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_double_nbi_thread", (dest, source, count, pe, qp), _semantic)


@_extern
def getmem_nbi_warp(dest, source, bytes, pe, qp=0, _semantic=None):
    return _call("getmem_nbi_warp", (dest, source, bytes, pe, qp), _semantic)


@_extern
def get_uint32_nbi_warp(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_uint32_nbi_warp", (dest, source, count, pe, qp), _semantic)


@_extern
def get_uint64_nbi_warp(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_uint64_nbi_warp", (dest, source, count, pe, qp), _semantic)


@_extern
def get_float_nbi_warp(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_float_nbi_warp", (dest, source, count, pe, qp), _semantic)


@_extern
def get_double_nbi_warp(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_double_nbi_warp", (dest, source, count, pe, qp), _semantic)


@_extern
def getmem_nbi_block(dest, source, bytes, pe, qp=0, _semantic=None):
    return _call("getmem_nbi_block", (dest, source, bytes, pe, qp), _semantic)


@_extern
def get_uint32_nbi_block(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_uint32_nbi_block", (dest, source, count, pe, qp), _semantic)


@_extern
def get_uint64_nbi_block(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_uint64_nbi_block", (dest, source, count, pe, qp), _semantic)


@_extern
def get_float_nbi_block(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_float_nbi_block", (dest, source, count, pe, qp), _semantic)


@_extern
def get_double_nbi_block(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_double_nbi_block", (dest, source, count, pe, qp), _semantic)


@_extern
def getmem_thread(dest, source, bytes, pe, qp=0, _semantic=None):
    return _call("getmem_thread", (dest, source, bytes, pe, qp), _semantic)


@_extern
def get_uint32_thread(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_uint32_thread", (dest, source, count, pe, qp), _semantic)


@_extern
def get_uint64_thread(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_uint64_thread", (dest, source, count, pe, qp), _semantic)


@_extern
def get_float_thread(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_float_thread", (dest, source, count, pe, qp), _semantic)


@_extern
def get_double_thread(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_double_thread", (dest, source, count, pe, qp), _semantic)


@_extern
def getmem_warp(dest, source, bytes, pe, qp=0, _semantic=None):
    return _call("getmem_warp", (dest, source, bytes, pe, qp), _semantic)


@_extern
def get_uint32_warp(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_uint32_warp", (dest, source, count, pe, qp), _semantic)


@_extern
def get_uint64_warp(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_uint64_warp", (dest, source, count, pe, qp), _semantic)


@_extern
def get_float_warp(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_float_warp", (dest, source, count, pe, qp), _semantic)


@_extern
def get_double_warp(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_double_warp", (dest, source, count, pe, qp), _semantic)


@_extern
def getmem_block(dest, source, bytes, pe, qp=0, _semantic=None):
    return _call("getmem_block", (dest, source, bytes, pe, qp), _semantic)


@_extern
def get_uint32_block(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_uint32_block", (dest, source, count, pe, qp), _semantic)


@_extern
def get_uint64_block(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_uint64_block", (dest, source, count, pe, qp), _semantic)


@_extern
def get_float_block(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_float_block", (dest, source, count, pe, qp), _semantic)


@_extern
def get_double_block(dest, source, count, pe, qp=0, _semantic=None):
    return _call("get_double_block", (dest, source, count, pe, qp), _semantic)


@_extern
def putmem_nbi_signal_thread(
    dest, source, bytes, signal, signal_value, signal_op, pe, qp=0, _semantic=None
):
    return _call(
        "putmem_nbi_signal_thread",
        (dest, source, bytes, signal, signal_value, signal_op, pe, qp),
        _semantic,
    )


@_extern
def putmem_nbi_signal_warp(
    dest, source, bytes, signal, signal_value, signal_op, pe, qp=0, _semantic=None
):
    return _call(
        "putmem_nbi_signal_warp",
        (dest, source, bytes, signal, signal_value, signal_op, pe, qp),
        _semantic,
    )


@_extern
def putmem_nbi_signal_block(
    dest, source, bytes, signal, signal_value, signal_op, pe, qp=0, _semantic=None
):
    return _call(
        "putmem_nbi_signal_block",
        (dest, source, bytes, signal, signal_value, signal_op, pe, qp),
        _semantic,
    )


@_extern
def put_size_imm_nbi_thread(dest, value_address, bytes, pe, qp=0, _semantic=None):
    return _call("put_size_imm_nbi_thread", (dest, value_address, bytes, pe, qp), _semantic)


@_extern
def int32_p(dest, value, pe, qp=0, _semantic=None):
    return _call("int32_p", (dest, value, pe, qp), _semantic)


@_extern
def int64_p(dest, value, pe, qp=0, _semantic=None):
    return _call("int64_p", (dest, value, pe, qp), _semantic)


@_extern
def uint32_p(dest, value, pe, qp=0, _semantic=None):
    return _call("uint32_p", (dest, value, pe, qp), _semantic)


@_extern
def uint64_p(dest, value, pe, qp=0, _semantic=None):
    return _call("uint64_p", (dest, value, pe, qp), _semantic)


@_extern
def int_p(dest, value, pe, qp=0, _semantic=None):
    return _call("int_p", (dest, value, pe, qp), _semantic)


@_extern
def float_p(dest, value, pe, qp=0, _semantic=None):
    return _call("float_p", (dest, value, pe, qp), _semantic)


@_extern
def double_p(dest, value, pe, qp=0, _semantic=None):
    return _call("double_p", (dest, value, pe, qp), _semantic)


@_extern
def long_p(dest, value, pe, qp=0, _semantic=None):
    return _call("long_p", (dest, value, pe, qp), _semantic)


@_extern
def longlong_p(dest, value, pe, qp=0, _semantic=None):
    return _call("longlong_p", (dest, value, pe, qp), _semantic)


@_extern
def char_p(dest, value, pe, qp=0, _semantic=None):
    return _call("char_p", (dest, value, pe, qp), _semantic)


@_extern
def short_p(dest, value, pe, qp=0, _semantic=None):
    return _call("short_p", (dest, value, pe, qp), _semantic)


@_extern
def uint_p(dest, value, pe, qp=0, _semantic=None):
    return _call("uint_p", (dest, value, pe, qp), _semantic)


@_extern
def ulong_p(dest, value, pe, qp=0, _semantic=None):
    return _call("ulong_p", (dest, value, pe, qp), _semantic)


@_extern
def ulonglong_p(dest, value, pe, qp=0, _semantic=None):
    return _call("ulonglong_p", (dest, value, pe, qp), _semantic)


@_extern
def uchar_p(dest, value, pe, qp=0, _semantic=None):
    return _call("uchar_p", (dest, value, pe, qp), _semantic)


@_extern
def ushort_p(dest, value, pe, qp=0, _semantic=None):
    return _call("ushort_p", (dest, value, pe, qp), _semantic)


@_extern
def atomic_size_nonfetch_thread(dest, value_address, bytes, op, pe, qp=0, _semantic=None):
    return _call("atomic_size_nonfetch_thread", (dest, value_address, bytes, op, pe, qp), _semantic)


@_extern
def atomic_uint32_nonfetch_thread(dest, value, op, pe, qp=0, _semantic=None):
    return _call("atomic_uint32_nonfetch_thread", (dest, value, op, pe, qp), _semantic)


@_extern
def atomic_uint64_nonfetch_thread(dest, value, op, pe, qp=0, _semantic=None):
    return _call("atomic_uint64_nonfetch_thread", (dest, value, op, pe, qp), _semantic)


@_extern
def atomic_int64_nonfetch_thread(dest, value, op, pe, qp=0, _semantic=None):
    return _call("atomic_int64_nonfetch_thread", (dest, value, op, pe, qp), _semantic)


@_extern
def atomic_uint32_fetch_thread(dest, value, compare, op, pe, qp=0, _semantic=None):
    return _call("atomic_uint32_fetch_thread", (dest, value, compare, op, pe, qp), _semantic)


@_extern
def atomic_uint64_fetch_thread(dest, value, compare, op, pe, qp=0, _semantic=None):
    return _call("atomic_uint64_fetch_thread", (dest, value, compare, op, pe, qp), _semantic)


@_extern
def atomic_int64_fetch_thread(dest, value, compare, op, pe, qp=0, _semantic=None):
    return _call("atomic_int64_fetch_thread", (dest, value, compare, op, pe, qp), _semantic)


@_extern
def uint32_atomic_add_thread(dest, value, pe, qp=0, _semantic=None):
    return _call("uint32_atomic_add_thread", (dest, value, pe, qp), _semantic)


@_extern
def uint32_atomic_fetch_add_thread(dest, value, pe, qp=0, _semantic=None):
    return _call("uint32_atomic_fetch_add_thread", (dest, value, pe, qp), _semantic)


@_extern
def uint64_atomic_add_thread(dest, value, pe, qp=0, _semantic=None):
    return _call("uint64_atomic_add_thread", (dest, value, pe, qp), _semantic)


@_extern
def uint64_atomic_fetch_add_thread(dest, value, pe, qp=0, _semantic=None):
    return _call("uint64_atomic_fetch_add_thread", (dest, value, pe, qp), _semantic)


@_extern
def int64_atomic_add_thread(dest, value, pe, qp=0, _semantic=None):
    return _call("int64_atomic_add_thread", (dest, value, pe, qp), _semantic)


@_extern
def int64_atomic_fetch_add_thread(dest, value, pe, qp=0, _semantic=None):
    return _call("int64_atomic_fetch_add_thread", (dest, value, pe, qp), _semantic)


@_extern
def uint32_wait_until_greater_than(address, value, _semantic=None):
    return _call("uint32_wait_until_greater_than", (address, value), _semantic)


@_extern
def uint32_wait_until_equals(address, value, _semantic=None):
    return _call("uint32_wait_until_equals", (address, value), _semantic)


@_extern
def uint64_wait_until_greater_than(address, value, _semantic=None):
    return _call("uint64_wait_until_greater_than", (address, value), _semantic)


@_extern
def uint64_wait_until_equals(address, value, _semantic=None):
    return _call("uint64_wait_until_equals", (address, value), _semantic)


@_extern
def int32_wait_until_greater_than(address, value, _semantic=None):
    return _call("int32_wait_until_greater_than", (address, value), _semantic)


@_extern
def int32_wait_until_equals(address, value, _semantic=None):
    return _call("int32_wait_until_equals", (address, value), _semantic)


@_extern
def int64_wait_until_greater_than(address, value, _semantic=None):
    return _call("int64_wait_until_greater_than", (address, value), _semantic)


@_extern
def int64_wait_until_equals(address, value, _semantic=None):
    return _call("int64_wait_until_equals", (address, value), _semantic)
