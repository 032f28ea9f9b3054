#!/usr/bin/env python3
"""Compiles exports.cpp to bitcode for one GPU architecture, with clang alone.

  build_bitcode.py --clang CLANG++ --arch gfx942|sm_90|... --source FILE --output FILE
                   [--include FOLDER]... [--depfile FILE]
  build_bitcode.py ... --preprocess    writes one self-contained source for the vendor instead,
                                       from which bitcode for other architectures is built later

The result links into modules that other LLVMs made: it carries no processor and no features (the
reader's own hold), no code object version and no other module flag that could disagree with the
reader's, and nothing of the compiler's that only it understands. LLVM reads bitcode of its own
version and of older ones, so the oldest clang that can compile the source should be taken.
Also used by the Python package; standard library only.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT_S = 300
SHARED = ["-std=c++20", "-O2", "-ffp-contract=off", "-fgpu-rdc", "-Wall", "-Wextra", "-Werror"]
VENDORS = {
    # Code object version 5 is where the block's size is read from; the flag that says so is
    # dropped, since 6 lays out the same. No cuid: the same bytes in every folder.
    "amd": ["-x", "hip", "-mcode-object-version=5", "-fuse-cuid=none", "-nogpulib", "-nogpuinc"],
    "nvidia": ["-x", "cuda", "-nocudalib", "-nocudainc", "-Wno-unknown-cuda-version"],
}
# What an older clang may compile for in place of an architecture that it does not know yet: the
# source does not depend on the difference, and the result does not carry it.
STAND_INS = {"gfx950": "gfx942"}
NEWEST_NVIDIA = "sm_90"

ATTRIBUTE = re.compile(r'\s"[^"]*"(?:="[^"]*")?')
SHARED_VARIABLE = re.compile(r"^(@\S+ = )linkonce_odr (?:hidden |dso_local )*(.*?), comdat(.*)$")
# Of the compiler's own: identifiers and constants that no function here reads.
DROPPED = re.compile(
    r"^(?:@__hip_cuid\w* =|@__oclc_ABI_version =|@llvm\.compiler\.used =|\$\S+ = comdat |"
    r"!llvm\.module\.flags =)"
)
ATTACHED = re.compile(r", !(?:srcloc|tbaa) !\d+")
SHARED_FUNCTION = re.compile(r"^define linkonce_odr (?:hidden |dso_local )*(.*) comdat( .*)$")
LINKAGE = re.compile(r"^(define|@mori_\w+ =) (?:protected |hidden |dso_local )*(.*)$")


class BuildError(Exception):
    """The compiler refused; the text is its own."""


def vendor_of(arch: str) -> str:
    if re.fullmatch(r"gfx[0-9a-f]+(-\w+)*", arch):
        return "amd"
    if re.fullmatch(r"sm_\d+[a-z]?", arch):
        return "nvidia"
    raise BuildError(f"{arch!r} is no architecture: expected gfxNNN or sm_NN")


def attempts(arch: str) -> list[str]:
    stand_in = NEWEST_NVIDIA if vendor_of(arch) == "nvidia" else STAND_INS.get(arch)
    return [arch, stand_in] if stand_in not in (None, arch) else [arch]


def run(command: list[str], text: str | None = None) -> str:
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(str(error)) from None
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}:\n{done.stderr}")
    return done.stdout


def compiler(clang: str, arch: str, includes: list[str]) -> list[str]:
    folders = [part for folder in includes for part in ("-I", folder)]
    own = VENDORS[vendor_of(arch)]
    if vendor_of(arch) == "amd":
        own = [*own, "--no-gpu-bundle-output"]
    return [clang, *own, "--cuda-device-only", f"--offload-arch={arch}", *SHARED, *folders]


def clean(text: str) -> str:
    """The module without what ties it to the compiler and the processor."""
    lines = []
    for line in text.splitlines():
        if DROPPED.match(line):
            continue
        if line.startswith("attributes #"):
            line = ATTRIBUTE.sub("", line)
        elif line.startswith("source_filename"):
            line = 'source_filename = "libmori_shmem_device"'
        elif line.startswith("; ModuleID"):
            continue
        line = SHARED_VARIABLE.sub(r"\1internal \2\3", line)
        line = SHARED_FUNCTION.sub(r"define internal \1\2", line)
        # Protected: found by the driver, and read without a detour over a table of addresses.
        line = LINKAGE.sub(r"\1 \2" if line.startswith("define") else r"\1 protected \2", line)
        lines.append(ATTACHED.sub("", line))
    return "\n".join(lines) + "\n"


def front_end(clang: str, arch: str, options: argparse.Namespace, *output: str) -> str:
    """Runs the compiler for the architecture or its stand-in; returns what it wrote."""
    refused: BuildError | None = None
    for one in attempts(arch):
        try:
            return run([*compiler(clang, one, options.include), *output])
        except BuildError as error:
            refused = refused or error
            if one not in str(error).split(":\n", 1)[-1]:
                break
    assert refused is not None
    raise refused


def build(options: argparse.Namespace) -> None:
    depfile = []
    if options.depfile:
        given = ("-dependency-file", options.depfile, "-MT", options.output)
        depfile = [part for one in given for part in ("-Xclang", one)]
    if options.preprocess:
        what = ["-E", "-P", *depfile, options.source, "-o", "-"]
        text = front_end(options.clang, options.arch, options, *what)
        Path(options.output).write_text(text)
        return
    what = ["-S", "-emit-llvm", *depfile, options.source, "-o", "-"]
    module = clean(front_end(options.clang, options.arch, options, *what))
    triple = re.search(r'^target triple = "(.*)"$', module, re.M)
    assert triple, "the compiler names no target"
    with tempfile.TemporaryDirectory() as folder:
        listing = Path(folder, "module.ll")
        listing.write_text(module)
        # Assembled by the same clang, which also verifies it.
        made = Path(folder, "module.bc")
        run(
            [
                *(options.clang, "-x", "ir", f"--target={triple[1]}", "-c", "-emit-llvm"),
                *("-nogpulib", "-Xclang", "-disable-llvm-passes", str(listing), "-o", str(made)),
            ]
        )
        # In one step: another process may be reading.
        target = Path(options.output)
        partial = target.with_name(f".{target.name}.{Path(folder).name}")
        partial.write_bytes(made.read_bytes())
        partial.replace(target)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("clang", "arch", "source", "output"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--depfile")
    parser.add_argument("--preprocess", action="store_true")
    try:
        build(parser.parse_args(arguments))
    except BuildError as error:
        print(f"build_bitcode.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
