"""The files of the tree and the crates they belong to, as the tidy checks see them."""

import functools
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
CRATES = (
    "capi",
    "libmori-shmem",
    "libmori-ep",
    "libmori-io",
    "subprojects/mori-base",
    "subprojects/mori-device",
    "subprojects/mori-link",
)
LIBRARIES = ("libmori-shmem", "libmori-ep", "libmori-io")
C_SUFFIXES = {".c", ".h", ".cpp", ".hpp", ".cppm", ".hip", ".cu", ".inc"}
HEADER_SUFFIXES = {".h", ".hpp", ".inc"}
CODE_SUFFIXES = C_SUFFIXES | {".py", ".sh", ".lua", ".rs", ".rb", ".go"}


@functools.lru_cache(None)
def files():
    """Paths below ROOT of all files that are tracked, or new and not ignored; no links."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    paths = [pathlib.PurePosixPath(name) for name in sorted(set(listed)) if name]
    return [path for path in paths if not (ROOT / path).is_symlink() and (ROOT / path).is_file()]


@functools.lru_cache(None)
def text(path):
    """Contents, or None of a file that is no text."""
    try:
        return (ROOT / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def texts():
    return [path for path in files() if text(path) is not None]


def is_python(path):
    return path.suffix == ".py" or (
        not path.suffix and (text(path) or "").startswith("#!/usr/bin/env python3")
    )


def c_files():
    return [path for path in files() if path.suffix in C_SUFFIXES]


def crate_of(path):
    return next((crate for crate in CRATES if path.is_relative_to(crate)), None)


def blank(match):
    return re.sub(r"[^\n]", " ", match[0])


COMMENT_OR_STRING = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S
)
DIGIT_SEPARATOR = re.compile(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])")


@functools.lru_cache(None)
def code(path):
    """A C or C++ file with comments and literals blanked out, line by line the same."""
    plain = DIGIT_SEPARATOR.sub("_", text(path))
    return COMMENT_OR_STRING.sub(blank, plain)
