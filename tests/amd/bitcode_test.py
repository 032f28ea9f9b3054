#!/usr/bin/env python3
"""Executes kernels of other compilers that are linked with the device bitcode: the example of
libmori-shmem, in C++ and as LLVM IR, and, where a Triton is, a kernel of python/tests/gpu. Each PE
has a module of its own, whose state is set as mori_shmem_module_init does.

usage: bitcode_test.py EMULATOR.so BITCODE.bc ...
"""

import ctypes
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

from code_object import CodeObject
from emulator.loader import Launch, LoadedObject, Memory
from emulator.machine import Machine, load_library

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "libmori-shmem/examples"
TRITON = ROOT / "build/triton/3.8.0"
STATE, STATE_FORMAT = "mori_shmem_module_state_v2", "<QIiii9QQiIQII"
HEAP_BYTES, USER = 1 << 16, 8192  # the library's own words lie before
P2P, WAIT_BUDGET_NS, SPINS = 1, 10**12, 100
SEEDS = (1, 2, 3)
LIMIT_S = 300


class Pes:
    """PEs on plain memory, and the module of each."""

    def __init__(self, code_object, count):
        self.heaps = [Memory(HEAP_BYTES) for _ in range(count)]
        self.modules = [LoadedObject(code_object) for _ in range(count)]
        self.faults = [Memory(64) for _ in range(count)]
        self.words = Memory(20 * count)
        addresses = [heap.address for heap in self.heaps]
        self.words.fill(struct.pack(f"<{count}Q{count}i", *addresses, *[P2P] * count))
        self.aborts = [Memory(8) for _ in range(count)]
        for pe, module in enumerate(self.modules):
            self._set_state(pe, module, count)

    def _set_state(self, pe, module, count):
        words = self.words.address
        state = struct.pack(
            STATE_FORMAT,
            *(128, 2, 0, pe, count, self.heaps[pe].address, HEAP_BYTES),
            *(words, words + 8 * count, self.faults[pe].address, self.aborts[pe].address),
            *(WAIT_BUDGET_NS, SPINS, words + 12 * count),
            *(0, 0, 0, 0, 0, 1),  # found in the table; no rings; all are mapped
        )
        ctypes.memmove(module.address_of(STATE), state, len(state))

    def write(self, pe, offset, data):
        ctypes.memmove(self.heaps[pe].address + offset, data, len(data))

    def read(self, pe, offset, size):
        return ctypes.string_at(self.heaps[pe].address + offset, size)

    def run(self, library, kernel, grid, seed, arguments_of):
        """arguments_of(pe): 64-bit integers; those that a compiler adds are 0."""
        machine = Machine(library, seed=seed)
        for pe, module in enumerate(self.modules):
            kinds = module.file.kernels[kernel][".args"]
            explicit = [one for one in kinds if not one[".value_kind"].startswith("hidden_")]
            given = arguments_of(pe)
            given += [0] * (len(explicit) - len(given))
            packed = [struct.pack("<Q", value) for value in given]
            machine.add(Launch(module, kernel, grid, 256, packed), stream=pe)
        machine.run()
        for pe, fault in enumerate(self.faults):
            assert not any(fault.bytes()), f"PE {pe} has a fault: {fault.bytes().hex()}"


def check_ring(library, path):
    """Blocks of awkward size to the right neighbour, for 1 to 3 PEs and several schedules."""
    code_object = CodeObject.read(path)
    inbox, outbox, signal, size = USER, USER + 2048, USER + 4096, 1003
    for count in (1, 2, 3):
        for seed in SEEDS:
            pes = Pes(code_object, count)
            sent = [
                bytes((7 * i + 3 * pe + seed) & 255 for i in range(size)) for pe in range(count)
            ]
            for pe in range(count):
                pes.write(pe, outbox, sent[pe])
            base = [heap.address for heap in pes.heaps]
            pes.run(
                library,
                "ring",
                1,
                seed,
                lambda pe, at=base: [at[pe] + inbox, at[pe] + outbox, size, at[pe] + signal, 5],
            )
            for pe in range(count):
                where = f"{count} PEs, seed {seed}, PE {pe}"
                assert pes.read(pe, inbox, size + 1) == sent[pe - 1] + b"\0", where
                assert struct.unpack("<Q", pes.read(pe, signal, 8)) == (5,), where


def check_counts(library, path):
    """8 programs of 4 waves: each call acts 8 times, and old values are all different."""
    words, old = USER, USER + 64
    for seed in SEEDS:
        pes = Pes(CodeObject.read(path), 1)
        at = pes.heaps[0].address
        pes.run(
            library,
            "count_calls",
            8,
            seed,
            lambda _, at=at: [at + words, at + old, at + USER + 1024, at + USER + 2048],
        )
        found = struct.unpack("<16Q", pes.read(0, words, 128))
        assert found[:8] == (8,) * 8, f"seed {seed}: {found}"
        assert sorted(found[8:]) == list(range(8)), f"seed {seed}: {found}"


def link(kernel, arch, bitcode, folder):
    made = pathlib.Path(folder) / f"{arch}-{kernel}.hsaco"
    command = ["bash", EXAMPLES / "link.sh", arch, EXAMPLES / kernel, bitcode, made]
    command.append(ROOT / "libmori-shmem/include")
    environment = {**os.environ, "LLVM": "22"}
    subprocess.run(command, check=True, timeout=LIMIT_S, env=environment)
    return made


def compile_with_triton(arch, bitcode, folder):
    """count_calls as Triton makes it; None and why where it cannot be."""
    sys.path[:0] = [str(TRITON), str(ROOT / "python/tests/gpu")]
    os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton"
    try:
        import triton_kernels
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource, compile
    except ImportError as missing:
        return None, str(missing)
    signature = {"words": "*i64", "old": "*i64", "source": "*fp32", "sink": "*fp32"}
    source = ASTSource(fn=triton_kernels.count_calls, signature=signature)
    libraries = {"extern_libs": {"mori_shmem": str(bitcode)}}
    compiled = compile(source, target=GPUTarget("hip", arch, 64), options=libraries)
    made = pathlib.Path(folder) / f"{arch}-count_calls.hsaco"
    made.write_bytes(compiled.asm["hsaco"])
    return made, ""


def main():
    library, failed = load_library(sys.argv[1]), 0
    with tempfile.TemporaryDirectory() as folder:
        for bitcode in map(pathlib.Path, sys.argv[2:]):
            arch = bitcode.stem.removeprefix("libmori_shmem_device-")
            cases = [
                (kernel, check_ring, link(kernel, arch, bitcode, folder))
                for kernel in ("ring.cpp", "ring_amd.ll")
            ]
            made, why = compile_with_triton(arch, bitcode, folder)
            if made is None:
                print(f"skip - {arch}: a kernel of Triton: {why}")
            else:
                cases.append(("a kernel of Triton", check_counts, made))
            for title, check, path in cases:
                fault = ""
                try:
                    check(library, path)
                except AssertionError as error:
                    fault = str(error)
                print(f"{'not ok' if fault else 'ok'} - {arch}: {title} {fault}".rstrip())
                failed += bool(fault)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
