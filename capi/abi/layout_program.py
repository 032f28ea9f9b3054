#!/usr/bin/env python3
"""Writes a C program that prints what a compiler makes of the headers: the size of every struct,
the offset and size of every field, the value of every enumerator. layout.txt keeps its output.

usage: layout_program.py CAPI_FOLDER OUTPUT.c
"""

import pathlib
import sys

import c_header


def program(headers):
    lines = ["#include <mori.h>", "#include <stddef.h>", "#include <stdio.h>", ""]
    lines += ["#define FIELD(s, f) \\"]
    lines += ['  printf("  %4zu %4zu %s\\n", offsetof(s, f), sizeof(((s *)0)->f), #f)']
    lines += ["", "int main(void) {"]
    for header in headers:
        lines.append(f'  printf("# mori/{header.name}.h\\n");')
        for name, kind in header.typedefs.items():
            if not kind.startswith("struct "):
                lines.append(f'  printf("typedef %zu {name}\\n", sizeof({name}));')
        for name in header.enumerators:
            lines.append(f'  printf("enum %d {name}\\n", {name});')
        for struct in header.structs:
            lines.append(f'  printf("struct %zu {struct.name}\\n", sizeof({struct.name}));')
            lines += [f"  FIELD({struct.name}, {field});" for field in struct.fields]
    return "\n".join([*lines, "  return 0;", "}", ""])


if __name__ == "__main__":
    pathlib.Path(sys.argv[2]).write_text(program(c_header.parse_all(sys.argv[1])))
