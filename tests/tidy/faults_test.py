#!/usr/bin/env python3
"""Shows that the tidy checks can fail: makes a small tree with one fault at a time in a temporary
folder and expects exactly the check that is meant for it to see it.

usage: faults_test.py
"""

import importlib
import pathlib
import subprocess
import sys
import tempfile

import arrows
import shape
import source
import tree

HEADER = "// {name} - says in a paragraph what it is, why it is here, what to read next.\n"
# Check -> path and text of a file that it must refuse.
FAULTS = {
    "top level": ("scratch.md", "A file where none belongs.\n"),
    "names": ("libmori-io/src/utils.cpp", HEADER),
    "stems": ("libmori-io/tests/nothing_test.cpp", HEADER),
    "documents": ("libmori-io/CHANGELOG.md", "# Changes\n\n## 0.0.9\n"),
    "links": ("docs/page.md", "See [there](nowhere.md).\n"),
    "arrows between crates": ("libmori-io/src/capi/a.cpp", HEADER + "#include <mori/shmem.hpp>\n"),
    "consumers see C headers only": ("tests/ffi/a.c", HEADER + "#include <mori/shmem.hpp>\n"),
    "layers inside crates": ("libmori-io/src/low/a.cpp", HEADER + '#include "capi/b.hpp"\n'),
    "file sizes": ("libmori-io/src/capi/a.hpp", HEADER + "int a;\n" * 400),
    "function sizes": (
        "libmori-io/src/capi/a.cpp",
        HEADER + "int f() {\n" + "  g();\n" * 70 + "}\n",
    ),
    "lines": ("libmori-io/src/capi/a.cpp", HEADER + "int a;" + " " * 3 + "\n"),
    "openings": ("libmori-io/src/capi/a.cpp", "int a;\n" * 20),
    "comments": ("capi/include/mori/io.h", "/* mori/io.h - " + "x" * 40 + " */\n" + "int a;\n" * 9),
    "vendor words": ("libmori-io/src/capi/a.cpp", HEADER + "auto* v = ibv_open_device(d);\n"),
    "single-source kernels": ("libmori-ep/kernels/a.cpp", HEADER + "#ifdef HOST\n#endif\n"),
    "banned calls": ("libmori-io/src/capi/a.cpp", HEADER + "void f() {\n  std::abort();\n}\n"),
    "guards": (
        "libmori-io/src/capi/a.cpp",
        HEADER + "mori_status mori_io_f(mori_error* e) {\n  return work(e);\n}\n",
    ),
    "forbidden words": ("docs/page.md", "Left to do: TO" + "DO.\n"),
}
# A tree that all checks accept; each fault is one file on top of it.
SOUND = {
    "README.md": "# mori\n",
    "CHANGELOG.md": "# Changes\n\n## 0.1.0\n",
    "meson.build": "project('mori', 'c', version: '0.1.0')\n",
    "capi/include/mori/io.h": "/* mori/io.h - a header that is all comment, as it may be. */\n",
    "libmori-shmem/include/mori/shmem.hpp": HEADER,
    "libmori-io/src/capi/b.hpp": HEADER,
    "tests/tidy/forbidden.txt": (tree.ROOT / "tests/tidy/forbidden.txt").read_text(),
    **{f"{crate}/README.md": "# It\n\n## Invariants\n\nNone.\n" for crate in tree.CRATES},
    **{
        f"{library}/CHANGELOG.md": "# Changes\n\n## 0.1.0\n"
        for library in ("libmori-shmem", "libmori-ep", "libmori-io")
    },
    **{
        f"{crate}/meson.build": "# Layers, bottom-up: low, capi.\nproject('x', version: '0.1.0')\n"
        for crate in tree.CRATES
    },
}


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{name}", path.name))


def failed_checks(files):
    """Names of the checks that find a fault in a tree of these files."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        write(root, files)
        subprocess.run(["git", "init", "-q", str(root)], check=True)
        for module in (tree, shape, arrows, source):
            importlib.reload(module)
        tree.ROOT = root
        return {
            name
            for module in (shape, arrows, source)
            for name, check in module.CHECKS.items()
            if list(check())
        }


def main():
    good = True
    sound = failed_checks(SOUND)
    print(f"{'not ok' if sound else 'ok'} - a sound tree passes {sorted(sound) or ''}")
    every = {name for module in (shape, arrows, source) for name in module.CHECKS}
    for name in sorted(every | set(FAULTS)):
        path, text = FAULTS.get(name, ("README.md", ""))
        found = failed_checks({**SOUND, path: text})
        seen = found == {name}
        print(f"{'ok' if seen else 'not ok'} - {name} sees its fault and no other {sorted(found)}")
        good &= seen
    return 0 if good and not sound else 1


if __name__ == "__main__":
    sys.exit(main())
