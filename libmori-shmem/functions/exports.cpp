// exports.cpp - every device function as an export of the bitcode; see exports.hpp.
// Generated from libmori-shmem/functions/declarations.py.
// clang-format off: the generator's own layout.
#include "exports.hpp"

extern "C" {
MORI_MODULE_STATE mori_shmem_device_state_v2 mori_shmem_module_state_v2;
}

using mori::device::i8, mori::device::i16, mori::device::i32, mori::device::i64;
using mori::device::u8, mori::device::u16, mori::device::u32, mori::device::u64;

MORI_EXPORT_LOOKUP(i32, my_pe, one_lane, -1, (),
    s.my_pe);
MORI_EXPORT_LOOKUP(i32, n_pes, one_lane, 0, (),
    s.pe_count);
MORI_EXPORT_LOOKUP(u64, ptr_p2p, one_lane, 0, (u64 address, i32 from_pe, i32 pe),
    mori::device::address(api::ptr_p2p(s, to<u8>(address), from_pe, pe)));
MORI_EXPORT_LOOKUP(u64, ptr, one_lane, 0, (u64 address, i32 pe),
    mori::device::address(api::ptr(s, to<u8>(address), pe)));
MORI_EXPORT(i32, quiet_thread, one_lane, ended, (),
    api::quiet(group, s));
MORI_EXPORT(i32, quiet_thread_pe, one_lane, ended, (i32 pe),
    api::quiet_pe(group, s, pe));
MORI_EXPORT(i32, quiet_thread_pe_qp, one_lane, ended, (i32 pe, [[maybe_unused]] i32 qp),
    api::quiet_pe(group, s, pe));
MORI_EXPORT(i32, fence_thread, one_lane, ended, (),
    api::fence(group, s));
MORI_EXPORT(i32, fence_thread_pe, one_lane, ended, (i32 pe),
    api::fence_pe(group, s, pe));
MORI_EXPORT(i32, fence_thread_pe_qp, one_lane, ended, (i32 pe, [[maybe_unused]] i32 qp),
    api::fence_pe(group, s, pe));
MORI_EXPORT(i32, barrier_all_thread, one_lane, ended, (),
    api::barrier_all(group, s));
MORI_EXPORT(i32, barrier_all_block, block, ended, (),
    api::barrier_all(group, s));
MORI_EXPORT(i32, putmem_nbi_thread, one_lane, ended, (u64 dest, u64 source, u64 bytes, i32 pe,
            [[maybe_unused]] i32 qp),
    api::putmem_nbi(group, s, {to<void>(dest), from<void>(source), bytes, pe, qp}));
MORI_EXPORT(i32, put_uint32_nbi_thread, one_lane, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::put_nbi(group, s, api::typed_put_request<u32>{to<u32>(dest), from<u32>(source), count, pe,
        qp}));
MORI_EXPORT(i32, put_uint64_nbi_thread, one_lane, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::put_nbi(group, s, api::typed_put_request<u64>{to<u64>(dest), from<u64>(source), count, pe,
        qp}));
MORI_EXPORT(i32, put_float_nbi_thread, one_lane, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::put_nbi(group, s, api::typed_put_request<float>{to<float>(dest), from<float>(source),
        count, pe, qp}));
MORI_EXPORT(i32, put_double_nbi_thread, one_lane, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::put_nbi(group, s, api::typed_put_request<double>{to<double>(dest), from<double>(source),
        count, pe, qp}));
MORI_EXPORT(i32, putmem_nbi_warp, wave, ended, (u64 dest, u64 source, u64 bytes, i32 pe,
            [[maybe_unused]] i32 qp),
    api::putmem_nbi(group, s, {to<void>(dest), from<void>(source), bytes, pe, qp}));
MORI_EXPORT(i32, put_uint32_nbi_warp, wave, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::put_nbi(group, s, api::typed_put_request<u32>{to<u32>(dest), from<u32>(source), count, pe,
        qp}));
MORI_EXPORT(i32, put_uint64_nbi_warp, wave, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::put_nbi(group, s, api::typed_put_request<u64>{to<u64>(dest), from<u64>(source), count, pe,
        qp}));
MORI_EXPORT(i32, put_float_nbi_warp, wave, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::put_nbi(group, s, api::typed_put_request<float>{to<float>(dest), from<float>(source),
        count, pe, qp}));
MORI_EXPORT(i32, put_double_nbi_warp, wave, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::put_nbi(group, s, api::typed_put_request<double>{to<double>(dest), from<double>(source),
        count, pe, qp}));
