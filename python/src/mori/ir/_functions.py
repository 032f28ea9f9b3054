"""The device functions: symbols, types and meaning.

Generated from libmori-shmem/functions/declarations.py.

`symbol` is executed by the lanes of its group; `program_symbol` is called by all lanes of a block
and acts once, which is what a statement of a Triton program does.
"""

from __future__ import annotations

from typing import Any

SIGNAL_SET = 9
SIGNAL_ADD = 10

# NAME GROUP RESULT ARGUMENTS: MEANING, where group "-" marks what only looks something up.
_LIST = """\
my_pe - int32: Number of this PE; -1 without a context.
n_pes - int32: Number of PEs; 0 without a context.
ptr_p2p - uint64 uint64/address int32/from_pe int32/pe: Where this PE can load and store the \
memory of `pe` that corresponds to an address of `from_pe`; 0 if that is outside the heap, or not \
mapped here.
ptr - uint64 uint64/address int32/pe: As ptr_p2p, from an address of this PE.
quiet_thread thread int32: Returns when all puts and atomics issued before are complete at their \
targets.
quiet_thread_pe thread int32 int32/pe: Returns when all puts and atomics issued before are \
complete at their targets: those to one PE.
quiet_thread_pe_qp thread int32 int32/pe int32/qp: Returns when all puts and atomics issued before \
are complete at their targets: those of one queue pair to one PE.
fence_thread thread int32: Orders all puts and atomics issued before ahead of later ones to the \
same PE.
fence_thread_pe thread int32 int32/pe: Orders all puts and atomics issued before ahead of later \
ones to the same PE: those to one PE.
fence_thread_pe_qp thread int32 int32/pe int32/qp: Orders all puts and atomics issued before ahead \
of later ones to the same PE: those of one queue pair to one PE.
barrier_all_thread thread int32: All PEs wait for all PEs; puts issued before are complete at \
their targets. One caller for each PE at a time.
barrier_all_block block int32: All PEs wait for all PEs; puts issued before are complete at their \
targets. One caller for each PE at a time.
putmem_nbi_thread thread int32 uint64/dest uint64/source uint64/bytes int32/pe int32/qp: Puts; the \
source may be reused, and the data is complete at its target, after quiet.
put_uint32_nbi_thread thread int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Puts; \
the source may be reused, and the data is complete at its target, after quiet, counted in elements \
of uint32.
put_uint64_nbi_thread thread int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Puts; \
the source may be reused, and the data is complete at its target, after quiet, counted in elements \
of uint64.
put_float_nbi_thread thread int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Puts; \
the source may be reused, and the data is complete at its target, after quiet, counted in elements \
of float.
put_double_nbi_thread thread int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Puts; \
the source may be reused, and the data is complete at its target, after quiet, counted in elements \
of double.
putmem_nbi_warp warp int32 uint64/dest uint64/source uint64/bytes int32/pe int32/qp: Puts; the \
source may be reused, and the data is complete at its target, after quiet.
put_uint32_nbi_warp warp int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Puts; the \
source may be reused, and the data is complete at its target, after quiet, counted in elements of \
uint32.
put_uint64_nbi_warp warp int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Puts; the \
source may be reused, and the data is complete at its target, after quiet, counted in elements of \
uint64.
put_float_nbi_warp warp int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Puts; the \
source may be reused, and the data is complete at its target, after quiet, counted in elements of \
float.
put_double_nbi_warp warp int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Puts; the \
source may be reused, and the data is complete at its target, after quiet, counted in elements of \
double.
putmem_nbi_block block int32 uint64/dest uint64/source uint64/bytes int32/pe int32/qp: Puts; the \
source may be reused, and the data is complete at its target, after quiet.
put_uint32_nbi_block block int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Puts; \
the source may be reused, and the data is complete at its target, after quiet, counted in elements \
of uint32.
put_uint64_nbi_block block int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Puts; \
the source may be reused, and the data is complete at its target, after quiet, counted in elements \
of uint64.
put_float_nbi_block block int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Puts; \
the source may be reused, and the data is complete at its target, after quiet, counted in elements \
of float.
put_double_nbi_block block int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Puts; \
the source may be reused, and the data is complete at its target, after quiet, counted in elements \
of double.
getmem_nbi_thread thread int32 uint64/dest uint64/source uint64/bytes int32/pe int32/qp: Gets; the \
data is there after quiet.
get_uint32_nbi_thread thread int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; \
the data is there after quiet, counted in elements of uint32.
get_uint64_nbi_thread thread int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; \
the data is there after quiet, counted in elements of uint64.
get_float_nbi_thread thread int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; \
the data is there after quiet, counted in elements of float.
get_double_nbi_thread thread int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; \
the data is there after quiet, counted in elements of double.
getmem_nbi_warp warp int32 uint64/dest uint64/source uint64/bytes int32/pe int32/qp: Gets; the \
data is there after quiet.
get_uint32_nbi_warp warp int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; the \
data is there after quiet, counted in elements of uint32.
get_uint64_nbi_warp warp int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; the \
data is there after quiet, counted in elements of uint64.
get_float_nbi_warp warp int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; the \
data is there after quiet, counted in elements of float.
get_double_nbi_warp warp int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; the \
data is there after quiet, counted in elements of double.
getmem_nbi_block block int32 uint64/dest uint64/source uint64/bytes int32/pe int32/qp: Gets; the \
data is there after quiet.
get_uint32_nbi_block block int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; \
the data is there after quiet, counted in elements of uint32.
get_uint64_nbi_block block int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; \
the data is there after quiet, counted in elements of uint64.
get_float_nbi_block block int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; \
the data is there after quiet, counted in elements of float.
get_double_nbi_block block int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; \
the data is there after quiet, counted in elements of double.
getmem_thread thread int32 uint64/dest uint64/source uint64/bytes int32/pe int32/qp: Gets; the \
data is there when the call returns.
get_uint32_thread thread int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; the \
data is there when the call returns, counted in elements of uint32.
get_uint64_thread thread int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; the \
data is there when the call returns, counted in elements of uint64.
get_float_thread thread int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; the \
data is there when the call returns, counted in elements of float.
get_double_thread thread int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; the \
data is there when the call returns, counted in elements of double.
getmem_warp warp int32 uint64/dest uint64/source uint64/bytes int32/pe int32/qp: Gets; the data is \
there when the call returns.
get_uint32_warp warp int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; the \
data is there when the call returns, counted in elements of uint32.
get_uint64_warp warp int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; the \
data is there when the call returns, counted in elements of uint64.
get_float_warp warp int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; the data \
is there when the call returns, counted in elements of float.
get_double_warp warp int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; the \
data is there when the call returns, counted in elements of double.
getmem_block block int32 uint64/dest uint64/source uint64/bytes int32/pe int32/qp: Gets; the data \
is there when the call returns.
get_uint32_block block int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; the \
data is there when the call returns, counted in elements of uint32.
get_uint64_block block int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; the \
data is there when the call returns, counted in elements of uint64.
get_float_block block int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; the \
data is there when the call returns, counted in elements of float.
get_double_block block int32 uint64/dest uint64/source uint64/count int32/pe int32/qp: Gets; the \
data is there when the call returns, counted in elements of double.
putmem_nbi_signal_thread thread int32 uint64/dest uint64/source uint64/bytes uint64/signal \
uint64/signal_value int32/signal_op int32/pe int32/qp: Puts, then changes the signal: whoever sees \
the signal by a wait sees the data. 0 bytes send the signal alone.
putmem_nbi_signal_warp warp int32 uint64/dest uint64/source uint64/bytes uint64/signal \
uint64/signal_value int32/signal_op int32/pe int32/qp: Puts, then changes the signal: whoever sees \
the signal by a wait sees the data. 0 bytes send the signal alone.
putmem_nbi_signal_block block int32 uint64/dest uint64/source uint64/bytes uint64/signal \
uint64/signal_value int32/signal_op int32/pe int32/qp: Puts, then changes the signal: whoever sees \
the signal by a wait sees the data. 0 bytes send the signal alone.
put_size_imm_nbi_thread thread int32 uint64/dest uint64/value_address uint64/bytes int32/pe \
int32/qp: Puts a value of 1, 2, 4, 8 or 16 bytes; other sizes are a fault.
int32_p thread int32 uint64/dest int32/value int32/pe int32/qp: Puts one value in one store, \
aligned to its size.
int64_p thread int32 uint64/dest int64/value int32/pe int32/qp: Puts one value in one store, \
aligned to its size.
uint32_p thread int32 uint64/dest uint32/value int32/pe int32/qp: Puts one value in one store, \
aligned to its size.
uint64_p thread int32 uint64/dest uint64/value int32/pe int32/qp: Puts one value in one store, \
aligned to its size.
int_p thread int32 uint64/dest int32/value int32/pe int32/qp: Puts one value in one store, aligned \
to its size.
float_p thread int32 uint64/dest float32/value int32/pe int32/qp: Puts one value in one store, \
aligned to its size.
double_p thread int32 uint64/dest float64/value int32/pe int32/qp: Puts one value in one store, \
aligned to its size.
long_p thread int32 uint64/dest int64/value int32/pe int32/qp: Puts one value in one store, \
aligned to its size.
longlong_p thread int32 uint64/dest int64/value int32/pe int32/qp: Puts one value in one store, \
aligned to its size.
char_p thread int32 uint64/dest int8/value int32/pe int32/qp: Puts one value in one store, aligned \
to its size.
short_p thread int32 uint64/dest int16/value int32/pe int32/qp: Puts one value in one store, \
aligned to its size.
uint_p thread int32 uint64/dest uint32/value int32/pe int32/qp: Puts one value in one store, \
aligned to its size.
ulong_p thread int32 uint64/dest uint64/value int32/pe int32/qp: Puts one value in one store, \
aligned to its size.
ulonglong_p thread int32 uint64/dest uint64/value int32/pe int32/qp: Puts one value in one store, \
aligned to its size.
uchar_p thread int32 uint64/dest uint8/value int32/pe int32/qp: Puts one value in one store, \
aligned to its size.
ushort_p thread int32 uint64/dest uint16/value int32/pe int32/qp: Puts one value in one store, \
aligned to its size.
atomic_size_nonfetch_thread thread int32 uint64/dest uint64/value_address uint64/bytes int32/op \
int32/pe int32/qp: An atomic on a word of 4 or 8 bytes whose operand lies in memory; other sizes \
are a fault.
atomic_uint32_nonfetch_thread thread int32 uint64/dest uint32/value int32/op int32/pe int32/qp: An \
atomic on a word of uint32.
atomic_uint64_nonfetch_thread thread int32 uint64/dest uint64/value int32/op int32/pe int32/qp: An \
atomic on a word of uint64.
atomic_int64_nonfetch_thread thread int32 uint64/dest int64/value int32/op int32/pe int32/qp: An \
atomic on a word of int64.
atomic_uint32_fetch_thread thread uint32 uint64/dest uint32/value uint32/compare int32/op int32/pe \
int32/qp: An atomic on a word of uint32; gives the value before, 0 if nothing was done.
atomic_uint64_fetch_thread thread uint64 uint64/dest uint64/value uint64/compare int32/op int32/pe \
int32/qp: An atomic on a word of uint64; gives the value before, 0 if nothing was done.
atomic_int64_fetch_thread thread int64 uint64/dest int64/value int64/compare int32/op int32/pe \
int32/qp: An atomic on a word of int64; gives the value before, 0 if nothing was done.
uint32_atomic_add_thread thread int32 uint64/dest uint32/value int32/pe int32/qp: Adds to a word \
of uint32.
uint32_atomic_fetch_add_thread thread uint32 uint64/dest uint32/value int32/pe int32/qp: Adds to a \
word of uint32 and gives the value before, 0 if nothing was done.
uint64_atomic_add_thread thread int32 uint64/dest uint64/value int32/pe int32/qp: Adds to a word \
of uint64.
uint64_atomic_fetch_add_thread thread uint64 uint64/dest uint64/value int32/pe int32/qp: Adds to a \
word of uint64 and gives the value before, 0 if nothing was done.
int64_atomic_add_thread thread int32 uint64/dest int64/value int32/pe int32/qp: Adds to a word of \
int64.
int64_atomic_fetch_add_thread thread int64 uint64/dest int64/value int32/pe int32/qp: Adds to a \
word of int64 and gives the value before, 0 if nothing was done.
uint32_wait_until_greater_than thread uint32 uint64/address uint32/value: Waits until the word is \
greater than the value and gives what was seen: a value that is not greater if the context has \
ended or the deadline passed.
uint32_wait_until_equals thread int32 uint64/address uint32/value: Waits until the word equals the \
value; not 0 if the context has ended or the deadline passed.
uint64_wait_until_greater_than thread uint64 uint64/address uint64/value: Waits until the word is \
greater than the value and gives what was seen: a value that is not greater if the context has \
ended or the deadline passed.
uint64_wait_until_equals thread int32 uint64/address uint64/value: Waits until the word equals the \
value; not 0 if the context has ended or the deadline passed.
int32_wait_until_greater_than thread int32 uint64/address int32/value: Waits until the word is \
greater than the value and gives what was seen: a value that is not greater if the context has \
ended or the deadline passed.
int32_wait_until_equals thread int32 uint64/address int32/value: Waits until the word equals the \
value; not 0 if the context has ended or the deadline passed.
int64_wait_until_greater_than thread int64 uint64/address int64/value: Waits until the word is \
greater than the value and gives what was seen: a value that is not greater if the context has \
ended or the deadline passed.
int64_wait_until_equals thread int32 uint64/address int64/value: Waits until the word equals the \
value; not 0 if the context has ended or the deadline passed.
"""


def _entry(line: str) -> tuple[str, dict[str, Any]]:
    declaration, meaning = line.split(": ", 1)
    name, group, result, *arguments = declaration.split()
    pairs = [argument.split("/") for argument in arguments]
    symbol, pure = f"mori_shmem_{name}", group == "-"
    entry: dict[str, Any] = {
        "symbol": symbol,
        "args": [kind for kind, _ in pairs],
        "ret": result,
        "arg_names": [argument for _, argument in pairs],
        "scope": "thread" if pure else group,
        "program_symbol": symbol if pure else f"mori_shmem_program_{name}",
        "doc": meaning,
    }
    if pure:
        entry["pure"] = True
    return name, entry


# 98 entries: "symbol", "args", "ret", "arg_names", "scope" ("thread", "warp" or "block"),
# "program_symbol", "doc", and "pure": True for those that only look something up.
MORI_DEVICE_FUNCTIONS: dict[str, dict[str, Any]] = dict(map(_entry, _LIST.splitlines()))
