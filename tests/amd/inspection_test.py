#!/usr/bin/env python3
"""Tests of the inspection itself: compiles small kernels that do one thing wrong and checks that it
is found and named; and that occupancy is what the compiler says it is.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import disassembly
import inspection
import scopes
from code_object import CodeObject
from occupancy import occupancy

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILER = "clang++-22"
FLAGS = ["-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-mcode-object-version=5"]
FLAGS += ["-nogpulib", "-nogpuinc", "-std=c++20", "-O3", "-ffp-contract=off", "-c"]
INCLUDES = ["subprojects/mori-device/include", "capi/include"]
ARCHITECTURES = ("gfx90a", "gfx942", "gfx950")

PRELUDE = """
#include <mori/device/kernel.hpp>
using namespace mori::device;
#define KERNEL extern "C" __attribute__((global)) void
"""
# The pieces that a good kernel is made of, and what each is when it is wrong.
COPY = "copy(block{}, to, from, bytes);"
FENCE = "fence<scope::system, order::release>();"
SIGNAL = "store<scope::system, order::release>(flag, u64{1});"
WAIT = "while (load<scope::system, order::acquire>(flag) == 0) __builtin_amdgcn_s_sleep(1);"
BODY = "KERNEL probe(u8* to, const u8* from, u64 bytes, u64* flag) {{ {} }}"
GOOD = " ".join((COPY, FENCE, "block{}.sync();", SIGNAL, WAIT))
EXPECTED = scopes.Facts(polls=1, signals=1, copies=1)

# Title -> (what is replaced, by what, architectures, the fault that must be named).
WRONG = {
    "a poll at agent scope": (
        WAIT,
        WAIT.replace("system", "device"),
        ("gfx942", "gfx950"),
        "0 polls, at least 1",  # one meeting instead
    ),
    "a poll at both scopes": (
        WAIT,
        WAIT.replace("system", "device").replace(
            " == 0", " + load<scope::system, order::acquire>(flag + 8) == 0"
        ),
        ("gfx942", "gfx950"),
        "polls without sc0 sc1: ",
    ),
    "a poll at block scope": (
        WAIT,
        WAIT.replace("system", "block").replace("acquire", "relaxed"),
        ("gfx90a",),
        "is not followed by an invalidation",
    ),
    "a relaxed poll": (
        WAIT,
        WAIT.replace("acquire", "relaxed"),
        ARCHITECTURES,
        "is not followed by an invalidation",
    ),
    "a signal at agent scope": (
        SIGNAL,
        FENCE + "store<scope::device, order::relaxed>(flag, u64{1});",
        ("gfx942", "gfx950"),
        "signals without sc0 sc1: ",
    ),
    "a plain signal": (
        SIGNAL,
        FENCE + "*flag = 1;",
        ("gfx942", "gfx950"),
        "signals without sc0 sc1: ",
    ),
    "no signal": (SIGNAL, "", ARCHITECTURES, "0 signals, at least 1"),
    "a wait that does not sleep": (
        WAIT,
        "while (load<scope::system, order::acquire>(flag) == 0) {}",
        ARCHITECTURES,
        "0 polls, at least 1",
    ),
    "copies by words": (
        COPY,
        "for (u64 i = block{}.rank(); i < bytes / 4; i += block{}.size()) "
        "((u32*)to)[i] = ((const u32*)from)[i];",
        ARCHITECTURES,
        "0 copies, at least 1",
    ),
    "a write-back that is not waited for": (
        SIGNAL,
        'asm volatile("buffer_wbl2 sc0 sc1" ::: "memory"); '
        "store<scope::system, order::relaxed>(flag, u64{1});",
        ("gfx942", "gfx950"),
        "no wait between buffer_wbl2 and global_store",
    ),
    "an array in scratch": (
        COPY,
        COPY + "volatile u64 a[40]; for (u64 i = 0; i < 40; ++i) a[(i * bytes) % 40] = i; "
        "*flag = a[bytes % 40];",
        ARCHITECTURES,
        "bytes of scratch, 0 allowed",
    ),
    "a pointer to nowhere in particular": (
        COPY,
        COPY + "MORI_SHARED u64 word; u64* p = bytes & 1 ? flag : &word; *p = bytes; *flag = word;",
        ARCHITECTURES,
        "accesses through generic pointers, 0 allowed",
    ),
}
SPILL = """
KERNEL __attribute__((amdgpu_num_vgpr(24))) probe(const float* in, float* out) {
  float v[64];
  for (int i = 0; i < 64; ++i) v[i] = in[i * 64 + block{}.rank()];
  __builtin_amdgcn_s_barrier();
  for (int i = 0; i < 64; ++i) out[i * 64 + block{}.rank()] = v[i] * v[63 - i];
}
"""


class Workshop:
    def __init__(self, folder):
        self.folder, self.count = pathlib.Path(folder), 0

    def compile(self, source, architecture, *flags):
        """(path of the object, what the compiler said)."""
        self.count += 1
        path = self.folder / f"probe{self.count}-{architecture}.hsaco"
        text = self.folder / "probe.cpp"
        text.write_text(PRELUDE + source)
        includes = [word for name in INCLUDES for word in ("-I", str(ROOT / name))]
        command = [COMPILER, f"--offload-arch={architecture}", *FLAGS, *includes, *flags]
        command += [str(text), "-o", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise AssertionError(f"{COMPILER}: {done.stderr[:2000]}")
        return path, done.stderr

    def faults(self, source, architecture, *flags, expected=EXPECTED):
        path, _ = self.compile(source, architecture, *flags)
        inspection.EXPECTED["probe"] = expected
        return [fault for _, _, faults in inspection.check_object(path) for fault in faults]


def check_good(workshop):
    for architecture in ARCHITECTURES:
        faults = workshop.faults(BODY.format(GOOD), architecture)
        assert not faults, f"{architecture}: {faults}"


def check_wrong(workshop, title):
    right, wrong, architectures, fault = WRONG[title]
    assert right in GOOD, title
    for architecture in architectures:
        found = workshop.faults(BODY.format(GOOD.replace(right, wrong)), architecture)
        assert any(fault in each for each in found), f"{architecture}: {found}"


def check_spills(workshop):
    for architecture in ARCHITECTURES:
        found = workshop.faults(SPILL, architecture, expected=scopes.Facts())
        assert any("vector registers are spilt" in each for each in found), found
        assert any("bytes of scratch" in each for each in found), found


def check_float_mode(workshop):
    flag = "-fgpu-flush-denormals-to-zero"
    found = workshop.faults(BODY.format(GOOD), "gfx942", flag)
    assert len(found) == 1, found
    assert found[0].startswith("float mode: rounding 0x0, subnormals 0xc"), found


def check_wave_size(workshop):
    path, _ = workshop.compile(BODY.format(GOOD), "gfx942")
    file = CodeObject.read(path)
    file.kernels["probe"][".wavefront_size"] = 32
    kernel = inspection.Kernel(file, "probe", EXPECTED)
    assert list(inspection.check_assumptions(kernel)) == ["compiled for waves of 32 lanes, not 64"]
    file.kernels["probe"] |= {".wavefront_size": 64, ".vgpr_count": 136}
    assert list(inspection.check_assumptions(kernel)) == [
        "a block of 1024 lanes has too few registers"
    ]


def check_exceptions(workshop):
    path, _ = workshop.compile(BODY.format(GOOD), "gfx942")
    inspection.ALLOWED["probe"] = inspection.Allowed("none", scratch_bytes=16)
    try:
        found = list(inspection.unneeded(inspection.kernels_of(path)))
        assert found == ["probe needs its entry in ALLOWED no more"], found
    finally:
        del inspection.ALLOWED["probe"]


def remark(text, name):
    return int(re.search(rf"\b{name}[^:\n]*: (\d+)", text)[1])


def check_occupancy(workshop):
    """Kernels that claim registers and shared memory by name, against the compiler's remarks."""
    body = """
    KERNEL __attribute__((amdgpu_flat_work_group_size({lanes}, {lanes}))) probe(u32* out) {{
      MORI_SHARED u32 words[{words}];
      words[block{{}}.rank()] = 1;
      block{{}}.sync();
      out[block{{}}.rank()] = words[block{{}}.rank() ^ 1];
      asm volatile("" ::: "v{vector}", "s{scalar}");
    }}"""
    cases = [
        *(
            (256, vector, 15, 256)
            for vector in (23, 63, 64, 71, 72, 80, 95, 96, 127, 128, 168, 255)
        ),
        *((256, 10, scalar, 256) for scalar in (79, 93, 94, 95, 96, 101)),
        # Multiples of both units: the compiler does not round up to them.
        *((256, 10, 15, words) for words in (640, 1920, 2560, 5120, 7680, 15360)),
        *((1024, 10, 15, words) for words in (1280, 5120, 8320, 15360)),
    ]
    for architecture in ARCHITECTURES:
        for lanes, vector, scalar, words in cases:
            source = body.format(lanes=lanes, vector=vector, scalar=scalar, words=words)
            path, said = workshop.compile(
                source, architecture, "-Rpass-analysis=kernel-resource-usage"
            )
            kernel = CodeObject.read(path).kernels["probe"]
            found = occupancy(architecture, kernel, lanes).waves
            wanted = remark(said, "Occupancy")
            what = f"{architecture}, {lanes} lanes, v{vector}, s{scalar}, {4 * words} B"
            assert found == wanted, f"{what}: {found}, the compiler says {wanted}"


