#!/usr/bin/env python3
"""Checks that the C headers keep the rules that mori/base.h states: what each function's comment
says, how parameters and struct fields are named, what a zero in each field of an options struct
means (zero.txt lists every one), and what a header may not contain at all.

usage: check_contract.py CAPI_FOLDER
"""

import pathlib
import re
import sys

import c_header

THREADS = re.compile(r"\b(any-thread|one-thread-per-handle)\b")
BLOCKS = re.compile(r"\b(never blocks?|does not block|blocks|may block|waits for)\b", re.I)
FAILS = re.compile(r"\b(fails? with|never fails?)\b", re.I)
UNITLESS = re.compile(r"(^|_)(size|length|len|timeout|duration|capacity)$")
FORBIDDEN = {
    r"\binline\b": "an inline function",
    r"\b_?[Bb]ool\b": "a bool",
    r"\(\s*\*": "a function pointer",
    r":\s*\d+\s*;": "a bit field",
    r"\blong\b|\bshort\b|\bunsigned\b|\bsize_t\b|\bint\b": "a type of no fixed width",
    r"#include\s+[<\"](?!mori/|stdint\.h)": "a foreign header",
}
# in/out structs whose zeros are the caller's to give; reports are written by the library.
SIZED = re.compile(r"_(options|config|args|request|report|memory|result|stats|inbound)$")
GIVEN = re.compile(r"_(options|config|args|request)$")


def check_function(function):
    comment = function.comment
    if not THREADS.search(comment):
        yield "its comment states no thread rule (any-thread, one-thread-per-handle)"
    if not BLOCKS.search(comment):
        yield "its comment does not say whether it blocks"
    if function.returns == "mori_status":
        if not FAILS.search(comment):
            yield "its comment does not say what it fails with"
        if not function.parameters or function.parameters[-1] != ("mori_error *", "error"):
            yield "its last parameter is not `mori_error *error`"
    for kind, name in function.parameters:
        if kind.endswith("*") and name != "error" and not re.match(r"(in|inout|out|take)_", name):
            yield f"pointer parameter {name} starts with none of in_, inout_, out_, take_"
        if not kind.endswith("*") and UNITLESS.search(name):
            yield f"parameter {name} carries no unit"


def check_struct(struct):
    if struct.fields[0] != "struct_size" and SIZED.search(struct.name):
        yield "its first field is not struct_size"
    for field in struct.fields:
        if field != "struct_size" and UNITLESS.search(field):
            yield f"field {field} carries no unit"


def check_text(path):
    text = path.read_text()
    bare = c_header.without_comments(text)
    for pattern, what in FORBIDDEN.items():
        found = re.search(pattern, bare)
        if found:
            yield f"contains {what}: {found[0].strip()}"
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > 80:
            yield f"line {number} is {len(line)} columns wide, 80 are allowed"


def check_zeros(headers, listing):
    listed = [
        line.split() for line in listing.read_text().splitlines() if line[:1] not in ("#", "")
    ]
    meanings = dict(listed)
    if len(meanings) != len(listed):
        yield "a field is listed twice"
    if wrong := set(meanings.values()) - {"required", "default", "zero"}:
        yield f"unknown meanings {sorted(wrong)}"
    fields = {
        f"{struct.name}.{field}"
        for header in headers
        for struct in header.structs
        if GIVEN.search(struct.name)
        for field in struct.fields
        if field not in ("struct_size", "reserved")
    }
    if missing := sorted(fields - set(meanings)):
        yield f"not listed: {', '.join(missing)}"
    if gone := sorted(set(meanings) - fields):
        yield f"listed but not in a header: {', '.join(gone)}"


def main(capi):
    headers = c_header.parse_all(capi)
    results = {}
    for header in headers:
        results[f"text of mori/{header.name}.h"] = list(
            check_text(capi / "include/mori" / f"{header.name}.h")
        )
        for function in header.functions:
            results[function.name] = list(check_function(function))
        for struct in header.structs:
            results[struct.name] = list(check_struct(struct))
    results["zero.txt"] = list(check_zeros(headers, capi / "abi/zero.txt"))
    for name, faults in results.items():
        print(f"{'not ok' if faults else 'ok'} - contract of {name}")
        for fault in faults:
            print(f"  {name}: {fault}")
    return 1 if any(results.values()) else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
