#!/usr/bin/env python3
"""Runs the examples of the README files as they are written: each code block that follows a line
`<!-- example: NAME -->`. C and C++ are compiled against the source tree's headers and the given
libraries; Python runs with this interpreter, which must have the package.

usage: readme_examples.py c,cpp,python [LIBRARY.so ...]
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = re.compile(r"^<!-- example: ([\w-]+) -->\n+```(\w+)\n(.*?)^```", re.M | re.S)
COMPILERS = {
    "c": ["cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"],
    "cpp": ["c++", "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror"],
}
INCLUDES = [
    f"-I{ROOT / folder / 'include'}"
    for folder in ("capi", "libmori-shmem", "libmori-ep", "libmori-io")
]


def examples(languages):
    """(file, name, language, text) of all examples in those languages."""
    for path in [ROOT / "README.md", *sorted(ROOT.glob("*/README.md"))]:
        for name, language, text in EXAMPLE.findall(path.read_text()):
            if language in languages:
                yield path.relative_to(ROOT), name, language, text


def command_of(language, text, libraries, folder):
    """Writes the example; returns the command that runs it, or the compiler's complaint."""
    source = folder / f"example.{language.replace('python', 'py')}"
    source.write_text(text)
    if language == "python":
        return [sys.executable, "-B", str(source)], ""
    program = folder / "example"
    paths = [str(pathlib.Path(library).resolve()) for library in libraries]
    runpaths = [f"-Wl,-rpath,{pathlib.Path(path).parent}" for path in paths]
    built = subprocess.run(
        [
            *COMPILERS[language],
            *INCLUDES,
            str(source),
            "-o",
            str(program),
            *paths,
            *runpaths,
            "-pthread",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return [str(program)], built.stderr if built.returncode else ""


def run_example(language, text, libraries):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        command, complaint = command_of(language, text, libraries, folder)
        if complaint:
            return complaint.splitlines()
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "MORI_LOG_LEVEL": "error"},
        )
        if done.returncode:
            return [f"exit code {done.returncode}", *(done.stdout + done.stderr).splitlines()]
        return []


def main(languages, libraries):
    found, good = list(examples(languages)), True
    for path, name, language, text in found:
        faults = run_example(language, text, libraries)
        print(f"{'not ok' if faults else 'ok'} - {path}: {name} ({language})")
        print("".join(f"  {fault}\n" for fault in faults), end="")
        good &= not faults
    if not found:
        print(f"not ok - no example in {', '.join(languages)}")
    return 0 if good and found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1].split(","), sys.argv[2:]))
