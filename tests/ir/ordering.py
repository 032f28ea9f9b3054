#!/usr/bin/env python3
"""How the functions of the device bitcode order memory, seen in the instructions: each is called by
a kernel of its own, inlined, compiled for the architecture and disassembled.

AMD     the rules of tests/amd/scopes.py: polls at system scope that invalidate the caches,
        write-backs of the L2 at system scope that are waited for, signals at system scope after
NVIDIA  .sys on everything that peers look at: releases before signals, acquiring polls, atomics

usage: ordering.py BITCODE...      libmori_shmem_device-ARCH.bc each
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/amd"), str(ROOT / "libmori-shmem/functions")]

import disassembly  # noqa: E402
import scopes  # noqa: E402
from declarations import FUNCTIONS  # noqa: E402

LIMIT_S = 240 * float(os.environ.get("MORI_TEST_PATIENCE", "1"))
TYPES = {"f32": "float", "f64": "double"}
# What the instructions of a function of each section must hold, on NVIDIA: any of a row.
WANTED = {
    "signal": ("fence.acq_rel.sys|st.release.sys", "st.relaxed.sys|st.release.sys", "atom.*add"),
    "wait": ("ld.acquire.sys.b(?:32|64)", "ld.relaxed.sys.b(?:32|64)"),
    "atomic": ("atom.acq_rel.sys",),
    "barrier": ("fence.acq_rel.sys", "st.relaxed.sys.b64", "ld.acquire.sys.b64"),
    "order": ("fence.(?:sc|acq_rel).sys",),
}
# Atomics and flags of narrower scope would be invisible to other GPUs.
NARROW = re.compile(
    r"^\s*(?:@%p\d+ )?(?:atom|red|ld\.(?:acquire|relaxed)|st\.(?:release|relaxed))\S*"
    r"\.(?:gpu|cta)\b"
)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip()[-1000:]}")
    return done.stdout


def kernels(convention, triple):
    """LLVM IR: for each export a kernel that calls it and keeps the result."""

    def llvm(kind):
        return TYPES.get(kind, f"i{kind[1:]}")

    lines = [f'target triple = "{triple}"']
    for one in FUNCTIONS:
        given = ", ".join(f"{llvm(kind)} %{name}" for kind, name in one.arguments)
        types = ", ".join(llvm(kind) for kind, _ in one.arguments)
        for symbol in dict.fromkeys((one.symbol, one.program_symbol)):
            result = llvm(one.result)
            lines += [
                f"declare {result} @{symbol}({types}) convergent",
                f"define {convention} void @k_{symbol}(ptr addrspace(1) %out"
                f"{', ' if given else ''}{given}) #0 {{",
                f"  %r = call {result} @{symbol}({given}) convergent",
                f"  store {result} %r, ptr addrspace(1) %out",
                "  ret void",
                "}",
            ]
    lines.append(
        'attributes #0 = { convergent "amdgpu-flat-work-group-size"="1,1024" '
        '"uniform-work-group-size"="true" }'
    )
    if "amdgcn" in triple:
        lines += [
            "!llvm.module.flags = !{!0}",
            '!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}',
        ]
    return "\n".join(lines) + "\n"


def compiled(arch, bitcode, folder, suffix):
    """An object (AMD) or PTX (NVIDIA) in which every kernel holds what it calls."""
    amd = arch.startswith("gfx")
    triple = "amdgcn-amd-amdhsa" if amd else "nvptx64-nvidia-cuda"
    target = [f"--target={triple}", f"-mcpu={arch}" if amd else f"-march={arch}", "-nogpulib"]
    source, linked, ready = (Path(folder) / f"{arch}{end}" for end in (".ll", "-l.bc", "-r.bc"))
    source.write_text(kernels("amdgpu_kernel" if amd else "ptx_kernel", triple))
    run(f"llvm-link-{suffix}", "--suppress-warnings", source, bitcode, "-o", linked)
    names = ",".join(re.findall(r"@(k_\w+)\(", source.read_text()))
    keep = f"-internalize-public-api-list={names},mori_shmem_module_state_v2"
    passes = "internalize,always-inline,globaldce,default<O1>"
    run(f"opt-{suffix}", f"-passes={passes}", keep, linked, "-o", ready)
    made = Path(folder) / (f"{arch}.o" if amd else f"{arch}.ptx")
    run(f"clang-{suffix}", *target, "-O2", *(["-c"] if amd else ["-S"]), ready, "-o", made)
    return made


def check_amd(arch, path, suffix):
    functions = disassembly.disassemble(f"llvm-objdump-{suffix}", path)
    for one in FUNCTIONS:
        for symbol in dict.fromkeys((one.symbol, one.program_symbol)):
            function = functions.get(f"k_{symbol}")
            if function is None:
                yield f"{symbol}: no kernel came of it"
                continue
            facts = scopes.facts_of(arch, function)
            yield from (f"{symbol}: {fault}" for fault in facts.faults)
            if one.section in ("signal", "barrier", "atomic") and not facts.signals:
                yield f"{symbol}: signals nothing at system scope"
            if one.section in ("wait", "barrier") and not facts.polls:
                yield f"{symbol}: has no wait at system scope"
            system = scopes.SCOPES[arch].system
            for each in function.instructions:
                # Nothing here is for the lanes of one GPU alone.
                if each.name == "buffer_wbl2" and not each.has(*system.write_back):
                    yield f"{symbol}: writes back for this GPU alone: {each}"
            if any(each.name == "s_swappc_b64" for each in function.instructions):
                yield f"{symbol}: calls something"
    objects = ROOT / "subprojects/mori-device/tools/check_objects.py"
    # Each write-back is waited for before what follows.
    run(sys.executable, "-B", objects, "releases", shutil.which(f"llvm-objdump-{suffix}"), path)


PTX_FUNCTION = re.compile(
    r"^(?:\.visible )?\.(?:entry|func)\s+(?:\([^)]*\)\s*)?(\w+)\s*\([^)]*\)[^;{]*^\{(.*?)^\}",
    re.M | re.S,
)


def with_callees(name, bodies):
    """The text of a function and of all that it calls; what it calls and is not here."""
    texts, missing, due, seen = [], [], [name], {name}
    while due:
        body = bodies.get(current := due.pop())
        if body is None:
            missing.append(current)
            continue
        texts.append(body)
        for callee in re.findall(r"^\s*call(?:\.uni)?\s+(?:\([^)]*\),\s*)?(\w+)", body, re.M):
            if callee not in seen:
                seen.add(callee)
                due.append(callee)
    return "".join(texts), missing


def check_nvidia(_arch, path, _suffix):
    bodies = dict(PTX_FUNCTION.findall(path.read_text()))
    for one in FUNCTIONS:
        for symbol in dict.fromkeys((one.symbol, one.program_symbol)):
            body, missing = with_callees(f"k_{symbol}", bodies)
            if not body:
                yield f"{symbol}: no kernel came of it"
                continue
            for wanted in WANTED.get(one.section, ()):
                if not re.search(wanted, body):
                    yield f"{symbol}: has no {wanted}"
            for line in body.splitlines():
                if NARROW.match(line):
                    yield f"{symbol}: is not at system scope: {line.strip()}"
            yield from (f"{symbol}: calls {name}, which is not here" for name in missing)


def main(paths):
    suffix = next((v for v in (22, 23, 24) if shutil.which(f"llvm-link-{v}")), None)
    if suffix is None:
        print("skip - no llvm-link of version 22 to 24 here")
        return 0
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for path in map(Path, paths):
            arch = path.stem.removeprefix("libmori_shmem_device-")
            try:
                made = compiled(arch, path, folder, suffix)
                check = check_amd if arch.startswith("gfx") else check_nvidia
                faults = list(check(arch, made, suffix))
            except RuntimeError as error:
                faults = [str(error)]
            count = len({name for one in FUNCTIONS for name in (one.symbol, one.program_symbol)})
            title = f"{arch}: {count} ways to call, in the instructions"
            print(f"{'not ok' if faults else 'ok'} - {title}", *faults[:20], sep="\n  ", flush=True)
            failed += bool(faults)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