MORI_EXPORT(i32, putmem_nbi_block, block, ended, (u64 dest, u64 source, u64 bytes, i32 pe,
            [[maybe_unused]] i32 qp),
    api::putmem_nbi(group, s, {to<void>(dest), from<void>(source), bytes, pe, qp}));
MORI_EXPORT(i32, put_uint32_nbi_block, block, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::put_nbi(group, s, api::typed_put_request<u32>{to<u32>(dest), from<u32>(source), count, pe,
        qp}));
MORI_EXPORT(i32, put_uint64_nbi_block, block, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::put_nbi(group, s, api::typed_put_request<u64>{to<u64>(dest), from<u64>(source), count, pe,
        qp}));
MORI_EXPORT(i32, put_float_nbi_block, block, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::put_nbi(group, s, api::typed_put_request<float>{to<float>(dest), from<float>(source),
        count, pe, qp}));
MORI_EXPORT(i32, put_double_nbi_block, block, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::put_nbi(group, s, api::typed_put_request<double>{to<double>(dest), from<double>(source),
        count, pe, qp}));
MORI_EXPORT(i32, getmem_nbi_thread, one_lane, ended, (u64 dest, u64 source, u64 bytes, i32 pe,
            [[maybe_unused]] i32 qp),
    api::getmem_nbi(group, s, {to<void>(dest), from<void>(source), bytes, pe, qp}));
MORI_EXPORT(i32, get_uint32_nbi_thread, one_lane, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get_nbi(group, s, api::typed_get_request<u32>{to<u32>(dest), from<u32>(source), count, pe,
        qp}));
MORI_EXPORT(i32, get_uint64_nbi_thread, one_lane, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get_nbi(group, s, api::typed_get_request<u64>{to<u64>(dest), from<u64>(source), count, pe,
        qp}));
MORI_EXPORT(i32, get_float_nbi_thread, one_lane, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get_nbi(group, s, api::typed_get_request<float>{to<float>(dest), from<float>(source),
        count, pe, qp}));
MORI_EXPORT(i32, get_double_nbi_thread, one_lane, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get_nbi(group, s, api::typed_get_request<double>{to<double>(dest), from<double>(source),
        count, pe, qp}));
MORI_EXPORT(i32, getmem_nbi_warp, wave, ended, (u64 dest, u64 source, u64 bytes, i32 pe,
            [[maybe_unused]] i32 qp),
    api::getmem_nbi(group, s, {to<void>(dest), from<void>(source), bytes, pe, qp}));
MORI_EXPORT(i32, get_uint32_nbi_warp, wave, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get_nbi(group, s, api::typed_get_request<u32>{to<u32>(dest), from<u32>(source), count, pe,
        qp}));
MORI_EXPORT(i32, get_uint64_nbi_warp, wave, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get_nbi(group, s, api::typed_get_request<u64>{to<u64>(dest), from<u64>(source), count, pe,
        qp}));
MORI_EXPORT(i32, get_float_nbi_warp, wave, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get_nbi(group, s, api::typed_get_request<float>{to<float>(dest), from<float>(source),
        count, pe, qp}));
MORI_EXPORT(i32, get_double_nbi_warp, wave, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get_nbi(group, s, api::typed_get_request<double>{to<double>(dest), from<double>(source),
        count, pe, qp}));
MORI_EXPORT(i32, getmem_nbi_block, block, ended, (u64 dest, u64 source, u64 bytes, i32 pe,
            [[maybe_unused]] i32 qp),
    api::getmem_nbi(group, s, {to<void>(dest), from<void>(source), bytes, pe, qp}));
MORI_EXPORT(i32, get_uint32_nbi_block, block, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get_nbi(group, s, api::typed_get_request<u32>{to<u32>(dest), from<u32>(source), count, pe,
        qp}));
MORI_EXPORT(i32, get_uint64_nbi_block, block, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get_nbi(group, s, api::typed_get_request<u64>{to<u64>(dest), from<u64>(source), count, pe,
        qp}));
MORI_EXPORT(i32, get_float_nbi_block, block, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get_nbi(group, s, api::typed_get_request<float>{to<float>(dest), from<float>(source),
        count, pe, qp}));
MORI_EXPORT(i32, get_double_nbi_block, block, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get_nbi(group, s, api::typed_get_request<double>{to<double>(dest), from<double>(source),
        count, pe, qp}));
