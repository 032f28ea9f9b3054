#!/usr/bin/env python3
"""Compiles every kernel of the configured build for the GPU architectures that it names and looks
at what came out: the right machine and architecture, at least one kernel, nothing left undefined.

Nothing is executed. A vendor whose compiler is absent is reported as skipped.

usage: device_objects.py BUILD_FOLDER
"""

import json
import pathlib
import re
import struct
import subprocess
import sys

MACHINES = {".hsaco": (224, "AMD GPU"), ".cubin": (190, "NVIDIA GPU")}
GLOBAL_FUNCTION, GLOBAL_OBJECT, UNDEFINED = 2, 1, 0
SECTION_SYMBOLS, SECTION_DYNAMIC_SYMBOLS = 2, 11


def objects_of(build):
    text = (build / "meson-info/intro-targets.json").read_text()
    for target in json.loads(text):
        for name in target["filename"]:
            if pathlib.Path(name).suffix in MACHINES:
                yield pathlib.Path(name)


def symbols(data):
    """(name, type, binding, section index) of all symbols of an ELF64 file."""
    offset, size, count = (
        struct.unpack_from("<Q", data, 40)[0],
        *struct.unpack_from("<HH", data, 58),
    )
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
    for section in sections:
        if section[1] not in (SECTION_SYMBOLS, SECTION_DYNAMIC_SYMBOLS):
            continue
        strings = sections[section[6]][4]
        for at in range(section[4] + 24, section[4] + section[5], 24):
            name, info, _, index = struct.unpack_from("<IBBH", data, at)
            end = data.index(0, strings + name)
            yield data[strings + name : end].decode(), info & 15, info >> 4, index


def check_object(path):
    data = path.read_bytes()
    machine, title = MACHINES[path.suffix]
    if data[:5] != b"\x7fELF\x02" or struct.unpack_from("<H", data, 18)[0] != machine:
        yield f"not a 64-bit ELF file for an {title}"
        return
    arch = re.search(r"(gfx\w+|sm_\d+)", path.name)[1]
    # AMD files name their architecture in a note, NVIDIA ones in the options ptxas was given.
    if arch.encode() not in data:
        yield f"does not name {arch}"
    found = list(symbols(data))
    if not any(kind == GLOBAL_FUNCTION and binding and index for _, kind, binding, index in found):
        yield "defines no kernel"
    for name, _, binding, index in found:
        if name and binding == 1 and index == UNDEFINED:
            yield f"leaves {name} undefined"


def main(build):
    paths = sorted(set(objects_of(build)))
    names = [str(path.relative_to(build)) for path in paths]
    done = subprocess.run(["ninja", "-C", str(build), "-j2", "-k", "0", *names]) if names else None
    good = bool(done) and done.returncode == 0
    for path in paths:
        faults = list(check_object(path)) if path.exists() else ["was not built"]
        print(f"{'not ok' if faults else 'ok'} - {path.name}", *faults, sep="\n  ")
        good &= not faults
    for suffix, (_, title) in MACHINES.items():
        if not any(path.suffix == suffix for path in paths):
            print(f"skip - no compiler for an {title} here")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
