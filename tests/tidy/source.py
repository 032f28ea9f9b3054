"""What source text looks like: sizes, openings, comments, words and calls that have no place."""

import ast
import fnmatch
import re
from pathlib import PurePosixPath

import tree

MAX_COLUMNS, MAX_SOURCE, MAX_HEADER, MAX_FUNCTION = 100, 800, 400, 70
EXCEPTIONS = PurePosixPath("tests/tidy/exceptions.txt")
MAX_EXCEPTIONS = 5
FORBIDDEN = PurePosixPath("tests/tidy/forbidden.txt")
VENDOR = re.compile(
    r"\b(hip[A-Z_]\w*|cuda\w*|cu(?:Mem|Ctx|Stream|Event|Module|Launch|Device|Init|Func)\w*"
    r"|__(?:global|device|host|shared|constant)__|__launch_bounds__|__shfl\w*|__syncthreads"
    r"|__nv_\w+|__builtin_amdgcn_\w+|threadIdx|blockIdx|ibv_\w+|mlx[45]\w*"
    r"|__HIP\w*|__CUDA\w*|__NVCC__)\b"
)
# The GPU benchmarks speak the language of what they are compared with, the tests of the emulator
# that of the compiler; the tests of verbs compare our declarations with the library's header.
VENDOR_FOLDERS = (
    "subprojects/mori-device/",
    "subprojects/mori-link/src/verbs/",
    "subprojects/mori-link/tests/verbs/",
    "tests/amd/emulator/",
    "tests/bench/gpu/",
)
STATEMENT = r"(?:^|[;{}(!,]|\breturn\b|\belse\b)\s*(?:::|std::)?"
# Pattern -> (what to do instead, whether tests and examples may).
BANNED = {
    STATEMENT + r"(?:abort|exit|_exit|_Exit|quick_exit|terminate)\(": ("return a status", True),
    STATEMENT + r"(?:printf|puts|putchar|vprintf)\(": ("log through mori/base/log.hpp", True),
    r"\bstd::(?:cout|cerr|clog)\b": ("log through mori/base/log.hpp", True),
    STATEMENT + r"(?:signal\(\s*SIG|sigaction\()": ("install no handler", True),
    STATEMENT + r"(?:system|popen)\(": ("start no shell", False),
    STATEMENT + r"(?:strcpy|strcat|sprintf|gets)\(": ("use a bounded call", False),
}
SLEEP = re.compile(r"\b(?:u|nano)?sleep\(|\bclock_nanosleep\(|\bsleep_(?:for|until)\(")


def is_test(path):
    return bool({"tests", "examples"} & set(path.parts))


def exceptions():
    if EXCEPTIONS not in tree.files():
        return {}
    lines = [
        line.split() for line in tree.text(EXCEPTIONS).splitlines() if line[:1] not in ("#", "")
    ]
    return {name: int(limit) for name, limit in lines}


def check_sizes():
    allowed = exceptions()
    if len(allowed) > MAX_EXCEPTIONS:
        yield f"{EXCEPTIONS}: {len(allowed)} exceptions, {MAX_EXCEPTIONS} are allowed"
    for path in tree.texts():
        if path.suffix not in tree.CODE_SUFFIXES and not tree.is_python(path):
            continue
        lines = tree.text(path).count("\n")
        usual = MAX_HEADER if path.suffix in tree.HEADER_SUFFIXES else MAX_SOURCE
        limit = allowed.pop(str(path), usual)
        if lines > limit:
            yield f"{path}: {lines} lines, {limit} are allowed"
        elif limit != usual and lines <= usual:
            yield f"{EXCEPTIONS}: {path} fits by itself now; take it off the list"
    for name in allowed:
        yield f"{EXCEPTIONS}: {name} does not exist"


CONTAINER = re.compile(r"\b(?:namespace|class|struct|union|enum|extern)\b[^()]*$|=\s*$|\benum\b")


def c_functions(path):
    """Yields (name, first line, lines) of function bodies that lie in no other function."""
    source = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", tree.blank, tree.code(path), flags=re.M)
    stack, start, depth_of_function = [], 0, None
    for position, character in enumerate(source):
        if character in ";}":
            start = position + 1
        if character == "{":
            head = source[start:position]
            is_body = depth_of_function is None and ")" in head and not CONTAINER.search(head)
            if is_body:
                depth_of_function = len(stack)
            stack.append((position, head))
            start = position + 1
        elif character == "}" and stack:
            begin, head = stack.pop()
            if depth_of_function == len(stack):
                depth_of_function = None
                name = re.search(r"([\w:~]+)\s*\(", head)
                first = source.count("\n", 0, begin) + 1
                yield (name[1] if name else "?", first, source.count("\n", begin, position) + 1)


