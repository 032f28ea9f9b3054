#!/usr/bin/env python3
"""Writes a C header that names every struct of the C headers that begins with struct_size, so that
the test of the struct_size rule can tell when it has missed one.

usage: sized_structs.py CAPI_FOLDER OUTPUT.h
"""

import pathlib
import sys

import c_header


def names(headers):
    """Device state is versioned by level, not by size: it is not among them."""
    return [
        struct.name
        for header in headers
        if header.name != "shmem_device"
        for struct in header.structs
        if struct.fields[0] == "struct_size"
    ]


if __name__ == "__main__":
    entries = "".join(f'  "{name}",\n' for name in names(c_header.parse_all(sys.argv[1])))
    text = f"static const char *const sized_structs[] = {{\n{entries}}};\n"
    pathlib.Path(sys.argv[2]).write_text(text)
