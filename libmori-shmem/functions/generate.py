#!/usr/bin/env python3
"""Writes what follows from declarations.py, each file whole:

  include/mori/shmem_functions.h     of libmori-shmem: declarations for C, C++, HIP and CUDA kernels
  functions/exports.cpp              the exports of the bitcode
  ir/_functions.py                   of the Python package: MORI_DEVICE_FUNCTIONS
  ir/triton/_wrappers.py             the functions that Triton kernels call
  docs/device_functions.md           the reference page

usage: generate.py            writes them
       generate.py --check    says which of them are not what would be written, and fails then
"""

from __future__ import annotations

import difflib
import sys
import textwrap
from pathlib import Path

from declarations import ARGUMENTS, FUNCTIONS, GROUPS, SECTIONS, TYPES, Function

ROOT = Path(__file__).resolve().parents[2]
CPP = {"f32": "float", "f64": "double"}
BY_HAND = "generated from libmori-shmem/functions/declarations.py"
COLUMNS = 100


def wrapped(text: str, first: str, rest: str, width: int = COLUMNS) -> str:
    return textwrap.fill(
        text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )


def by_section() -> list[tuple[str, list[Function]]]:
    return [
        (title, [one for one in FUNCTIONS if one.section == section])
        for section, title in SECTIONS.items()
    ]


# --- The C header.

HEADER = """/* shmem_functions.h - the functions of libmori_shmem_device-ARCH.bc, for kernels in
 * C, C++, HIP or CUDA that are linked with it.
 * {by_hand}.
 *
 * mori_shmem_X is executed by the lanes of its group (one lane, those of a wave, those
 * of a block), all with the same arguments. mori_shmem_program_X is called by all
 * lanes of a block, acts once and gives its result to all of them; they meet before
 * and after it. The reference page, docs/device_functions.md, says what each does.
 *
 * The module that the kernel is in holds the state: mori_shmem_module_init() of
 * mori/shmem_module.h sets it. Without it, and after the context has ended, the
 * functions do nothing and return MORI_E_STATE (2), or what the page says.
 *
 * mori/shmem.h has host functions of the names mori_shmem_my_pe and
 * mori_shmem_ptr_p2p: include one of the two headers in a source for the host.
 */
#ifndef MORI_SHMEM_FUNCTIONS_H
#define MORI_SHMEM_FUNCTIONS_H

/* What a function that kernels call is marked with: HIP's and CUDA's compilers
 * take the attribute, a plain C compiler for a GPU needs none (define it empty). */
#if !defined(MORI_DEVICE_CALL)
#define MORI_DEVICE_CALL __attribute__((device))
#endif

#if !defined(MORI_DEVICE_NAME)
#define MORI_DEVICE_NAME(name) mori_shmem_##name
#endif

#ifdef __cplusplus
extern "C" {{
#endif

#define MORI_LOOKUP(result, name, parameters) \\
  MORI_DEVICE_CALL result MORI_DEVICE_NAME(name) parameters;
#define MORI_FUNCTION(result, name, parameters) \\
  MORI_LOOKUP(result, name, parameters)         \\
  MORI_LOOKUP(result, program_##name, parameters)

/* clang-format off */
{body}
/* clang-format on */
#undef MORI_FUNCTION
#undef MORI_LOOKUP

#ifdef __cplusplus
}}
#endif

#endif /* MORI_SHMEM_FUNCTIONS_H */
"""

# No header is included: device compilers find none for the GPU.
FUNDAMENTAL = {
    "i8": "signed char",
    "i16": "short",
    "i32": "int",
    "i64": "long long",
    "u8": "unsigned char",
    "u16": "unsigned short",
    "u32": "unsigned int",
    "u64": "unsigned long long",
    "f32": "float",
    "f64": "double",
}


def parameters(function: Function, types: dict[str, str], none: str) -> str:
    given = ", ".join(f"{types.get(kind, kind)} {name}" for kind, name in function.arguments)
    return given or none


