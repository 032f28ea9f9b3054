#!/usr/bin/env python3
"""Compiles Triton kernels that use every device function, for AMD and NVIDIA architectures, with
one release of Triton, to what a driver loads; no GPU is needed. Looks at what came out: they are
inlined, signals and waits have system scope, the state can be found, nothing is undefined.

usage: triton_compile.py FOLDER_OF_TRITON [ARCH...]      with mori and its bitcode to be found
"""

import importlib.util
import re
import struct
import sys
import tempfile
import textwrap
import time
from pathlib import Path

sys.path.insert(0, sys.argv[1])
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python/tests/gpu"))

import triton
from mori.ir import MORI_DEVICE_FUNCTIONS
from mori.ir import triton as shmem
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.errors import CompilationError
from triton.runtime.jit import JITFunction

ARCHS = ("gfx942", "gfx950", "sm_90")
FUNCTIONS_PER_KERNEL = 8
STATE = "mori_shmem_module_state_v2"
HEAD = "import triton\nimport triton.language as tl\nfrom mori.ir import triton as shmem\n\n\n"
# Arguments of the kernels in triton_kernels.py that are no pointer to 32-bit floats.
KINDS = {
    **dict.fromkeys(("words", "old", "signal", "signals", "seen", "word"), "*i64"),
    "found": "*i32",
    "small": "*i8",
    "n": "constexpr",
    "value": "i64",
    **dict.fromkeys(("rounds", "pe", "epoch"), "i32"),
}
UNDEFINED, GLOBAL, SYMBOL_TABLES = 0, 1, (2, 11)


def target_of(arch):
    if arch.startswith("sm_"):
        return GPUTarget("cuda", int(arch[3:]), 32)
    return GPUTarget("hip", arch, 64)


def kernel_text(name, functions):
    """A kernel that calls each of the functions once and keeps what they give."""
    lines = [f"@triton.jit\ndef {name}(p, out, i32, f32):"]
    for index, (function, entry) in enumerate(functions):
        given = []
        for kind in entry["args"]:
            wide = {"float32": "f32", "float64": "f32.to(tl.float64)"}
            given.append("p" if kind == "uint64" else wide.get(kind, "i32"))
        call = f"shmem.{function}({', '.join(given)})"
        lines.append(f"    tl.store(out + {index}, {call}.to(tl.int64))")
    return "\n".join(lines) + "\n"