def check_units(_):
    """Shared memory is given in units; a block is resident as a whole or not at all."""
    kernel = {".vgpr_count": 88, ".sgpr_count": 30, ".group_segment_fixed_size": 32768}
    for architecture, lanes, waves, whole in (
        ("gfx942", 256, 2, 2),
        ("gfx950", 256, 4, 4),  # 5 would fit if it were not for the unit
        ("gfx950", 1024, 5, 4),
        ("gfx942", 1024, 5, 4),
        ("gfx942", 64, 1, 1),
    ):
        found = occupancy(architecture, kernel, lanes)
        assert (found.waves, found.whole_blocks(lanes)) == (waves, whole), (architecture, found)


def check_loops(_):
    """Two nested loops, the inner one with two ways back; then one loop with three."""
    listing = """
0000000000000000 <f>:
\ts_mov_b32 s0, 0          // 000000000000: 00000000
\ts_nop 0                  // 000000000004: 00000000
\ts_sleep 1                // 000000000008: 00000000
\ts_cbranch_scc1 65533     // 00000000000C: 00000000
\ts_cbranch_scc0 65532     // 000000000010: 00000000
\ts_cbranch_vccz 65530     // 000000000014: 00000000
\ts_endpgm                 // 000000000018: 00000000
"""
    function = disassembly.parse(listing)["f"]
    starts = [block[0].address for block in function.blocks]
    assert starts == [0, 4, 16, 20, 24], starts
    loops = [sorted(loop) for loop in function.loops]
    assert loops == [[1, 2], [0, 1, 2, 3]], loops
    assert function.loop_around(1) == {1, 2}
    assert function.loop_around(4) is None
    one_head = listing.replace("s_cbranch_vccz 65530", "s_cbranch_vccz 65531")
    loops = [sorted(loop) for loop in disassembly.parse(one_head)["f"].loops]
    assert loops == [[1, 2, 3]], loops


CHECKS = {
    "a good kernel passes": check_good,
    "spills": check_spills,
    "float mode": check_float_mode,
    "wave size and block size": check_wave_size,
    "exceptions that nobody needs": check_exceptions,
    "occupancy is what the compiler says": check_occupancy,
    "units of shared memory and whole blocks": check_units,
    "loops": check_loops,
}


def main():
    if any(shutil.which(tool) is None for tool in (COMPILER, inspection.OBJDUMP)):
        print(f"skip - tests of the inspection: no {COMPILER} or no {inspection.OBJDUMP} here")
        return 0
    good = True
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(folder)
        checks = dict(CHECKS)
        for title in WRONG:
            checks[f"finds {title}"] = lambda w, title=title: check_wrong(w, title)
        for title, check in checks.items():
            try:
                check(workshop)
                print(f"ok - inspection: {title}", flush=True)
            except AssertionError as error:
                good = False
                print(f"not ok - inspection: {title}: {error}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
