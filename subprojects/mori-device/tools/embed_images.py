#!/usr/bin/env python3
"""Writes the assembler file that embeds a library's GPU code.

It defines SET_images, an array of device_image (see mori/device/gpu.hpp), and SET_image_count. The
files are included by the assembler, uncompressed and aligned to 4096 bytes; their hashes are in the
text, so that the output changes when one of them does. Without objects the array is empty.

usage: embed_images.py SET OUTPUT.S OBJECT...       names end in -ARCHITECTURE.hsaco or .cubin
"""

import hashlib
import pathlib
import re
import sys


def architecture(path):
    found = re.search(r"-(gfx\w+|sm_\d+)\.(hsaco|cubin)$", path.name)
    if not found:
        sys.exit(f"{path}: the name does not end in -ARCHITECTURE.hsaco or .cubin")
    return found[1]


def data_of(number, path):
    yield f"# sha256 {hashlib.sha256(path.read_bytes()).hexdigest()}"
    yield ".balign 4096"
    yield f".Limage{number}:"
    yield f'.incbin "{path.resolve()}"'
    yield f".Lend{number}:"
    yield f'.Lname{number}: .asciz "{architecture(path)}"'


def symbol(name):
    return [f".globl {name}", f".hidden {name}", f".type {name}, @object", f"{name}:"]


def table(name, paths):
    yield '.section .data.rel.ro, "aw", @progbits'
    yield ".balign 8"
    yield from symbol(f"{name}_images")
    for i in range(len(paths)):
        yield f".quad .Lname{i}, .Limage{i}, .Lend{i} - .Limage{i}"
    yield ".quad 0, 0, 0"
    yield from symbol(f"{name}_image_count")
    yield f".quad {len(paths)}"


def main():
    name, output, *objects = sys.argv[1:]
    paths = [pathlib.Path(each) for each in objects]
    lines = ["# Made by embed_images.py.", '.section .rodata.device_images, "a", @progbits']
    for number, path in enumerate(paths):
        lines += data_of(number, path)
    lines += table(name, paths)
    lines.append('.section .note.GNU-stack, "", @progbits')
    pathlib.Path(output).write_text("\n".join(lines) + "\n")


main()