MORI_EXPORT(i32, getmem_thread, one_lane, ended, (u64 dest, u64 source, u64 bytes, i32 pe,
            [[maybe_unused]] i32 qp),
    api::getmem(group, s, {to<void>(dest), from<void>(source), bytes, pe, qp}));
MORI_EXPORT(i32, get_uint32_thread, one_lane, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get(group, s, api::typed_get_request<u32>{to<u32>(dest), from<u32>(source), count, pe,
        qp}));
MORI_EXPORT(i32, get_uint64_thread, one_lane, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get(group, s, api::typed_get_request<u64>{to<u64>(dest), from<u64>(source), count, pe,
        qp}));
MORI_EXPORT(i32, get_float_thread, one_lane, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get(group, s, api::typed_get_request<float>{to<float>(dest), from<float>(source), count,
        pe, qp}));
MORI_EXPORT(i32, get_double_thread, one_lane, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get(group, s, api::typed_get_request<double>{to<double>(dest), from<double>(source), count,
        pe, qp}));
MORI_EXPORT(i32, getmem_warp, wave, ended, (u64 dest, u64 source, u64 bytes, i32 pe,
            [[maybe_unused]] i32 qp),
    api::getmem(group, s, {to<void>(dest), from<void>(source), bytes, pe, qp}));
MORI_EXPORT(i32, get_uint32_warp, wave, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get(group, s, api::typed_get_request<u32>{to<u32>(dest), from<u32>(source), count, pe,
        qp}));
MORI_EXPORT(i32, get_uint64_warp, wave, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get(group, s, api::typed_get_request<u64>{to<u64>(dest), from<u64>(source), count, pe,
        qp}));
MORI_EXPORT(i32, get_float_warp, wave, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get(group, s, api::typed_get_request<float>{to<float>(dest), from<float>(source), count,
        pe, qp}));
MORI_EXPORT(i32, get_double_warp, wave, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get(group, s, api::typed_get_request<double>{to<double>(dest), from<double>(source), count,
        pe, qp}));
MORI_EXPORT(i32, getmem_block, block, ended, (u64 dest, u64 source, u64 bytes, i32 pe,
            [[maybe_unused]] i32 qp),
    api::getmem(group, s, {to<void>(dest), from<void>(source), bytes, pe, qp}));
MORI_EXPORT(i32, get_uint32_block, block, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get(group, s, api::typed_get_request<u32>{to<u32>(dest), from<u32>(source), count, pe,
        qp}));
MORI_EXPORT(i32, get_uint64_block, block, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get(group, s, api::typed_get_request<u64>{to<u64>(dest), from<u64>(source), count, pe,
        qp}));
MORI_EXPORT(i32, get_float_block, block, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get(group, s, api::typed_get_request<float>{to<float>(dest), from<float>(source), count,
        pe, qp}));
MORI_EXPORT(i32, get_double_block, block, ended, (u64 dest, u64 source, u64 count, i32 pe,
            [[maybe_unused]] i32 qp),
    api::get(group, s, api::typed_get_request<double>{to<double>(dest), from<double>(source), count,
        pe, qp}));
MORI_EXPORT(i32, putmem_nbi_signal_thread, one_lane, ended, (u64 dest, u64 source, u64 bytes, u64
            signal, u64 signal_value, i32 signal_op, i32 pe, [[maybe_unused]] i32 qp),
    api::putmem_signal_nbi(group, s, {to<void>(dest), from<void>(source), bytes, pe, qp},
        {to<u64>(signal), signal_value, signal_op}));
MORI_EXPORT(i32, putmem_nbi_signal_warp, wave, ended, (u64 dest, u64 source, u64 bytes, u64 signal,
            u64 signal_value, i32 signal_op, i32 pe, [[maybe_unused]] i32 qp),
    api::putmem_signal_nbi(group, s, {to<void>(dest), from<void>(source), bytes, pe, qp},
        {to<u64>(signal), signal_value, signal_op}));
MORI_EXPORT(i32, putmem_nbi_signal_block, block, ended, (u64 dest, u64 source, u64 bytes, u64
            signal, u64 signal_value, i32 signal_op, i32 pe, [[maybe_unused]] i32 qp),
    api::putmem_signal_nbi(group, s, {to<void>(dest), from<void>(source), bytes, pe, qp},
        {to<u64>(signal), signal_value, signal_op}));
