#!/usr/bin/env python3
"""Checks compiled kernels by their ELF symbols.

check_objects.py entries SOURCE OBJECT...
    every MORI_KERNEL of SOURCE is a global function in every GPU object.
check_objects.py variants ARCHIVE ARCHIVE...
    no symbol is defined, global or weak, by two archives: the linker
    could otherwise put code for a newer instruction set in place of the
    baseline's, and that would only be noticed on an old processor.
check_objects.py releases OBJDUMP OBJECT...
    in AMD code, each write-back of the L2 is waited for before the next store:
    some compilers drop that wait (see mori/device/atomic_amd.hpp).
"""

import re
import struct
import subprocess
import sys
from pathlib import Path

STB_GLOBAL, STB_WEAK, STT_FUNC, SHT_SYMTAB, SHT_DYNSYM = 1, 2, 2, 2, 11


def symbols(image, wanted_tables=(SHT_SYMTAB, SHT_DYNSYM)):
    """Yields (name, binding, type, section) of a 64-bit little-endian ELF image."""
    assert image[:6] == b"\x7fELF\x02\x01", "not a 64-bit little-endian ELF file"
    section_offset = struct.unpack_from("<Q", image, 0x28)[0]
    entry_bytes, count = struct.unpack_from("<HH", image, 0x3A)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", image, section_offset + i * entry_bytes)
        for i in range(count)
    ]
    for section in sections:
        if section[1] not in wanted_tables:
            continue
        names = sections[section[6]]
        for at in range(section[4], section[4] + section[5], 24):
            name_at, info, _, index = struct.unpack_from("<IBBH", image, at)
            start = names[4] + name_at
            name = image[start : image.index(b"\0", start)].decode()
            yield name, info >> 4, info & 15, index


def archive_members(path):
    """Yields the ELF members of a static library, thin or not."""
    data = path.read_bytes()
    thin = data[:8] == b"!<thin>\n"
    assert thin or data[:8] == b"!<arch>\n", f"{path} is not an archive"
    long_names = b""
    at = 8
    while at < len(data):
        name = data[at : at + 16].rstrip()
        size = int(data[at + 48 : at + 58])
        body = data[at + 60 : at + 60 + size]
        special = name in (b"/", b"/SYM64/", b"//")
        if name == b"//":
            long_names = body
        if not special:
            if thin:
                start = int(name[1:])
                member = long_names[start : long_names.index(b"/\n", start)].decode()
                yield (path.parent / member).read_bytes()
            else:
                yield body
        if special or not thin:
            at += size + size % 2
        at += 60


def check_entries(source, objects):
    names = re.findall(r"^MORI_KERNEL\(\s*(\w+)", Path(source).read_text(), re.MULTILINE)
    problems = [] if names else [f"{source}: no MORI_KERNEL found"]
    for path in objects:
        defined = {
            name
            for name, binding, kind, section in symbols(Path(path).read_bytes())
            if binding == STB_GLOBAL and kind == STT_FUNC and section != 0
        }
        problems += [f"{path}: no entry point {name}" for name in names if name not in defined]
    return problems


def check_variants(archives):
    problems = []
    owners = {}
    for path in map(Path, archives):
        defined = {
            name
            for image in archive_members(path)
            for name, binding, _, section in symbols(image, (SHT_SYMTAB,))
            if binding in (STB_GLOBAL, STB_WEAK) and section != 0
        }
        if not defined:
            problems.append(f"{path}: defines nothing")
        for name in sorted(defined):
            if name in owners:
                problems.append(f"{name}: defined by {owners[name]} and by {path}")
            owners[name] = path
    return problems


def check_releases(objdump, objects):
    problems = []
    store = re.compile(r"(global|flat|buffer|scratch)_(store|atomic)|s_(endpgm|barrier|setpc)")
    for path in objects:
        listing = subprocess.run(
            [objdump, "-d", "--no-show-raw-insn", path], check=True, capture_output=True, text=True
        ).stdout
        pending, count, function = False, 0, ""
        for line in listing.splitlines():
            if line.endswith(">:"):
                function = line.split("<")[1][:-2]
            text = line.strip()
            if text.startswith("buffer_wbl2"):
                pending, count = True, count + 1
            elif text.startswith("s_waitcnt") and "vmcnt(0)" in text:
                pending = False
            elif pending and store.match(text):
                problems.append(f"{path}: {function}: no wait between buffer_wbl2 and {text}")
                pending = False
        if count == 0:
            problems.append(f"{path}: no buffer_wbl2 found, so nothing was checked")
    return problems


def main(arguments):
    if arguments[:1] == ["entries"] and len(arguments) >= 3:
        problems = check_entries(arguments[1], arguments[2:])
    elif arguments[:1] == ["variants"] and len(arguments) >= 2:
        problems = check_variants(arguments[1:])
    elif arguments[:1] == ["releases"] and len(arguments) >= 3:
        problems = check_releases(arguments[1], arguments[2:])
    else:
        sys.exit(__doc__)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
