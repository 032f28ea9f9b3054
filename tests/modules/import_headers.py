#!/usr/bin/env python3
"""Writes headers that import a private crate's module in place of its headers, so that the crate's
unit tests, as they are, can be built by import too.

Each header of the crate becomes one that imports the module and repeats the macros, which modules
do not carry. prelude.hpp includes every header of the standard library and of doctest that the
crate or its tests use, to be put before everything: an import must come after them.

usage: import_headers.py CRATE_FOLDER MODULE OUTPUT_FOLDER STAMP_FILE
"""

import pathlib
import re
import sys

INCLUDE = re.compile(r"^#include <([^>]+)>", re.M)
MACRO = re.compile(r"^#define \w+\((?:[^\\\n]|\\\n|\\[^\n])*", re.M)


def main(crate, module, output):
    headers = sorted((crate / "include/mori" / module).glob("*.hpp"))
    outside = set()
    for path in (*headers, *(crate / "tests").glob("*.[ch]pp")):
        outside |= {
            name
            for name in INCLUDE.findall(path.read_text())
            if not name.startswith(f"mori/{module}/")
        }
    folder = output / "mori" / module
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"#include <{name}>" for name in sorted(outside)]
    (output / "prelude.hpp").write_text("\n".join(["#pragma once", *lines, ""]))
    for path in headers:
        macros = MACRO.findall(path.read_text())
        lines = ["#pragma once", f"import mori.{module};", *macros, ""]
        (folder / path.name).write_text("\n".join(lines))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3]))
    pathlib.Path(sys.argv[4]).touch()
