#!/usr/bin/env python3
"""Keeps the module wrappers true to the headers: every name that a library's C header and C++
wrapper declare is exported by its module, and nothing that no header declares.

usage: module_names.py ROOT LIBRARY ...        checks
       module_names.py ROOT --print LIBRARY    prints the export list, for the module's source
"""

import pathlib
import re
import sys

# Library -> the C headers whose names its module exports, and its C++ wrapper's headers.
MODULES = {
    "shmem": (("base", "shmem_device", "shmem"), ("mori/cpp/result.hpp", "mori/shmem.hpp")),
    "ep": (("base", "ep"), ("mori/cpp/result.hpp", "mori/ep.hpp")),
    "io": (("base", "io"), ("mori/io.hpp",)),
}
DECLARATION = re.compile(
    r"^(?:template <[^>]*>\s)?(?:(?:class|struct)(?: \[\[\w+\]\])? (\w+)"
    r"|using (\w+) =|inline constexpr [\w:]+ (\w+)[ {]|inline [^(=;]*?[ *&](\w+)\()",
    re.M,
)


def wrapper_names(text):
    """Namespace -> names declared at its level, in a header of this tree's form; no `detail`."""
    found, stack, position = {}, [], 0
    for edge in re.finditer(r"^(?:namespace ([\w:]+) \{|\}  // namespace [\w:]+)$", text, re.M):
        if stack and "detail" not in stack:
            names = {
                "".join(groups) for groups in DECLARATION.findall(text[position : edge.start()])
            }
            found.setdefault("::".join(stack), set()).update(names)
        position = edge.end()
        stack = [*stack, edge[1]] if edge[1] else stack[:-1]
    return found


def expected(root, library):
    """Namespace (empty for C) -> names."""
    sys.path.insert(0, str(root / "capi/abi"))
    import c_header

    c_headers, wrappers = MODULES[library]
    names = {"": set()}
    for header in (c_header.parse(root / "capi", name) for name in c_headers):
        names[""] |= {*header.typedefs, *header.enumerators}
        names[""] |= {item.name for item in (*header.structs, *header.functions)}
    for wrapper in wrappers:
        folders = (f"libmori-{library}", "libmori-shmem", "capi")
        path = next(
            root / folder / "include" / wrapper
            for folder in folders
            if (root / folder / "include" / wrapper).exists()
        )
        for space, found in wrapper_names(path.read_text()).items():
            names.setdefault(space, set()).update(found)
    return {space: found for space, found in names.items() if found}


def exported(root, library):
    text = (root / f"libmori-{library}/modules/{library}.cppm").read_text()
    names = {}
    for name in re.findall(r"^\s*using ([\w:]+);", text, re.M):
        space, _, last = name.rpartition("::")
        names.setdefault(space, set()).add(last)
    return names


def main(root, arguments):
    if arguments[0] == "--print":
        for space, names in sorted(expected(root, arguments[1]).items()):
            print(f"export namespace {space} {{" if space else "export {")
            print("\n".join(f"using {space}::{name};" for name in sorted(names)))
            print("}")
        return 0
    good = True
    for library in arguments:
        wanted, found = expected(root, library), exported(root, library)
        faults = []
        for space in sorted(set(wanted) | set(found)):
            missing = wanted.get(space, set()) - found.get(space, set())
            extra = found.get(space, set()) - wanted.get(space, set())
            faults += [f"not exported: {space}::{name}" for name in sorted(missing)]
            faults += [f"declared nowhere: {space}::{name}" for name in sorted(extra)]
        print(f"{'not ok' if faults else 'ok'} - names of module mori.{library}")
        for fault in faults:
            print(f"  {fault}")
        good &= not faults
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2:]))