def every_function(folder):
    """(kernel, signature) of kernels that together call all functions."""
    entries = list(MORI_DEVICE_FUNCTIONS.items())
    groups = [
        entries[at : at + FUNCTIONS_PER_KERNEL]
        for at in range(0, len(entries), FUNCTIONS_PER_KERNEL)
    ]
    path = Path(folder) / "every_function.py"
    texts = [kernel_text(f"kernel_{i}", group) for i, group in enumerate(groups)]
    path.write_text(HEAD + "\n\n".join(texts))
    spec = importlib.util.spec_from_file_location("every_function", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    signature = {"p": "*i64", "out": "*i64", "i32": "i32", "f32": "fp32"}
    for i, group in enumerate(groups):
        yield getattr(module, f"kernel_{i}"), signature, [name for name, _ in group]


def programs():
    """The kernels that run on a GPU in python/tests/gpu."""
    import triton_kernels

    for name, kernel in vars(triton_kernels).items():
        if isinstance(kernel, JITFunction):
            kinds = {one: KINDS.get(one, "*fp32") for one in kernel.arg_names}
            yield kernel, kinds, [name]


def undefined_symbols(data):
    """Global symbols that an ELF64 file leaves undefined."""
    offset = struct.unpack_from("<Q", data, 40)[0]
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
    for section in sections:
        if section[1] not in SYMBOL_TABLES:
            continue
        strings = sections[section[6]][4]
        for at in range(section[4] + 24, section[4] + section[5], 24):
            name, info, _, index = struct.unpack_from("<IBBH", data, at)
            if name and info >> 4 == GLOBAL and index == UNDEFINED:
                yield data[strings + name : data.index(0, strings + name)].decode()


def look(arch, compiled, names):
    """What is wrong with one kernel."""
    nvidia = arch.startswith("sm_")
    text = compiled.asm["ptx" if nvidia else "amdgcn"]
    binary = compiled.asm["cubin" if nvidia else "hsaco"]
    for called in set(re.findall(r"^\s+(?:call\S*\s.*?|s_swappc_b64.*?)(mori_\w+)", text, re.M)):
        yield f"{called} is called, not inlined"
    if not nvidia and "s_swappc_b64" in text:
        yield "there is a call"
    if STATE.encode() not in binary:
        yield f"{STATE} is not a symbol of it"
    yield from (f"leaves {name} undefined" for name in undefined_symbols(binary))
    if any("signal" in name for name in names):
        signal = (
            r"st\.relaxed\.sys|st\.release\.sys" if nvidia else r"global_store_dwordx2.*sc0 sc1"
        )
        before = "fence.acq_rel.sys" if nvidia else "buffer_wbl2 sc0 sc1"
        if not re.search(signal, text) or before not in text:
            yield "has no signal at system scope behind a fence"
    if any("wait" in name for name in names):
        load = r"ld\.acquire\.sys" if nvidia else r"(?:global|flat)_load_dword\S*.*sc0 sc1"
        if not re.search(load, text) or (not nvidia and "buffer_inv sc0 sc1" not in text):
            yield "has no acquiring wait at system scope"


def compile_one(kernel, signature, arch, libraries):
    constants = {(i,): 256 for i, (_, kind) in enumerate(signature.items()) if kind == "constexpr"}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    return triton.compile(source, target=target_of(arch), options={"extern_libs": libraries})


def check_arch(arch, folder):
    libraries, start, count = shmem.get_extern_libs(arch), time.monotonic(), 0
    for kernel, signature, names in (*every_function(folder), *programs()):
        try:
            compiled = compile_one(kernel, signature, arch, libraries)
        except CompilationError as error:
            yield f"{', '.join(names)}: {error}"
            continue
        count += 1
        yield from (f"{', '.join(names)}: {fault}" for fault in look(arch, compiled, names))
    print(f"# {arch}: {count} kernels in {time.monotonic() - start:.0f} s", flush=True)


REFUSED = """
@triton.jit
def tensor_argument(p, out, i32, f32):
    shmem.int64_p(p + tl.arange(0, 16), 1, 0)


@triton.jit
def float_as_integer(p, out, i32, f32):
    shmem.int32_p(p, f32, 0)


@triton.jit
def pointer_as_pe(p, out, i32, f32):
    shmem.int32_p(p, 1, p)
"""
MESSAGES = {
    "tensor_argument": "dest is a tensor of shape [16]; a call acts once for the program",
    "float_as_integer": "value is fp32, expected int32",
    "pointer_as_pe": "pe is a pointer, expected int32",
}


def check_refusals(folder):
    """Mistakes that the compilation stops at, each with its reason."""
    path = Path(folder) / "refused.py"
    path.write_text(HEAD + textwrap.dedent(REFUSED))
    spec = importlib.util.spec_from_file_location("refused", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    signature = {"p": "*i64", "out": "*i64", "i32": "i32", "f32": "fp32"}
    for name, message in MESSAGES.items():
        try:
            compile_one(getattr(module, name), signature, "sm_90", shmem.get_extern_libs("sm_90"))
        except CompilationError as error:
            if message not in str(error):
                yield f"{name}: said {error}"
        else:
            yield f"{name} was compiled"


def main():
    version, failed = triton.__version__, 0
    with tempfile.TemporaryDirectory() as folder:
        checks = [
            (f"kernels for {arch}", check_arch(arch, folder)) for arch in sys.argv[2:] or ARCHS
        ]
        checks.append(("mistakes are refused with a reason", check_refusals(folder)))
        for title, faults in checks:
            found = list(faults)
            print(f"{'not ok' if found else 'ok'} - Triton {version}: {title}", flush=True)
            print(*(f"  {one}" for one in found[:20]), sep="\n", end="\n" if found else "")
            failed += bool(found)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
