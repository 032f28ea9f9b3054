#!/usr/bin/env python3
"""Looks at the AMD code objects of a build, without running them: what each kernel needs of the
hardware, whether anything spills, whether waits and signals carry the scopes they must (scopes.py),
whether kernels assume what the architecture is.

usage: inspection.py BUILD_FOLDER [OBJECT ...]     with objects: those instead of the build's
"""

import dataclasses
import fnmatch
import functools
import importlib.util
import pathlib
import shutil
import struct
import sys

import disassembly
import record
import scopes
from code_object import CodeObject
from occupancy import SIMDS, WAVE_LANES, occupancy, waves_by_vector

ROOT = pathlib.Path(__file__).resolve().parents[2]
OBJDUMP = "llvm-objdump-22"
BLOCK_LANES = (256, 1024)  # for which occupancy is told
ROUND_TO_NEAREST, KEEP_SUBNORMALS = 0, 0xF


ANY = float("inf")


@dataclasses.dataclass
class Allowed:
    """What a kernel may use of what the others may not, and why."""

    reason: str
    scratch_bytes: float = 0
    scalar_spills: float = 0
    flat: float = 0


# Kernel -> exceptions. An entry that is not needed any more fails too.
ALLOWED = {
    "mori_shmem_all_operations": Allowed(
        "a compile check at -O1 that nobody launches; its calls need a stack",
        scratch_bytes=ANY,
        flat=ANY,
    ),
    "mori_ep_*": Allowed(
        "more addresses than scalar registers: they go to lanes of two vector registers, not to "
        "memory",
        scalar_spills=128,
    ),
}
# Kernel -> what its code must hold at least; what no pattern matches must hold nothing.
EXPECTED = {
    "mori_shmem_apply": scopes.Facts(signals=4),
    "mori_shmem_barrier": scopes.Facts(polls=4, signals=8),
    "mori_shmem_host_call": scopes.Facts(polls=4, signals=20),
    "mori_shmem_all_operations": scopes.Facts(polls=20, signals=100, copies=30),
    "mori_ep_*_dispatch": scopes.Facts(polls=3, meetings=2, signals=5, copies=2),
    "mori_ep_*_combine_*": scopes.Facts(polls=3, meetings=1, signals=5, copies=1),
}


def matching(table, name):
    return next((value for glob, value in table.items() if fnmatch.fnmatch(name, glob)), None)