def python_functions(path):
    for node in ast.walk(ast.parse(tree.text(path))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def check_functions():
    for path in tree.texts():
        if path.suffix in tree.C_SUFFIXES:
            functions = c_functions(path)
        elif tree.is_python(path):
            functions = python_functions(path)
        else:
            continue
        for name, first, lines in functions:
            if lines > MAX_FUNCTION and not name.startswith(("TEST_CASE", "SUBCASE")):
                yield f"{path}:{first}: {name} has {lines} lines, {MAX_FUNCTION} are allowed"


def check_lines():
    for path in tree.texts():
        text = tree.text(path)
        if text and not text.endswith("\n"):
            yield f"{path}: the last line does not end"
        measured = path.suffix in tree.CODE_SUFFIXES or path.name.startswith("meson")
        for number, line in enumerate(text.splitlines(), 1):
            if measured and len(line) > MAX_COLUMNS:
                yield f"{path}:{number}: {len(line)} columns, {MAX_COLUMNS} are allowed"
            if line != line.rstrip():
                yield f"{path}:{number}: trailing space"
            # Makefiles and gofmt want them.
            if "\t" in line and path.suffix != ".go" and path.name != "rules":
                yield f"{path}:{number}: tab"
            if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", line):
                yield f"{path}:{number}: control character"


def opening(path):
    """The comment a file opens with, its marks taken off."""
    text = tree.text(path)
    text = re.sub(r"\A#![^\n]*\n", "", text).lstrip()
    if tree.is_python(path):
        return ast.get_docstring(ast.parse(tree.text(path))) or ""
    mark = {".lua": "--", ".sh": "#", ".rb": "#"}.get(path.suffix, "//")
    if text.startswith("/*"):
        return text[2 : text.index("*/")]
    lines = []
    for line in text.splitlines():
        if not line.startswith(mark):
            break
        lines.append(line.lstrip(mark + " "))
    return " ".join(lines)


def check_openings():
    for path in tree.texts():
        if path.suffix not in tree.CODE_SUFFIXES and not tree.is_python(path):
            continue
        text = opening(path)
        # A source may leave the word to its header: "heap.cpp - see heap.hpp."
        told = len(text) >= 40 or re.search(r"\bsee (\S+\.hpp)", text)
        if tree.text(path).count("\n") > 10 and not told:
            yield f"{path}: does not open with a paragraph that says what it is"


def check_comments():
    """C headers are at least half comment; the C++ wrappers over them refer to their contracts."""
    for path in tree.c_files():
        if path.is_relative_to("capi/include/mori") and path.suffix == ".h":
            text = tree.text(path)
            inside = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]+", "@", m[0]), text, flags=re.S)
            lines = [line for line in inside.splitlines() if line.strip()]
            commented = sum("@" in line for line in lines)
            if 2 * commented < len(lines):
                yield f"{path}: {commented} of {len(lines)} lines carry a comment; half should"


def check_vendor_words():
    for path in tree.c_files():
        if str(path).startswith(VENDOR_FOLDERS):
            continue
        for number, line in enumerate(tree.code(path).splitlines(), 1):
            if found := VENDOR.search(line):
                yield f"{path}:{number}: vendor word {found[0]}"


def check_kernels():
    """Kernels and the device header are one source for all back ends: no #if."""
    for path in tree.c_files():
        if "kernels" not in path.parts and "device_api" not in path.parts:
            continue
        for number, line in enumerate(tree.code(path).splitlines(), 1):
            if re.match(r"\s*#\s*(if|ifdef|ifndef|elif)\b", line):
                yield f"{path}:{number}: conditional compilation in single-source code"


def check_calls():
    for path in tree.c_files():
        source = tree.code(path)
        for pattern, (instead, tests_may) in BANNED.items():
            if tests_may and is_test(path):
                continue
            for found in re.finditer(pattern, source, re.M):
                number = source.count("\n", 0, found.end()) + 1
                yield f"{path}:{number}: {found[0].split()[-1]}...): {instead}"
        if is_test(path):
            for found in SLEEP.finditer(source):
                number = source.count("\n", 0, found.start()) + 1
                # Where passing time is the subject, the line says so.
                if "lets time pass" not in tree.text(path).splitlines()[number - 1]:
                    yield f"{path}:{number}: {found[0]}...): wait for the event, not for time"


def guards_of(source):
    """The guard and what this file builds on it: noexcept functions whose body is a call of one."""
    names, size = {"guard"}, 0
    while len(names) > size:
        size = len(names)
        for found in re.finditer(
            r"^\w+ (\w+)\([^;{]*\) noexcept \{\s*return (?:[\w:]*::)?(\w+)\(", source, re.M
        ):
            if found[2] in names:
                names.add(found[1])
    return names


def check_guards():
    """Each exported function that returns a status is one call of the guard, or of another such
    function, but for clearing the handle or pointer that it returns."""
    cleared = r"(?:\s*if \((\w+) != nullptr\) \*\1 = nullptr;)*"
    for path in tree.c_files():
        if path.suffix != ".cpp" or "capi" not in path.parts or "src" not in path.parts:
            continue
        source = tree.code(path)
        shared = re.findall(r'^#include "capi/(\w+\.hpp)"', tree.text(path), re.M)
        headers = "".join(tree.code(path.parent / name) for name in shared)
        names = "|".join(guards_of(headers + source))
        for found in re.finditer(
            r"^mori_status (mori_\w+)\([^;{]*\) (?:noexcept )?\{", source, re.M
        ):
            body = source[found.end() :]
            if not re.match(rf"{cleared}\s*return (?:[\w:]*::)?(?:{names}|mori_\w+)\(", body):
                number = source.count("\n", 0, found.start()) + 1
                yield f"{path}:{number}: {found[1]} is not one call of the guard"


def check_words():
    rules = []
    for line in tree.text(FORBIDDEN).splitlines():
        if line and not line.startswith("# ") and line != "#":
            glob, _, pattern = line.partition(" ") if line.startswith("*") else ("*", "", line)
            rules.append((glob, re.compile(pattern)))
    for path in tree.texts():
        if path == FORBIDDEN:
            continue
        for glob, pattern in rules:
            if not fnmatch.fnmatch(str(path), glob):
                continue
            for found in pattern.finditer(tree.text(path)):
                number = tree.text(path).count("\n", 0, found.start()) + 1
                yield f"{path}:{number}: forbidden: {found[0]}"


CHECKS = {
    "file sizes": check_sizes,
    "function sizes": check_functions,
    "lines": check_lines,
    "openings": check_openings,
    "comments": check_comments,
    "vendor words": check_vendor_words,
    "single-source kernels": check_kernels,
    "banned calls": check_calls,
    "guards": check_guards,
    "forbidden words": check_words,
}