MORI_EXPORT(i32, put_size_imm_nbi_thread, one_lane, ended, (u64 dest, u64 value_address, u64 bytes,
            i32 pe, [[maybe_unused]] i32 qp),
    api::put_size_imm_nbi(group, s, {to<void>(dest), anywhere<void>(value_address), bytes, pe,
        qp}));
MORI_EXPORT(i32, int32_p, one_lane, ended, (u64 dest, i32 value, i32 pe, [[maybe_unused]] i32 qp),
    put_value<i32>(group, s, dest, value, pe));
MORI_EXPORT(i32, int64_p, one_lane, ended, (u64 dest, i64 value, i32 pe, [[maybe_unused]] i32 qp),
    put_value<i64>(group, s, dest, value, pe));
MORI_EXPORT(i32, uint32_p, one_lane, ended, (u64 dest, u32 value, i32 pe, [[maybe_unused]] i32 qp),
    put_value<u32>(group, s, dest, value, pe));
MORI_EXPORT(i32, uint64_p, one_lane, ended, (u64 dest, u64 value, i32 pe, [[maybe_unused]] i32 qp),
    put_value<u64>(group, s, dest, value, pe));
MORI_EXPORT(i32, int_p, one_lane, ended, (u64 dest, i32 value, i32 pe, [[maybe_unused]] i32 qp),
    put_value<i32>(group, s, dest, value, pe));
MORI_EXPORT(i32, float_p, one_lane, ended, (u64 dest, float value, i32 pe, [[maybe_unused]] i32 qp),
    put_value<float>(group, s, dest, value, pe));
MORI_EXPORT(i32, double_p, one_lane, ended, (u64 dest, double value, i32 pe, [[maybe_unused]] i32
            qp),
    put_value<double>(group, s, dest, value, pe));
MORI_EXPORT(i32, long_p, one_lane, ended, (u64 dest, i64 value, i32 pe, [[maybe_unused]] i32 qp),
    put_value<i64>(group, s, dest, value, pe));
MORI_EXPORT(i32, longlong_p, one_lane, ended, (u64 dest, i64 value, i32 pe, [[maybe_unused]] i32
            qp),
    put_value<i64>(group, s, dest, value, pe));
MORI_EXPORT(i32, char_p, one_lane, ended, (u64 dest, i8 value, i32 pe, [[maybe_unused]] i32 qp),
    put_value<i8>(group, s, dest, value, pe));
MORI_EXPORT(i32, short_p, one_lane, ended, (u64 dest, i16 value, i32 pe, [[maybe_unused]] i32 qp),
    put_value<i16>(group, s, dest, value, pe));
MORI_EXPORT(i32, uint_p, one_lane, ended, (u64 dest, u32 value, i32 pe, [[maybe_unused]] i32 qp),
    put_value<u32>(group, s, dest, value, pe));
MORI_EXPORT(i32, ulong_p, one_lane, ended, (u64 dest, u64 value, i32 pe, [[maybe_unused]] i32 qp),
    put_value<u64>(group, s, dest, value, pe));
MORI_EXPORT(i32, ulonglong_p, one_lane, ended, (u64 dest, u64 value, i32 pe, [[maybe_unused]] i32
            qp),
    put_value<u64>(group, s, dest, value, pe));
MORI_EXPORT(i32, uchar_p, one_lane, ended, (u64 dest, u8 value, i32 pe, [[maybe_unused]] i32 qp),
    put_value<u8>(group, s, dest, value, pe));
MORI_EXPORT(i32, ushort_p, one_lane, ended, (u64 dest, u16 value, i32 pe, [[maybe_unused]] i32 qp),
    put_value<u16>(group, s, dest, value, pe));
MORI_EXPORT(i32, atomic_size_nonfetch_thread, one_lane, ended, (u64 dest, u64 value_address, u64
            bytes, i32 op, i32 pe, [[maybe_unused]] i32 qp),
    atomic_of_size(group, s, dest, value_address, bytes, op, pe));
MORI_EXPORT(i32, atomic_uint32_nonfetch_thread, one_lane, ended, (u64 dest, u32 value, i32 op, i32
            pe, [[maybe_unused]] i32 qp),
    api::atomic_nonfetch(group, s, api::atomic_request<u32>{to<u32>(dest), value, op, pe, 0, qp}));
MORI_EXPORT(i32, atomic_uint64_nonfetch_thread, one_lane, ended, (u64 dest, u64 value, i32 op, i32
            pe, [[maybe_unused]] i32 qp),
    api::atomic_nonfetch(group, s, api::atomic_request<u64>{to<u64>(dest), value, op, pe, 0, qp}));