@functools.cache
def check_objects():
    """mori-device's script, which crates that are built alone use too."""
    path = ROOT / "subprojects/mori-device/tools/check_objects.py"
    spec = importlib.util.spec_from_file_location("check_objects", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def objects_of(build):
    """Code objects for AMD GPUs of the build's libraries and their tests, but for those that run
    lists of operations for tests.
    """
    others = ("/tests/amd/", "/tests/gpu/")
    return [
        path
        for path in record.outputs(build)
        if path.suffix == ".hsaco" and not any(folder in str(path) for folder in others)
    ]


@dataclasses.dataclass
class Kernel:
    """One kernel of one object."""

    file: CodeObject
    name: str
    facts: scopes.Facts

    @property
    def metadata(self):
        return self.file.kernels[self.name]

    @property
    def scratch_bytes(self):
        return self.metadata[".private_segment_fixed_size"]

    @property
    def scalar_spills(self):
        return self.metadata[".sgpr_spill_count"]

    def resources(self):
        m = self.metadata
        waves = {lanes: occupancy(self.file.architecture, m, lanes) for lanes in BLOCK_LANES}
        told = " / ".join(str(each.whole_blocks(lanes)) for lanes, each in waves.items())
        bound = " and ".join(waves[BLOCK_LANES[0]].bound_by)
        return (
            f"{m['.vgpr_count']} VGPRs ({m.get('.agpr_count', 0)} of them AGPRs), "
            f"{m['.sgpr_count']} SGPRs, {m['.group_segment_fixed_size']} B LDS, "
            f"{self.scratch_bytes} B scratch, {m['.vgpr_spill_count']} + {self.scalar_spills} "
            f"spilt, {told} waves per SIMD in blocks of {' / '.join(map(str, BLOCK_LANES))}"
            + (f" (bound by {bound})" if bound else "")
            + f"; {self.facts.polls} polls, {self.facts.meetings} meetings, "
            f"{self.facts.signals} signals, {self.facts.copies} copies"
        )


def check_limits(kernel):
    """Spills and scratch, against what the kernel is allowed."""
    allowed = matching(ALLOWED, kernel.name) or Allowed("")
    if kernel.metadata[".vgpr_spill_count"] != 0:
        yield f"{kernel.metadata['.vgpr_spill_count']} vector registers are spilt to memory"
    for what, value, limit in (
        ("bytes of scratch", kernel.scratch_bytes, allowed.scratch_bytes),
        ("scalar registers spilt", kernel.scalar_spills, allowed.scalar_spills),
        ("accesses through generic pointers", kernel.facts.flat, allowed.flat),
    ):
        if value > limit:
            yield f"{value} {what}, {limit} allowed; see ALLOWED in tests/amd/inspection.py"


def float_mode(file, kernel):
    """Rounding and subnormal modes of a kernel's descriptor: bits 12 .. 19 of COMPUTE_PGM_RSRC1."""
    address = file.symbols[kernel + ".kd"]
    at = next(
        address - segment.address + segment.offset
        for segment in file.segments
        if segment.address <= address < segment.address + segment.file_bytes
    )
    word = struct.unpack_from("<I", file.image, at + 48)[0]
    return word >> 12 & 0xF, word >> 16 & 0xF


def check_assumptions(kernel):
    """What the device layer and the runtime take for granted."""
    m = kernel.metadata
    if m[".wavefront_size"] != WAVE_LANES:
        yield f"compiled for waves of {m['.wavefront_size']} lanes, not {WAVE_LANES}"
    if m.get(".uses_dynamic_stack"):
        yield "needs a stack of unknown size"
    rounding, subnormals = float_mode(kernel.file, kernel.name)
    if (rounding, subnormals) != (ROUND_TO_NEAREST, KEEP_SUBNORMALS):
        yield f"float mode: rounding {rounding:#x}, subnormals {subnormals:#x}: results differ"
    waves = -(-m[".max_flat_workgroup_size"] // WAVE_LANES)
    if waves_by_vector(m[".vgpr_count"]) * SIMDS < waves:
        yield f"a block of {m['.max_flat_workgroup_size']} lanes has too few registers"


def check_expected(kernel):
    wanted = matching(EXPECTED, kernel.name) or scopes.Facts()
    for what in ("polls", "meetings", "signals", "copies"):
        found, least = getattr(kernel.facts, what), getattr(wanted, what)
        if found < least:
            yield f"{found} {what}, at least {least} expected; see scopes.py for what they are"


def kernels_of(path):
    """Functions that are no kernels are called by all kernels of their object."""
    file = CodeObject.read(path)
    functions = disassembly.disassemble(OBJDUMP, path)
    facts = {name: scopes.facts_of(file.architecture, f) for name, f in functions.items()}
    called = [found for name, found in facts.items() if name not in file.kernels]
    return [Kernel(file, name, sum(called, facts[name])) for name in sorted(file.kernels)]


def check_object(path):
    """Yields (title, line about resources, faults) for each kernel, then for the object."""
    kernels = kernels_of(path)
    if not kernels:
        yield f"{path.name}", "", ["holds no kernel"]
    for kernel in kernels:
        faults = [*check_limits(kernel), *check_assumptions(kernel), *check_expected(kernel)]
        title = f"{kernel.file.architecture} {kernel.name}"
        yield title, kernel.resources(), faults + kernel.facts.faults
    if any(kernel.facts.polls for kernel in kernels):
        faults = check_objects().check_releases(OBJDUMP, [str(path)])
        yield f"{path.name}: write-backs are waited for", "", faults


def unneeded(kernels):
    """Entries of ALLOWED that some kernel has but none needs."""
    for glob in ALLOWED:
        mine = [kernel for kernel in kernels if fnmatch.fnmatch(kernel.name, glob)]
        if mine and not any(k.scratch_bytes or k.scalar_spills or k.facts.flat for k in mine):
            yield f"{glob} needs its entry in ALLOWED no more"


def report(title, about, faults):
    print(f"{'not ok' if faults else 'ok'} - {title}{': ' if about else ''}{about}")
    for fault in faults:
        print(f"  {fault}")
    return not faults


def main(build, *paths):
    if shutil.which(OBJDUMP) is None:
        print(f"skip - AMD code objects are not inspected: no {OBJDUMP} here")
        return 0
    objects = [pathlib.Path(path) for path in paths] or objects_of(pathlib.Path(build))
    objects = [path for path in objects if path.exists() or paths]
    if not objects:
        print("skip - AMD code objects are not inspected: none were compiled")
        return 0
    good = True
    for path in objects:
        for title, about, faults in check_object(path):
            good &= report(title, about, faults)
    kernels = [kernel for path in objects for kernel in kernels_of(path)]
    good &= report("exceptions that are needed", "", list(unneeded(kernels)))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
