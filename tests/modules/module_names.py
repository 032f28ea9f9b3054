#!/usr/bin/env python3
"""Keeps the modules true to the headers: every name that a crate's headers declare is exported by
its module, and nothing that no header declares.

usage: module_names.py ROOT MODULE ...        checks; MODULE is shmem, ep, io, base, device or link
       module_names.py ROOT --print MODULE    prints the export list, for the module's source
"""

import pathlib
import re
import sys

# Module -> crate, C headers and C++ headers whose names it exports. A private crate's module
# exports all of the crate's headers but those of one back end (see its cppm).
LIBRARIES = {
    "shmem": (
        "libmori-shmem",
        (
            *("base", "shmem_device", "shmem_types", "shmem_heap", "shmem_teams", "shmem"),
            "shmem_module",
        ),
        ("cpp/result.hpp", "shmem.hpp"),
    ),
    "ep": ("libmori-ep", ("base", "ep"), ("cpp/result.hpp", "ep.hpp")),
    "io": ("libmori-io", ("base", "io_types", "io"), ("cpp/result.hpp", "io.hpp")),
}
PRIVATE = ("base", "device", "link")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
# What only some builds have is not exported.
CONDITIONAL = re.compile(r"^[ \t]*#[ \t]*if.*?^[ \t]*#[ \t]*endif[^\n]*", re.M | re.S)
LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"')


def without_angles(text):
    """Drops <...> groups, so that commas and parentheses of templates are out of the way."""
    while (shorter := re.sub(r"<[^<>()]*>", "", text)) != text:
        text = shorter
    return text


def name_of(statement):
    """The name that a declaration at the level of a namespace brings, or nothing."""
    if re.match(r"\s*template <>", statement) or "operator" in statement.split("{")[0]:
        return None
    text = re.sub(r"\[\[.*?\]\]", "", without_angles(statement)).replace("template", "").strip()
    text = re.sub(r"\brequires\b[^({]*(?:\([^()]*\))?", "", text)
    text = re.sub(r"__attribute__\(\(.*?\)\)", "", text)
    if match := re.match(r"(?:class|struct|union|enum(?: class)?) (?:alignas\(\w+\) )?(\w+)", text):
        return match[1]
    if match := re.match(r"(?:using|concept) (\w+) =", text):
        return match[1]
    if text.startswith(("using ", "static_assert", "friend ", "extern template")):
        return None
    head = re.split(r"[={]", text, maxsplit=1)[0]
    if "(" in head:
        match = re.search(r"(\w+)\s*\(", head)
        return match[1] if match and re.search(r"[\w>*&\]]\s", head[: match.start(1)]) else None
    match = re.search(r"(\w+)(?:\[\w*\])?\s*;?$", head.strip())
    return match[1] if match else None


def header_names(text):
    """Namespace -> names declared at its level; `detail`, `impl` and `abi` are left out."""
    text = CONDITIONAL.sub("", COMMENT.sub(" ", text))
    text = LITERAL.sub('""', DIRECTIVE.sub("", text))
    found, spaces, depth, start = {}, [], 0, 0
    for position, character in enumerate(text):
        level = len(spaces)
        if character == "{":
            opened = re.search(r"\bnamespace ([\w:]+)\s*$", text[start:position])
            if opened and depth == level:
                spaces.append(opened[1])
                start = position + 1
            elif re.search(r'extern ""\s*$', text[start:position]) and depth == level:
                spaces.append("")
                start = position + 1
            depth += 1
        elif character == "}":
            depth -= 1
            if depth < level:
                spaces.pop()
                start = position + 1
            elif depth == level and ")" in text[start:position].split("{")[0]:
                add(found, spaces, text[start : position + 1])
                start = position + 1
        elif character == ";" and depth == level:
            add(found, spaces, text[start : position + 1])
            start = position + 1
    return found


def add(found, spaces, statement):
    space = "::".join(filter(None, spaces))
    name = name_of(statement)
    if name and space and not {"detail", "impl", "abi"} & set(space.split("::")):
        found.setdefault(space, set()).add(name)


def crate_of(root, module):
    return root / (LIBRARIES[module][0] if module in LIBRARIES else f"subprojects/mori-{module}")


def source_of(root, module):
    return (crate_of(root, module) / f"modules/{module}.cppm").read_text()


def headers_of(root, module):
    """The C++ headers that the module's source includes, in the crate or one that it builds on."""
    if module in LIBRARIES:
        folders = (f"libmori-{module}", "libmori-shmem", "capi")
        for name in LIBRARIES[module][2]:
            paths = (root / folder / "include/mori" / name for folder in folders)
            yield next(path for path in paths if path.exists())
    else:
        for name in re.findall(rf"#include <(mori/{module}/[^>]+)>", source_of(root, module)):
            yield root / f"subprojects/mori-{module}/include" / name


def expected(root, module):
    """Namespace (empty for C) -> names."""
    names = {}
    if module in LIBRARIES:
        sys.path.insert(0, str(root / "capi/abi"))
        import c_header

        names[""] = set()
        for header in (c_header.parse(root / "capi", name) for name in LIBRARIES[module][1]):
            names[""] |= {*header.typedefs, *header.enumerators}
            names[""] |= {item.name for item in (*header.structs, *header.functions)}
    for path in headers_of(root, module):
        for space, found in header_names(path.read_text()).items():
            names.setdefault(space, set()).update(found)
    return names


def exported(root, module):
    names = {}
    for name in re.findall(r"^\s*using ([\w:]+);", source_of(root, module), re.M):
        space, _, last = name.rpartition("::")
        names.setdefault(space, set()).add(last)
    return names


def print_list(names):
    for space, found in sorted(names.items()):
        print(f"export namespace {space} {{" if space else "export {")
        print("\n".join(f"using {space}::{name};" for name in sorted(found)))
        print(f"}}  // namespace {space}" if space else "}")


def compare(root, module):
    wanted, found = expected(root, module), exported(root, module)
    for space in sorted(set(wanted) | set(found)):
        missing = wanted.get(space, set()) - found.get(space, set())
        extra = found.get(space, set()) - wanted.get(space, set())
        yield from (f"not exported: {space}::{name}" for name in sorted(missing))
        # What a private module passes on of C is its own affair.
        if space or module in LIBRARIES:
            yield from (f"declared nowhere: {space}::{name}" for name in sorted(extra))


def main(root, arguments):
    if arguments[0] == "--print":
        print_list(expected(root, arguments[1]))
        return 0
    good = True
    for module in arguments:
        faults = list(compare(root, module))
        print(f"{'not ok' if faults else 'ok'} - names of module mori.{module}")
        for fault in faults:
            print(f"  {fault}")
        good &= not faults
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2:]))