def header() -> str:
    lines = []
    for title, functions in by_section():
        lines.append(f"/* {title} */")
        for one in functions:
            macro = "MORI_LOOKUP" if one.pure else "MORI_FUNCTION"
            given = parameters(one, FUNDAMENTAL, "void")
            text = f"{macro}({FUNDAMENTAL[one.result]}, {one.name}, ({given}))"
            lines.append(wrapped(text, "", "    "))
        lines.append("")
    return HEADER.format(by_hand=BY_HAND.capitalize(), body="\n".join(lines))


# --- The exports.


def exports() -> str:
    lines = [
        "// exports.cpp - every device function as an export of the bitcode; see exports.hpp.",
        f"// {BY_HAND.capitalize()}.",
        "// clang-format off: the generator's own layout.",
        '#include "exports.hpp"',
        "",
        'extern "C" {',
        "MORI_MODULE_STATE mori_shmem_device_state_v2 mori_shmem_module_state_v2;",
        "}",
        "",
        "using mori::device::i8, mori::device::i16, mori::device::i32, mori::device::i64;",
        "using mori::device::u8, mori::device::u16, mori::device::u32, mori::device::u64;",
        "",
    ]
    for one in FUNCTIONS:
        macro = "MORI_EXPORT_LOOKUP" if one.pure else "MORI_EXPORT"
        result = CPP.get(one.result, one.result)
        head = (
            f"{macro}({result}, {one.name}, {GROUPS[one.group]}, {one.dead},"
            f" ({parameters(one, CPP, '')}),".replace("i32 qp)", "[[maybe_unused]] i32 qp)")
        )
        lines.append(wrapped(head, "", "            "))
        lines.append(wrapped(f"{one.body});", "    ", "        "))
    return "\n".join(lines) + "\n"


# --- The Python table.

TABLE = '''"""The device functions: symbols, types and meaning.

{by_hand}.

`symbol` is executed by the lanes of its group; `program_symbol` is called by all lanes of a block
and acts once, which is what a statement of a Triton program does.
"""

from __future__ import annotations

from typing import Any

SIGNAL_SET = 9
SIGNAL_ADD = 10

# NAME GROUP RESULT ARGUMENTS: MEANING, where group "-" marks what only looks something up.
_LIST = """\\
{lines}
"""


def _entry(line: str) -> tuple[str, dict[str, Any]]:
    declaration, meaning = line.split(": ", 1)
    name, group, result, *arguments = declaration.split()
    pairs = [argument.split("/") for argument in arguments]
    symbol, pure = f"mori_shmem_{{name}}", group == "-"
    entry: dict[str, Any] = {{
        "symbol": symbol,
        "args": [kind for kind, _ in pairs],
        "ret": result,
        "arg_names": [argument for _, argument in pairs],
        "scope": "thread" if pure else group,
        "program_symbol": symbol if pure else f"mori_shmem_program_{{name}}",
        "doc": meaning,
    }}
    if pure:
        entry["pure"] = True
    return name, entry


# {count} entries: "symbol", "args", "ret", "arg_names", "scope" ("thread", "warp" or "block"),
# "program_symbol", "doc", and "pure": True for those that only look something up.
MORI_DEVICE_FUNCTIONS: dict[str, dict[str, Any]] = dict(map(_entry, _LIST.splitlines()))
'''
PYTHON_TYPES = {
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "f32": "float32",
    "f64": "float64",
}


def table() -> str:
    lines = []
    for one in FUNCTIONS:
        arguments = "".join(f" {PYTHON_TYPES[kind]}/{name}" for kind, name in one.arguments)
        declaration = (
            f"{one.name} {'-' if one.pure else one.group} {PYTHON_TYPES[one.result]}{arguments}"
        )
        lines.append(wrapped(f"{declaration}: {one.means}", "", "", 10_000))
    for line in lines:
        assert not {'"', "\\"} & set(line), line
    folded = "\n".join(wrapped(line, "", "", 98).replace("\n", " \\\n") for line in lines)
    return TABLE.format(by_hand=BY_HAND.capitalize(), lines=folded, count=len(FUNCTIONS))


# --- The Triton wrappers.

WRAPPERS = '''"""The device functions for kernels under @triton.jit.

{by_hand}. A call acts once in each
program, whatever its number of warps: see mori/ir/triton/__init__.py.
"""

from __future__ import annotations

from triton.language.core import extern as _extern

from mori.ir.triton._call import call as _call

'''


