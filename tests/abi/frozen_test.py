#!/usr/bin/env python3
"""Runs what earlier releases left in capi/abi/VERSION/ against today's libraries: the frozen client
and the frozen libmori-ep, a dispatch and a combine included; the client compiled with the frozen
headers; the recorded ABI by abidiff; the frozen symbols, still there under the same node.

usage: frozen_test.py CAPI_FOLDER MOE_LAYER shmem=LIBRARY.so ep=LIBRARY.so io=LIBRARY.so
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import library_test

ABIDIFF_ERROR, ABIDIFF_USAGE, ABIDIFF_INCOMPATIBLE = 1, 2, 8


def link_libraries(folder, paths):
    """A folder with the libraries under their SONAMEs; returns it."""
    folder.mkdir()
    for name, path in paths.items():
        (folder / f"libmori-{name}.so.0").symlink_to(pathlib.Path(path).resolve())
    return folder


def run_client(client, libraries, *arguments):
    """Runs a client with those libraries alone. LD_LIBRARY_PATH comes before its RUNPATH."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
    done = subprocess.run(
        [str(client), *arguments], env=environment, capture_output=True, text=True, timeout=60
    )
    if done.returncode or not done.stdout.endswith("moe_layer: OK\n"):
        return [f"exit code {done.returncode}", *(done.stdout + done.stderr).splitlines()[-8:]]
    return []


def compile_client(capi, frozen, libraries, program):
    done = subprocess.run(
        [
            "cc",
            "-std=c11",
            "-Wall",
            "-Werror",
            f"-I{frozen}/include",
            str(frozen / "examples/moe_layer.c"),
            "-o",
            str(program),
            *(str(libraries / f"libmori-{name}.so.0") for name in ("ep", "shmem")),
            "-pthread",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stderr.splitlines() if done.returncode else []


def check_abi(frozen, capi, name, library):
    done = subprocess.run(
        [
            "abidiff",
            "--no-added-syms",
            "--headers-dir1",
            f"{frozen}/include",
            "--headers-dir2",
            f"{capi}/include",
            str(frozen / f"mori-{name}.abi"),
            str(pathlib.Path(library).resolve()),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode & (ABIDIFF_ERROR | ABIDIFF_USAGE | ABIDIFF_INCOMPATIBLE):
        return [f"abidiff: {done.returncode}", *(done.stdout + done.stderr).splitlines()[:40]]
    return []


def check_symbols(frozen, name, library):
    now = library_test.exported(library)
    before = (frozen / "symbols" / f"mori-{name}.txt").read_text().splitlines()
    return [f"gone or moved: {line}" for line in before if line not in now]


def check_layout(frozen, capi):
    """Frozen structs keep their fields where they were; a struct may only have grown at its end."""
    now = (capi / "abi/layout.txt").read_text().splitlines()
    faults, struct, fields = [], None, {}
    for line in now:
        struct = line.split()[-1] if line.startswith("struct") else struct
        fields.setdefault(struct if line.startswith("  ") else None, set()).add(line)
    for line in (frozen / "layout.txt").read_text().splitlines():
        if line.startswith("struct"):
            struct = line.split()[-1]
            grown = next((n for n in now if re.fullmatch(rf"struct \d+ {struct}", n)), None)
            if grown is None or int(grown.split()[1]) < int(line.split()[1]):
                faults.append(f"{line}: now {grown}")
        elif line not in fields.get(struct if line.startswith("  ") else None, set()):
            faults.append(f"changed: {struct if line.startswith('  ') else ''} {line.strip()}")
    return faults


def checks_of(capi, frozen, client, today, work):
    """Yields (title, faults) for one frozen release."""
    current = link_libraries(work / "current", today)
    mixed = link_libraries(work / "mixed", {**today, "ep": frozen / "libmori-ep.so.0"})
    old = frozen / "moe_layer"
    yield "its client runs with today's libraries", run_client(old, current, "4", "50")
    yield "its client and its ep run with today's shmem", run_client(old, mixed, "4", "50")
    yield "today's client runs with its ep and today's shmem", run_client(client, mixed, "3", "20")
    program = work / "client"
    faults = compile_client(capi, frozen, current, program)
    yield "a client compiles with its headers and runs", faults or run_client(program, current)
    for name, library in today.items():
        yield f"ABI of {name} by abidiff", check_abi(frozen, capi, name, library)
        yield f"symbols of {name}", check_symbols(frozen, name, library)
    yield "layout of structs", check_layout(frozen, capi)


def main(capi, client, today):
    releases = sorted(path for path in (capi / "abi").iterdir() if (path / "moe_layer").exists())
    if not releases:
        print("skip - no release is frozen yet")
        return 77
    good = True
    for frozen in releases:
        with tempfile.TemporaryDirectory() as folder:
            for title, faults in checks_of(capi, frozen, client, today, pathlib.Path(folder)):
                print(f"{'not ok' if faults else 'ok'} - {frozen.name}: {title}")
                for fault in faults:
                    print(f"  {fault}")
                good &= not faults
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(
        main(
            pathlib.Path(sys.argv[1]).resolve(),
            sys.argv[2],
            dict(pair.split("=", 1) for pair in sys.argv[3:]),
        )
    )
