#!/usr/bin/env python3
"""Generates the cffi declarations of the C headers.

    build_cdef.py HEADER_DIR OUTPUT_DIR

Takes every `/* cdef: begin */ ... /* cdef: end */` block below HEADER_DIR/mori, in the order of
the headers' own #include lines, and the headers' integer macros, and writes them as one
out-of-line ABI-mode module, OUTPUT_DIR/_cdef_mori.py. One module for all headers, so that a
`mori_shmem *` made by one library is the same type to the next. Nothing is compiled and nothing
is typed twice: what is not in a header is not in the module. Read mori/_ffi.py next.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

MODULE = "_cdef_mori"
_BEGIN, _END = "/* cdef: begin */", "/* cdef: end */"
_INCLUDE = re.compile(r"^#include <mori/(\w+\.h)>", re.MULTILINE)
# Integer macros outside the blocks: versions and sizes; guards and function-like ones are not.
_MACRO = re.compile(r"^#define (MORI_[A-Z0-9_]+) (0[xX][0-9a-fA-F]+|\d+)[uUlL]*$", re.MULTILINE)


class HeaderError(Exception):
    """A header does not have the expected form; the message says where."""


def block_of(name: str, text: str) -> str:
    """The declarations of one header, without what only a C compiler needs."""
    if text.count(_BEGIN) != 1 or text.count(_END) != 1:
        raise HeaderError(
            f"{name}: {text.count(_BEGIN)} '{_BEGIN}' and {text.count(_END)} '{_END}', "
            "exactly one of each is needed"
        )
    start, end = text.index(_BEGIN) + len(_BEGIN), text.index(_END)
    if start > end:
        raise HeaderError(f"{name}: '{_END}' stands before '{_BEGIN}'")
    return re.sub(r"\bMORI_API\s+", "", text[start:end]).strip("\n")


def declarations(header_dir: Path) -> str:
    """All blocks and macros below header_dir/mori, each header after those it includes."""
    texts = {path.name: path.read_text("utf-8") for path in (header_dir / "mori").glob("*.h")}
    texts = {name: text for name, text in texts.items() if _BEGIN in text or _END in text}
    if not texts:
        raise HeaderError(f"no header with a cdef block below {header_dir / 'mori'}")
    ordered: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise HeaderError("headers include each other: " + " -> ".join((*path, name)))
        if name in ordered or name not in texts:
            return
        for included in _INCLUDE.findall(texts[name]):
            visit(included, (*path, name))
        ordered.append(name)

    for name in sorted(texts):
        visit(name, ())
    parts = []
    for name in ordered:
        parts.append(f"/* mori/{name} */\n{block_of(name, texts[name])}")
        parts.extend(f"#define {macro} {value}" for macro, value in _MACRO.findall(texts[name]))
    return "\n".join(parts) + "\n"


def generate(header_dir: Path, output_dir: Path) -> Path:
    """Writes the module and returns its path; an unchanged module keeps its time stamp."""
    import cffi

    builder = cffi.FFI()
    builder.cdef(declarations(header_dir))
    builder.set_source(MODULE, None)
    output_dir.mkdir(parents=True, exist_ok=True)
    path = output_dir / f"{MODULE}.py"
    builder.emit_python_code(str(path))
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description="generate the cffi declarations")
    parser.add_argument("header_dir", type=Path, help="folder that holds mori/base.h")
    parser.add_argument("output_dir", type=Path, help=f"where {MODULE}.py goes")
    arguments = parser.parse_args()
    try:
        print(generate(arguments.header_dir, arguments.output_dir))
    except (HeaderError, OSError) as error:
        print(f"build_cdef.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