MORI_EXPORT(i32, atomic_int64_nonfetch_thread, one_lane, ended, (u64 dest, i64 value, i32 op, i32
            pe, [[maybe_unused]] i32 qp),
    api::atomic_nonfetch(group, s, api::atomic_request<i64>{to<i64>(dest), value, op, pe, 0, qp}));
MORI_EXPORT(u32, atomic_uint32_fetch_thread, one_lane, 0, (u64 dest, u32 value, u32 compare, i32 op,
            i32 pe, [[maybe_unused]] i32 qp),
    api::atomic_fetch(group, s, api::atomic_request<u32>{to<u32>(dest), value, op, pe, compare,
        qp}).before);
MORI_EXPORT(u64, atomic_uint64_fetch_thread, one_lane, 0, (u64 dest, u64 value, u64 compare, i32 op,
            i32 pe, [[maybe_unused]] i32 qp),
    api::atomic_fetch(group, s, api::atomic_request<u64>{to<u64>(dest), value, op, pe, compare,
        qp}).before);
MORI_EXPORT(i64, atomic_int64_fetch_thread, one_lane, 0, (u64 dest, i64 value, i64 compare, i32 op,
            i32 pe, [[maybe_unused]] i32 qp),
    api::atomic_fetch(group, s, api::atomic_request<i64>{to<i64>(dest), value, op, pe, compare,
        qp}).before);
MORI_EXPORT(i32, uint32_atomic_add_thread, one_lane, ended, (u64 dest, u32 value, i32 pe,
            [[maybe_unused]] i32 qp),
    api::atomic_add(group, s, to<u32>(dest), value, pe));
MORI_EXPORT(u32, uint32_atomic_fetch_add_thread, one_lane, 0, (u64 dest, u32 value, i32 pe,
            [[maybe_unused]] i32 qp),
    api::atomic_fetch_add(group, s, to<u32>(dest), value, pe));
MORI_EXPORT(i32, uint64_atomic_add_thread, one_lane, ended, (u64 dest, u64 value, i32 pe,
            [[maybe_unused]] i32 qp),
    api::atomic_add(group, s, to<u64>(dest), value, pe));
MORI_EXPORT(u64, uint64_atomic_fetch_add_thread, one_lane, 0, (u64 dest, u64 value, i32 pe,
            [[maybe_unused]] i32 qp),
    api::atomic_fetch_add(group, s, to<u64>(dest), value, pe));
MORI_EXPORT(i32, int64_atomic_add_thread, one_lane, ended, (u64 dest, i64 value, i32 pe,
            [[maybe_unused]] i32 qp),
    api::atomic_add(group, s, to<i64>(dest), value, pe));
MORI_EXPORT(i64, int64_atomic_fetch_add_thread, one_lane, 0, (u64 dest, i64 value, i32 pe,
            [[maybe_unused]] i32 qp),
    api::atomic_fetch_add(group, s, to<i64>(dest), value, pe));
MORI_EXPORT(u32, uint32_wait_until_greater_than, one_lane, value, (u64 address, u32 value),
    wait_until_greater(group, s, from<u32>(address), value));
MORI_EXPORT(i32, uint32_wait_until_equals, one_lane, ended, (u64 address, u32 value),
    api::wait_until_equals(group, s, from<u32>(address), value));
MORI_EXPORT(u64, uint64_wait_until_greater_than, one_lane, value, (u64 address, u64 value),
    wait_until_greater(group, s, from<u64>(address), value));
MORI_EXPORT(i32, uint64_wait_until_equals, one_lane, ended, (u64 address, u64 value),
    api::wait_until_equals(group, s, from<u64>(address), value));
MORI_EXPORT(i32, int32_wait_until_greater_than, one_lane, value, (u64 address, i32 value),
    wait_until_greater(group, s, from<i32>(address), value));
MORI_EXPORT(i32, int32_wait_until_equals, one_lane, ended, (u64 address, i32 value),
    api::wait_until_equals(group, s, from<i32>(address), value));
MORI_EXPORT(i64, int64_wait_until_greater_than, one_lane, value, (u64 address, i64 value),
    wait_until_greater(group, s, from<i64>(address), value));
MORI_EXPORT(i32, int64_wait_until_equals, one_lane, ended, (u64 address, i64 value),
    api::wait_until_equals(group, s, from<i64>(address), value));
