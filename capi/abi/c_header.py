"""Reads a C header of capi/ into declarations, for the checks that compare headers with something.

The headers are written in one plain form (no macro makes a declaration, one struct per typedef), so
splitting at top-level semicolons is enough; a declaration that does not fit the form is an error,
which keeps the form. Used by layout_program.py here, the module check in tests/modules/ and the ABI
checks in tests/abi/.
"""

import dataclasses
import pathlib
import re

HEADERS = (
    *("base", "shmem_device", "shmem_types", "shmem_heap", "shmem_teams", "shmem"),
    *("shmem_module", "ep", "io_types", "io"),
)


@dataclasses.dataclass
class Struct:
    name: str
    fields: list  # names in order
    types: dict  # field name -> C type, array bounds at its end: "uint64_t", "char[240]"
    comments: dict  # field name -> text of the comment beside it


@dataclasses.dataclass
class Function:
    name: str
    returns: str
    parameters: list  # (type, name)
    comment: str  # the one above it; of the group when it has none of its own


@dataclasses.dataclass
class Header:
    name: str
    typedefs: dict  # integer typedefs and opaque handles: name -> type
    enumerators: list
    structs: list
    functions: list


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def split_declarations(text):
    """Yields (comment above, declaration) for each top-level declaration."""
    position, start, depth, comment = 0, 0, 0, ""
    while position < len(text):
        if text.startswith("/*", position):
            end = text.index("*/", position) + 2
            if depth == 0 and not text[start:position].strip():
                comment, start = text[position:end], end
            position = end
            continue
        character = text[position]
        depth += (character == "{") - (character == "}")
        position += 1
        if character == ";" and depth == 0:
            end_of_line = text.find("\n", position)
            yield comment, text[start:end_of_line].strip()
            position = start = end_of_line
            # A comment serves all declarations up to the next empty line.
            if re.match(r"\n[ \t]*\n", text[position:]):
                comment = ""


def parse_struct(name, body):
    fields, types, comments, last = [], {}, {}, None
    for piece in re.finditer(r"/\*(.*?)\*/|([^;/]+);", body, re.S):
        if piece[1] is not None:
            if last:
                comments[last] = " ".join((comments.get(last, "") + piece[1]).split())
            continue
        declaration = " ".join(piece[2].split())
        match = re.fullmatch(r"((?:const )?\w+ \*?)(\w+)((?:\[\d+\])*)", declaration)
        if not match:
            raise ValueError(f"struct {name}: cannot read field {declaration!r}")
        last = match[2]
        fields.append(last)
        types[last] = match[1].strip() + match[3]
    return Struct(name, fields, types, comments)


def parse_function(declaration, comment):
    text = " ".join(without_comments(declaration).split())
    match = re.fullmatch(r"MORI_API (.+?[ *])(\w+)\((.*)\);", text)
    if not match:
        raise ValueError(f"cannot read declaration {text!r}")
    parameters = []
    for parameter in match[3].split(","):
        parameter = parameter.strip()
        if parameter != "void":
            kind, name = re.fullmatch(r"(.+[ *])(\w+)", parameter).groups()
            parameters.append((kind.strip(), name))
    return Function(match[2], match[1].strip(), parameters, comment)


def parse(capi, name):
    path = pathlib.Path(capi) / "include/mori" / f"{name}.h"
    text = path.read_text()
    text = text.split("/* cdef: begin */")[1].split("/* cdef: end */")[0]
    header = Header(name, {}, [], [], [])
    for comment, declaration in split_declarations(text):
        bare = without_comments(declaration).strip()
        if bare.startswith("enum {"):
            header.enumerators += re.findall(r"(\w+) =", bare)
        elif match := re.match(r"typedef struct (\w+) \{(.*)\} \1;", declaration, re.S):
            header.structs.append(parse_struct(match[1], match[2]))
        elif match := re.fullmatch(r"typedef (.+) (\w+);", bare):
            header.typedefs[match[2]] = match[1]
        else:
            previous = header.functions[-1].comment if header.functions else ""
            header.functions.append(parse_function(declaration, comment or previous))
    return header


def parse_all(capi):
    return [parse(capi, name) for name in HEADERS]
