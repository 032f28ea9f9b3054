#!/usr/bin/env python3
"""Tests of the emulator itself: runs the kernels of probe_kernels.cpp and compares with values that
plain Python computes. Where an instruction is ours, both follow the same reading of the manual: a
pass shows that the pieces fit together, not that a GPU does the same.

usage: probe_test.py EMULATOR_LIBRARY OBJECT [PROBE ...]
"""

import ctypes
import math
import pathlib
import random
import struct
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import formats
from code_object import CodeObject
from emulator.loader import Launch, LoadedObject, Memory
from emulator.machine import FaultError, Machine, load_library

MASK = 0xFFFFFFFF
PROBES = {}
SEEDS = range(8)
KINDS = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "f32": "f", "f64": "d"}


def probe(function):
    PROBES[function.__name__] = function
    return function


class Array:
    """Typed memory that a kernel works on; an unmapped page follows it."""

    def __init__(self, kind, values):
        values = [0] * values if isinstance(values, int) else list(values)
        self.format = f"<{len(values)}{KINDS[kind]}"
        data = struct.pack(self.format, *values)
        self.memory = Memory(-(-len(data) // 16) * 16, guarded=True)
        ctypes.memmove(self.memory.address, data, len(data))

    def __getitem__(self, index):
        return struct.unpack_from(self.format, self.memory.bytes())[index]


def argument(value):
    """An int is 32 bits, an array its address."""
    if isinstance(value, int):
        return struct.pack("<I", value & MASK)
    return struct.pack("<Q", value.memory.address)


class Bench:
    """What all probes use: the object, the library, random numbers."""

    def __init__(self, library, path):
        self.library = load_library(library)
        self.loaded = LoadedObject(CodeObject.read(path))
        self.random = random.Random(7)
        self.fnuz = self.loaded.file.architecture != "gfx950"

    def run(self, kernel, grid, block, *arguments, dynamic_lds=0, **machine):
        self.run_all([(kernel, grid, block, arguments)], dynamic_lds, **machine)

    def run_all(self, launches, dynamic_lds=0, **machine):
        everything = Machine(self.library, **machine)
        for kernel, grid, block, arguments in launches:
            values = [argument(each) for each in arguments]
            everything.add(Launch(self.loaded, kernel, grid, block, values, dynamic_lds))
        everything.run()

    def words(self, count, width=32):
        return [self.random.getrandbits(width) for _ in range(count)]

    def floats(self, count, bound):
        return [self.random.uniform(-bound, bound) for _ in range(count)]


def single(value):
    """The nearest float32."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bits_of(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def float_of(word):
    return struct.unpack("<f", struct.pack("<I", word & MASK))[0]


def same(got, wanted, what="values"):
    got, wanted = list(got), list(wanted)
    assert len(got) == len(wanted), f"{what}: {len(got)} instead of {len(wanted)}"
    wrong = [i for i in range(len(wanted)) if got[i] != wanted[i]]
    if wrong:
        i = wrong[0]
        raise AssertionError(
            f"{what}: {len(wrong)} of {len(wanted)} differ, [{i}] is {got[i]!r}, not {wanted[i]!r}"
        )


# --- arithmetic -----------------------------------------------------------------------------------


@probe
def add(b):
    n = 1000
    x, y, out = Array("f32", b.floats(n, 9)), Array("f32", b.floats(n, 9)), Array("f32", n)
    b.run("add", 4, 256, x, y, out, n)
    same(out[:], [single(p + q) for p, q in zip(x[:], y[:], strict=True)])


@probe
def places_in_three_dimensions(b):
    out = Array("u32", 12 * 60)
    b.run("places_in_three_dimensions", (3, 2, 2), (5, 4, 3), out)
    places = ((g, z, y, x) for g in range(12) for z in range(3) for y in range(4) for x in range(5))
    same(out[:], [g << 16 | z << 12 | y << 8 | x for g, z, y, x in places])


@probe
def divergence(b):
    out, wanted = Array("u32", 512), []
    b.run("divergence", 2, 256, out)
    for g in range(512):
        n, steps = g + 1, 0
        while n != 1:
            n, steps = (3 * n + 1 if n & 1 else n >> 1), steps + 1
        wanted.append(
            [steps + 1000, steps * 3, steps ^ 0x55, ~steps & MASK, steps * steps & MASK][g % 5]
        )
    same(out[:], wanted)


@probe
def division(b):
    n = 128
    x, y = Array("u32", b.words(n)), Array("u64", b.words(n, 64))
    out, out64 = Array("u32", n), Array("u64", n)
    b.run("division", 1, n, x, y, out, out64)
    same(out[:], [v // (g + 3) * 1000 + v % (g + 3) & MASK for g, v in enumerate(x[:])], "32 bits")
    wanted = [v // (g * 12345 + 7) + v % (g * 12345 + 7) for g, v in enumerate(y[:])]
    same(out64[:], wanted, "64 bits")


FLOAT_OPERATIONS = [
    ("fused multiply-add", lambda x, y: x * y + 1, 1e-5),
    ("division", lambda x, y: x / y, 0),
    ("square root", lambda x, y: math.sqrt(abs(x)), 0),
    ("reciprocal", lambda x, y: 1 / y, 1e-6),
    ("maximum", max, 0),
    ("to int", lambda x, y: float(int(single(x * 100))), 0),
    ("exp2", lambda x, y: 2 ** (x * 0.01), 1e-5),
    ("to integral", lambda x, y: float(round(x)), 0),
    ("doubles", lambda x, y: x * y + 0.5, 0),
    ("to u64", lambda x, y: float(int(single(abs(single(x * 1000))))), 0),
    ("minimum", min, 0),
    ("ldexp", lambda x, y: x * 8, 0),
]


@probe
def float_operations(b):
    n = 64
    x, y = Array("f32", b.floats(n, 50)), Array("f32", b.floats(n, 50))
    out = Array("f32", n * len(FLOAT_OPERATIONS))
    b.run("float_operations", 1, n, x, y, out, n)
    for k, (name, operation, tolerance) in enumerate(FLOAT_OPERATIONS):
        wanted = [single(operation(p, q)) for p, q in zip(x[:], y[:], strict=True)]
        got = out[k * n : k * n + n]
        if tolerance == 0:
            same(got, wanted, name)
        for p, q in zip(got, wanted, strict=True):
            assert abs(p - q) <= tolerance * max(1, abs(q)), f"{name}: {p} instead of {q}"


@probe
def subnormals(b):
    x, out = Array("f32", [float_of(i * 12345 + 3) for i in range(64)]), Array("f32", [9] * 64)
    b.run("subnormals", 1, 64, x, out)
    same([bits_of(v) for v in out[:]], [bits_of(single(v * 0.5)) for v in x[:]])


@probe
def halves(b):
    def half(value):
        return struct.unpack("<H", struct.pack("<e", value))[0]

    values = [struct.unpack("<e", struct.pack("<e", v))[0] for v in b.floats(64, 9)]
    x, out = Array("u16", map(half, values)), Array("u16", 64)
    b.run("halves", 1, 64, x, out)
    same(out[:], [half(single(v * 1.5 + 0.25)) for v in values])


# --- lanes and shared memory ----------------------------------------------------------------------


@probe
def across_lanes(b):
    out = Array("u32", 13 * 64)
    b.run("across_lanes", 1, 64, out)
    v = [n * 3 + 1 for n in range(64)]
    mask = sum(1 << n for n in range(64) if n * 7 % 3 == 0)
    wanted = {
        "lane": range(64),
        "bpermute": [v[(n + 5) & 63] for n in range(64)],
        "readlane": [v[37]] * 64,
        "readfirstlane": [v[0]] * 64,
        "ballot, low": [mask & MASK] * 64,
        "ballot, high": [mask >> 32] * 64,
        "popcount": [mask.bit_count()] * 64,
        "mbcnt": [(mask & ((1 << n) - 1)).bit_count() for n in range(64)],
        "row_shr": [v[n - 1] if n % 16 else 0 for n in range(64)],
        "row_bcast": [v[n // 16 * 16 - 1] if n // 16 in (1, 3) else 77 for n in range(64)],
        "quad_perm": [v[n ^ 1] for n in range(64)],
        "writelane": [4242 if n == 9 else v[n] for n in range(64)],
        "ctz": [0] * 64,
    }
    for row, (name, values) in enumerate(wanted.items()):
        same(out[row * 64 : row * 64 + 64], values, name)


@probe
def swizzle(b):
    out = Array("u32", 64)
    b.run("swizzle", 1, 64, out)
    same(out[:], [(n ^ 1) * 3 + 1 for n in range(64)])


@probe
def sums(b):
    x, out = Array("u32", b.words(256, 24)), Array("u32", 256)
    b.run("wave_sum", 2, 128, x, out)
    same(out[:], [sum(x[i // 64 * 64 : i // 64 * 64 + 64]) for i in range(256)], "waves")
    x, out = Array("u32", b.words(1024, 20)), Array("u32", 4)
    b.run("block_sum", 4, 256, x, out)
    same(out[:], [sum(x[k * 256 : k * 256 + 256]) for k in range(4)], "blocks")


@probe
def shared_accesses(b):
    out = Array("u32", 776)
    b.run("shared_accesses", 1, 256, out)
    same(out[:256], [1] * 256, "slots by atomic")
    narrow = [(255 - i) | ((i ^ 1) * 257 & 0xFFFF) << 8 for i in range(256)]
    same(out[256:512], narrow, "8 and 16 bits")
    quads = [i ^ 3 for i in range(256)]
    wanted = [(q + 1000 * (q + 1) + 1000000 * (q + 2) - q - 3) & MASK for q in quads]
    same(out[512:768], wanted, "128 bits")
    assert out[768:771] == (256, 255 * 5, MASK)
    assert 1 <= out[771] <= 256
    assert out[772:774] == (256, 256)


@probe
def dynamic_shared(b):
    out = Array("u32", 128)
    b.run("dynamic_shared", 1, 128, out, dynamic_lds=512)
    same(out[:], [(127 - i) ** 2 for i in range(128)])


@probe
def leftovers(b):
    """Nothing is zero that a GPU would not have set."""
    out = Array("u32", 128)
    b.run("leftovers", 1, 64, out, seed=1)
    assert 0 not in out[:], "shared memory or a register came as zero"
    assert len(set(out[:])) > 100


@probe
def faults_are_reported(b):
    """Overruns, bad pointers and endless waits end the run with words."""
    cases = [
        ("shared_overrun", 64, [Array("u32", 64)], "access to 0x"),
        ("subnormals", 128, [Array("f32", 64), Array("f32", 128)], "subnormals block (0, 0, 0)"),
        ("waits_for_ever", 64, [Array("u32", 16)], "no end after"),
    ]
    for kernel, lanes, arguments, words in cases:
        said = fault_of(b, kernel, lanes, arguments)
        assert words in said, f"{kernel}: {said}"


def fault_of(b, kernel, lanes, arguments):
    try:
        b.run(kernel, 1, lanes, *arguments, limit=20000)
    except FaultError as error:
        return str(error)
    return "ran to its end"


# --- memory ---------------------------------------------------------------------------------------


@probe
def atomics(b):
    n = 512
    word, wide = Array("u32", 8), Array("u64", [0, 1 << 40, 0])
    out, out64 = Array("u32", n), Array("u64", n)
    b.run("atomics", 4, 128, word, wide, out, out64)
    same(sorted(out[:]), range(n), "fetch_add of 32 bits")
    same(sorted(out64[:]), [3 * i for i in range(n)], "fetch_add of 64 bits")
    assert word[:4] == (n, MASK, n - 1, n * (n - 1) // 2)
    assert wide[:] == (3 * n, 0, (n * (n - 1) // 2) << 20)
    assert word[4] < n


@probe
def relaxed_atomics(b):
    word, out = Array("u32", 4), Array("u32", [MASK] * 64)
    b.run("relaxed_atomics", 1, 64, word, out)
    same(word[:], [sum(g | 1 << 20 for g in range(k, 64, 4)) for k in range(4)], "sums")
    same(sorted(v >> 20 for v in out[:]), sorted(list(range(16)) * 4), "values before")


@probe
def compare_loops(b):
    word, wide, x = Array("u32", [5]), Array("u64", [1]), 1
    b.run("compare_loops", 2, 128, word, wide)
    for _ in range(256):
        x = (x * 3 + 1) & (1 << 64) - 1
    assert (word[0], wide[0]) == (261, x)


@probe
def float_atomics(b):
    word, wide = Array("f32", [1.0]), Array("f64", [2.0])
    b.run("float_atomics", 2, 64, word, wide)
    assert (word[0], wide[0]) == (65.0, 34.0)


@probe
def copies(b):
    for kernel, count, grid, block in (
        ("copy16", 1000, 2, 128),
        ("copy_nontemporal", 256, 1, 256),
    ):
        x, out = Array("u8", b.words(16 * count, 8)), Array("u8", 16 * count)
        b.run(kernel, grid, block, x, out, *([count] if kernel == "copy16" else []))
        same(out[:], x[:], kernel)


@probe
def copy_narrow(b):
    n = 200
    x, out = Array("u8", b.words(32768, 8)), Array("u8", 32768)
    b.run("copy_narrow", 1, 256, x, out, n)
    given, wanted = bytes(x[:]), bytearray(32768)
    for i in range(n):
        wanted[i] = given[i] ^ 0x5A
        (half,) = struct.unpack_from("<H", given, 4096 + 2 * i)
        struct.pack_into("<H", wanted, 4096 + 2 * i, (half + 1) & 0xFFFF)
        (wide,) = struct.unpack_from("<Q", given, 8192 + 8 * i)
        struct.pack_into("<Q", wanted, 8192 + 8 * i, wide * 0x9E3779B97F4A7C15 & (1 << 64) - 1)
        p, q, r = struct.unpack_from("<III", given, 16384 + 12 * i)
        struct.pack_into("<III", wanted, 16384 + 12 * i, p, q ^ p, r)
    same(out[:], wanted)


@probe
def unaligned(b):
    x, out = Array("u8", b.words(512, 8)), Array("u8", 512)
    b.run("unaligned", 1, 64, x, out)
    same(out[1:257], x[3:259])


@probe
def generic_pointers(b):
    out, other = Array("u32", 128), Array("u32", [5] * 128)
    b.run("generic_pointers", 1, 128, out, other)
    same(out[:], [i * 3 if i & 1 else 5 for i in range(128)])


@probe
def cache_instructions(b):
    words = Array("u32", 512)
    b.run("cache_instructions", 1, 256, words)
    same(words[:], [*range(1, 257), *range(2, 258)])


@probe
def clocks(b):
    out = Array("u64", 128)
    before = time.monotonic_ns()
    b.run("clocks", 1, 64, out)
    after = time.monotonic_ns()
    assert all(before <= v <= after for v in out[::2]), "ticks of the shader clock"
    assert all(before // 10 <= v <= after // 10 for v in out[1::2]), "100 MHz"


@probe
def priority_and_trap(b):
    words = Array("u32", 64)
    b.run("priority_and_trap", 1, 64, words)
    same(words[:], [7] * 64)


# --- private memory and calls ---------------------------------------------------------------------


@probe
def indexed_registers(b):
    at = [b.random.randrange(32) for _ in range(32)]
    out, wanted = Array("u32", 256), []
    b.run("indexed_registers", 1, 256, out, Array("u32", at))
    for g in range(256):
        v, total = [0] * 32, 0
        for i in range(32):
            v[at[i]] = g * 32 + i
        for i in range(32):
            total = (total * 31 + v[at[(i + g) & 31]]) & MASK
        wanted.append(total)
    same(out[:], wanted)


@probe
def stacks(b):
    out, wanted = Array("u32", 256), []
    b.run("stack", 1, 256, out)
    for g in range(256):
        v, total = [0] * 16, 0
        for i in range(16):
            v[(i + g) & 15] = g * 16 + i
        for x in v:
            total = (total * 7 + x) & MASK
        wanted.append(total)
    same(out[:], wanted, "across a barrier")
    out = Array("u32", 128)
    b.run("generic_stack", 1, 128, out)
    same(out[:], [sum((g + i) * i for i in range(8)) for g in range(128)], "passed on")


@probe
def calls(b):
    out = Array("u32", 64)
    b.run("calls", 1, 64, out)
    same(out[:], [g * 7 + g * 7 + 3 for g in range(64)], "direct")
    b.run("indirect_calls", 1, 64, out)
    same(out[:], [(g - 5) & MASK if g & 1 else g * 7 + 5 for g in range(64)], "indirect")


@probe
def globals_of_the_object(b):
    out = Array("u32", 64)
    b.run("globals", 1, 64, out)
    same(out[:], [[16, 28, 40, 52][g & 3] for g in range(64)])


# --- number formats -------------------------------------------------------------------------------

EDGES = [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0x3F808000, 0x3F818000, 0x3F80FFFF]
EDGES += [0x00000001, 0x00018000, 0x7FC00001, 0x7F800001]


@probe
def bfloat16(b):
    words = EDGES + b.words(116)
    x, out, back = Array("u32", words), Array("u16", 128), Array("f32", 128)
    b.run("bfloat16_conversion", 1, 128, x, out, back)
    wanted = [formats.bfloat16_of(w) for w in words]
    same(map(formats.without_nan, out[:]), map(formats.without_nan, wanted), "to bfloat16")
    sums_back = [single(float_of(w << 16) + 1.0) for w in wanted]
    same([v for v in back[:] if v == v], [v for v in sums_back if v == v], "and back")
    out = Array("u16", 128)
    b.run("bfloat16_pairs", 1, 64, x, out)
    same(map(formats.without_nan, out[:]), map(formats.without_nan, wanted), "pairs")


def narrow_inputs(b):
    edges = [0.0, 1.0, -1.0, 1.0625, 1.1875, 0.001, -0.002, 0.015625, 17.0, 100.3, -200.0, 0.4]
    edges += [3.14159, -2.71828, 0.0117, 240.0]
    signs = [b.random.choice((-1, 1)) for _ in range(240)]
    return [single(v) for v in edges + [s * 2 ** b.random.uniform(-9, 7.5) for s in signs]]


@probe
def fp8_narrowing(b):
    for kernel, name in (("fp8_narrow", "e4m3"), ("bf8_narrow", "e5m2")):
        values, out = narrow_inputs(b), Array("u8", 256)
        b.run(kernel, 1, 64, Array("f32", values), out)
        same(out[:], [formats.encode8(v, name, b.fnuz) for v in values], kernel)


@probe
def fp8_widening(b):
    every = Array("u8", range(256))
    for kernel, name in (
        ("fp8_widen", "e4m3"),
        ("bf8_widen", "e5m2"),
        ("fp8_widen_pairs", "e4m3"),
    ):
        out = Array("f32", 256)
        b.run(kernel, 1, 64, every, out)
        wanted = [formats.decode8(v, name, b.fnuz) for v in range(256)]
        same(map(formats.nan_as_word, out[:]), map(formats.nan_as_word, wanted), kernel)


@probe
def fp8_stochastic(b):
    values, out = narrow_inputs(b), Array("u32", 256)
    b.run("fp8_stochastic", 1, 256, Array("f32", values), out)
    for value, word in zip(values, out[:], strict=True):
        got = formats.decode8(word & 255, "e4m3", b.fnuz)
        assert abs(got - value) <= abs(value) / 8 + 2**-9, (value, word & 255, got)


@probe
def gfx950_alone(b):
    if b.loaded.file.architecture != "gfx950":
        return
    values, out = narrow_inputs(b), Array("u32", 128)
    b.run("fp8_scaled", 1, 128, Array("f32", values), out)
    pairs = [out[i // 2] >> 8 * (i & 1) & 255 for i in range(256)]
    same(pairs, [formats.encode8(v / 2, "e4m3", False) for v in values], "fp8 with a scale")
    every = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    b.run("fp4_scaled", 1, 128, Array("f32", every * 32), out)
    same([out[i // 2] >> 4 * (i & 1) & 15 for i in range(256)], [i & 7 for i in range(256)], "fp4")
    b.run("permlane_swap", 1, 64, out)
    low = [n if n < 32 else 100 + n - 32 for n in range(64)]
    same(out[:], low + [n + 32 if n < 32 else 100 + n for n in range(64)], "permlane32_swap")


# --- waiting --------------------------------------------------------------------------------------


@probe
def blocks_alternate(b):
    flags = Array("u32", 256)
    b.run("blocks_alternate", 2, 64, flags, 20)
    same(flags[32:160], [20] * 128)


@probe
def wave_waits_for_wave(b):
    out = Array("u32", 128)
    b.run("wave_waits_for_wave", 1, 128, out)
    same(out[:], [1] * 128)


@probe
def peers_exchange(b):
    for seed in SEEDS:
        heaps = [Array("u32", 1024), Array("u32", 1024)]
        launches = [("peers_exchange", 1, 256, (heaps[pe], heaps[1 - pe], pe)) for pe in (0, 1)]
        b.run_all(launches, seed=seed, turn=50)
        for pe in (0, 1):
            wanted = [((1 - pe) << 16) + i + 1 for i in range(256)]
            same(heaps[pe][512:768], wanted, f"PE {pe}, seed {seed}")


@probe
def dispatch(b):
    tokens, row_bytes, peer_count = 256, 1024, 8
    rows = Array("u8", b.words(tokens * row_bytes, 8))
    to = [b.random.randrange(peer_count) for _ in range(tokens)]
    heaps = [Array("u8", tokens * row_bytes) for _ in range(peer_count)]
    peers = Array("u64", [heap.memory.address for heap in heaps])
    counts, slots = Array("u32", peer_count), Array("u32", tokens)
    arguments = (rows, Array("u32", to), counts, peers, slots, tokens, row_bytes // 16)
    b.run("dispatch", 8, 512, *arguments, seed=1)
    same(counts[:], [to.count(peer) for peer in range(peer_count)], "counts")
    received, sent = [heap.memory.bytes() for heap in heaps], rows.memory.bytes()
    for token, slot in enumerate(slots[:]):
        got = received[to[token]][slot * row_bytes : (slot + 1) * row_bytes]
        assert got == sent[token * row_bytes : (token + 1) * row_bytes], f"token {token}"


def main(library, path, *names):
    bench, good = Bench(library, path), True
    architecture = bench.loaded.file.architecture
    for name in names or PROBES:
        try:
            PROBES[name](bench)
            print(f"ok - emulator, {architecture}: {name}", flush=True)
        except Exception as error:
            good = False
            print(f"not ok - emulator, {architecture}: {name}: {error}", flush=True)
            if not isinstance(error, (AssertionError, FaultError)):
                traceback.print_exc()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
