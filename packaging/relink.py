#!/usr/bin/env python3
"""Links the three libraries of a build once more, as a wheel carries them, from the same objects.

A wheel runs where the C++ library may be older than ours, so it calls versions that both have
(older_symbols.c); libmori-ep finds libmori-shmem beside itself; symbols that nobody can bind to are
dropped. Then it is checked what the results ask of a system: versions of symbols, and libraries.
The platform tag promises no more: NEWEST is what the policy manylinux_2_34 has.

usage: relink.py BUILD_FOLDER OUTPUT_FOLDER
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys

NINJA = os.environ.get("NINJA", "ninja")
NEWEST = {"GLIBC": (2, 34), "GCC": (11, 0), "CXXABI": (1, 3, 13), "GLIBCXX": (3, 4, 29)}
NEEDED = {
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "ld-linux-x86-64.so.2",
    "libmori-shmem.so.0",
}
LIBRARY = re.compile(r"^(subprojects/libmori-(\w+)/libmori-\w+\.so\.[\d.]+): cp*_LINKER", re.M)
LINK = ["-Wl,-z,relro,-z,now", "-Wl,-z,noexecstack", "-Wl,-rpath,$ORIGIN"]
OLDER = pathlib.Path(__file__).with_name("older_symbols.c")


def output_of(*command, folder=None):
    return subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True, timeout=300
    ).stdout


def link(build, target, result):
    """The build's own link command, with another output and more options."""
    command = shlex.split(output_of(NINJA, "-t", "commands", "-s", target, folder=build))
    # Where the build tree has the other library; a wheel has it elsewhere.
    command = [word for word in command if not word.startswith("-Wl,-rpath,")]
    command[command.index("-o") + 1] = str(result)
    wrapped = re.findall(r"^void __wrap_(\w+)\(.*\);$", OLDER.read_text(), re.M)
    older = result.with_suffix(".older.o")
    output_of("cc", "-O2", "-fPIC", "-fvisibility=hidden", "-c", str(OLDER), "-o", str(older))
    wraps = [f"-Wl,--wrap={name}" for name in wrapped]
    # As part of the group that links each other.
    command.insert(command.index("-Wl,--whole-archive"), str(older))
    output_of(*command, *wraps, *LINK, folder=build)
    older.unlink()
    output_of("strip", "--strip-unneeded", "--remove-section=.comment", str(result))


def demands(path):
    """What a library asks of the system beyond what the platform tag promises."""
    dynamic = output_of("readelf", "-dW", str(path))
    for name in re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic):
        if name not in NEEDED:
            yield f"needs {name}"
    symbols = output_of("objdump", "-T", str(path))
    for kind, version in set(re.findall(r"\((GLIBC|GCC|CXXABI|GLIBCXX)_([\d.]+)\)", symbols)):
        if tuple(map(int, version.split("."))) > NEWEST[kind]:
            yield f"needs {kind}_{version}, newer than {'.'.join(map(str, NEWEST[kind]))}"
    if "BIND_NOW" not in dynamic:
        yield "is bound lazily"
    segments = output_of("readelf", "-lW", str(path))
    if "GNU_RELRO" not in segments:
        yield "has no RELRO segment"
    if not re.search(r"GNU_STACK.* RW +0x", segments):
        yield "has an executable stack"


def main(build, folder):
    folder.mkdir(parents=True, exist_ok=True)
    targets = LIBRARY.findall(output_of(NINJA, "-t", "targets", "all", folder=build))
    if sorted(name for _, name in targets) != ["ep", "io", "shmem"]:
        sys.exit(f"relink.py: {build} builds {targets}, not the three libraries")
    faults = []
    for target, name in targets:
        if not (build / target).exists():
            sys.exit(f"relink.py: {build / target} is not built")
        result = folder / f"libmori-{name}.so.0"
        link(build, target, result.resolve())
        faults += [f"{result.name} {fault}" for fault in demands(result)]
    for fault in faults:
        print(f"relink.py: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: relink.py BUILD_FOLDER OUTPUT_FOLDER")
    sys.exit(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