def wrappers() -> str:
    parts = [WRAPPERS.format(by_hand=BY_HAND.capitalize())]
    for one in FUNCTIONS:
        names = [name for _, name in one.arguments]
        given = [f"{name}=0" if name == "qp" else name for name in names]
        head = f"def {one.name}({', '.join([*given, '_semantic=None'])}):"
        if len(head) > COLUMNS:
            head = f"def {one.name}(\n    {', '.join([*given, '_semantic=None'])}\n):"
        passed = f"({names[0]},)" if len(names) == 1 else f"({', '.join(names)})"
        body = f'    return _call("{one.name}", {passed}, _semantic)'
        if len(body) > COLUMNS:
            lines = (f'"{one.name}"', passed, "_semantic")
            body = "    return _call(\n" + "".join(f"        {line},\n" for line in lines) + "    )"
        parts.append(f"\n@_extern\n{head}\n{body}\n\n")
    return "".join(parts).rstrip("\n") + "\n"


# --- The reference page.

PAGE = """# Device functions

Generated from `libmori-shmem/functions/declarations.py`. What they are for and how to link them is
in [device_bitcode.md](device_bitcode.md). There are {count}.

Every function is exported as `mori_shmem_NAME`. It is executed by the lanes of its scope: `thread`
by the lane that calls it, each lane for itself; `warp` by all lanes of a wave and `block` by all
lanes of a block, with the same arguments, once for all of them. All but the queries are exported a
second time, as `mori_shmem_program_NAME`: all lanes of a block call it with the same arguments, it
acts once, and all lanes get the result; they meet before it and after it. The functions of
`mori.ir.triton` are these.

Addresses are 64-bit integers, of global memory. What goes wrong is recorded as the context's fault,
which the host sees, and told by the result: functions whose result is a status give 0 (MORI_OK) or
a `MORI_E_*` of `mori/base.h`; MORI_E_STATE where no context stands behind the module, because
`mori_shmem_module_init` was not called or the context has ended.

| argument | meaning |
| --- | --- |
{arguments}
"""


def page() -> str:
    arguments = "\n".join(f"| `{name}` | {text} |" for name, text in ARGUMENTS.items())
    parts = [PAGE.format(arguments=arguments, count=len(FUNCTIONS))]
    for title, functions in by_section():
        parts.append(
            f"## {title}\n\n| function | scope | result | meaning |\n| --- | --- | --- | --- |\n"
        )
        for one in functions:
            shown = ", ".join(f"{kind} {name}" for kind, name in one.arguments)
            parts.append(f"| `{one.name}({shown})` | {one.group} | {one.result} | {one.means} |\n")
        parts.append("\n")
    return "".join(parts).rstrip("\n") + "\n"


def all_files() -> dict[Path, str]:
    shmem, package = ROOT / "libmori-shmem", ROOT / "python/src/mori/ir"
    return {
        shmem / "include/mori/shmem_functions.h": header(),
        shmem / "functions/exports.cpp": exports(),
        package / "_functions.py": table(),
        package / "triton/_wrappers.py": wrappers(),
        ROOT / "docs/device_functions.md": page(),
    }


def check(files: dict[Path, str]) -> int:
    failed = 0
    for path, wanted in files.items():
        present = path.read_text() if path.exists() else ""
        good = present == wanted
        failed += not good
        print(f"{'ok' if good else 'not ok'} - {path.name} is what declarations.py gives")
        if not good:
            pair = (present.splitlines(), wanted.splitlines())
            sys.stdout.writelines(f"  {line}\n" for line in list(difflib.unified_diff(*pair))[:20])
    print(f"{len(files) - failed} passed, {failed} failed")
    return 1 if failed else 0


def main() -> int:
    names = [one.name for one in FUNCTIONS]
    assert len(set(names)) == len(names), "two functions of one name"
    assert all(name in ARGUMENTS for one in FUNCTIONS for _, name in one.arguments)
    assert all(kind in TYPES for one in FUNCTIONS for kind, _ in one.arguments)
    files = all_files()
    if sys.argv[1:] == ["--check"]:
        return check(files)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
