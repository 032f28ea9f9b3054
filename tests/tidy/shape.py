"""The shape of the tree: what lies where, what it is called, what accompanies it."""

import re
from pathlib import PurePosixPath

import tree

TOP_LEVEL = {
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "meson.build",
    "meson_options.txt",
    "pyproject.toml",
    "capi",
    "libmori-shmem",
    "libmori-ep",
    "libmori-io",
    "subprojects",
    "python",
    "tests",
    "docs",
    "packaging",
    ".ci",
    ".gitignore",
    ".clang-format",
    ".clang-tidy",
}
BAD_NAMES = {"utils", "util", "common", "misc", "helpers", "helper", "v2", "new"}
KINDS = re.compile(r"_(test|fuzz|bench)$")
VERSION = re.compile(r"\bproject\([^)]*?version: '([\d.]+)'", re.S)
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)|!\[[^\]\n]*\]\(([^)\s]+)\)")


def check_top_level():
    for name in sorted({path.parts[0] for path in tree.files()} - TOP_LEVEL):
        yield f"{name}: not an entry of the top level"


def check_names():
    for path in tree.files():
        for part in (*path.parts[:-1], path.name.split(".")[0]):
            if part in BAD_NAMES:
                yield f"{path}: '{part}' says nothing; name the noun"


def check_stems():
    """heap.hpp, heap.cpp, heap_test.cpp: a test is named after what it tests."""
    for crate in tree.CRATES[1:]:
        mine = [path for path in tree.c_files() if tree.crate_of(path) == crate]
        stems = {path.stem for path in mine if not KINDS.search(path.stem)}
        stems |= {part for path in mine for part in path.parts[:-1]} | {crate.rsplit("-", 1)[-1]}
        for path in mine:
            if not KINDS.search(path.stem):
                continue
            # "heap_faults" belongs to heap, "join" to joiner.
            name = KINDS.sub("", path.stem)
            if not any(stem.startswith(name) or name.startswith(f"{stem}_") for stem in stems):
                yield f"{path}: {crate} has no file or folder whose name it starts with"


def version_of(folder):
    path = PurePosixPath(folder) / "meson.build"
    match = VERSION.search(tree.text(path)) if path in tree.files() else None
    return match[1] if match else None


def check_documents():
    known = set(map(str, tree.files()))
    for crate in tree.CRATES:
        if f"{crate}/README.md" not in known:
            yield f"{crate}: no README.md"
    if "README.md" not in known:
        yield "README.md is missing"
    for folder in (".", *tree.LIBRARIES):
        name = "CHANGELOG.md" if folder == "." else f"{folder}/CHANGELOG.md"
        version = version_of(folder)
        if name not in known:
            yield f"{name} is missing"
        elif version and not re.search(
            rf"^## .*\b{re.escape(version)}\b", tree.text(PurePosixPath(name)), re.M
        ):
            yield f"{name}: no section for the current version {version}"
    for library in tree.LIBRARIES:
        name = f"{library}/README.md"
        if name in known and not re.search(r"\binvariants\b", tree.text(PurePosixPath(name)), re.I):
            yield f"{name}: says no invariants"


def check_links():
    for path in tree.texts():
        if path.suffix != ".md":
            continue
        prose = re.sub(r"^```.*?^```", "", tree.text(path), flags=re.M | re.S)
        for match in LINK.finditer(prose):
            target = (match[1] or match[2]).split("#")[0]
            if not target or re.match(r"[a-z]+:", target):
                continue
            if not (tree.ROOT / path.parent / target).exists():
                yield f"{path}: the link to {target} leads nowhere"


CHECKS = {
    "top level": check_top_level,
    "names": check_names,
    "stems": check_stems,
    "documents": check_documents,
    "links": check_links,
}
