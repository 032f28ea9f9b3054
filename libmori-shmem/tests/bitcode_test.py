#!/usr/bin/env python3
"""What is in the device bitcode: the functions of the list with their types, the state, and nothing
that a module of another compiler could stumble over. LLVM verifies each file.

usage: bitcode_test.py FUNCTIONS_FOLDER BITCODE...
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

STATE_NAME, STATE_TYPE = "mori_shmem_module_state_v2", "%struct.mori_shmem_device_state_v2"
TYPES = {"f32": "float", "f64": "double"}
DEFINITION = re.compile(
    r"^define (?P<result>[^@]*)@(?P<name>[\w.]+)\((?P<arguments>.*?)\) .*\{$", re.M
)
NOT_A_TYPE = re.compile(r"\b(?:noundef|signext|zeroext|dso_local|range\([^)]*\)|%\w+)\b")


def tool(name):
    """The newest that is installed: what older clangs wrote, it reads."""
    found = (shutil.which(f"{name}-{version}") for version in range(30, 18, -1))
    return next(filter(None, found), None)


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip()[-800:]}")
    return done.stdout


def type_of(text):
    return NOT_A_TYPE.sub("", text).replace("%", "").split()[0]


def wanted(functions):
    """Symbol -> (result, argument types) in LLVM's words."""

    def llvm(kind):
        return TYPES.get(kind, f"i{kind[1:]}")

    found = {}
    for one in functions:
        for symbol in {one.symbol, one.program_symbol}:
            found[symbol] = (llvm(one.result), [llvm(kind) for kind, _ in one.arguments])
    return found


def defined(listing):
    found = {}
    for match in DEFINITION.finditer(listing):
        if "internal" in match[0].split("@")[0].split():
            continue  # a part of others that the compiler did not inline: nobody can name it
        arguments = [type_of(one) for one in match["arguments"].split(",") if one.strip()]
        found[match["name"]] = (type_of(match["result"]), arguments)
    return found


def check_functions(listing, functions):
    have, want = defined(listing), wanted(functions)
    yield from (f"lacks {name}" for name in sorted(want.keys() - have.keys()))
    yield from (
        f"has {name}, which the list does not" for name in sorted(have.keys() - want.keys())
    )
    for name in sorted(want.keys() & have.keys()):
        if have[name] != want[name]:
            yield f"{name} is {have[name]}, the list says {want[name]}"


def check_rest(listing):
    for name in re.findall(r"^declare .*?@([\w.]+)\(", listing, re.M):
        if not name.startswith("llvm."):
            yield f"leaves {name} undefined"
    variables = dict(re.findall(r"^@([\w.]+) = (.*)$", listing, re.M))
    state = variables.pop(STATE_NAME, "")
    if "externally_initialized global" not in state or STATE_TYPE not in state:
        yield f"{STATE_NAME} is {state or 'not there'}"
    if "internal" in state or "hidden" in state:
        yield f"{STATE_NAME} cannot be found by the driver: {state}"
    for name, text in variables.items():
        if not text.startswith("internal") or "addrspace(3)" not in text:
            yield f"has the variable {name}, which is not shared memory of its own: {text}"
    for word in (
        "target-cpu",
        "target-features",
        "amdhsa_code_object_version",
        "llvm.module.flags",
    ):
        if word in listing:
            yield f"carries {word}"


def check_readers(path, listing):
    """The clang that wrote it reads it; so does the newest, which verifies it too."""
    writer = re.search(r'^!\d+ = !\{!"[^"]*clang version (\d+)', listing, re.M)
    if writer is None:
        yield "does not say which clang wrote it"
    elif clang := shutil.which(f"clang-{writer[1]}"):
        output(
            clang, "-x", "ir", "-S", "-emit-llvm", "-nogpulib", *target(listing), path, "-o", "-"
        )
    if opt := tool("opt"):
        output(opt, "-passes=verify", "-disable-output", path)


def target(listing):
    triple = re.search(r'^target triple = "(.*)"$', listing, re.M)
    return [f"--target={triple[1]}"]


def main(folder, paths):
    sys.path.insert(0, str(folder))
    from declarations import FUNCTIONS

    dis, failed = tool("llvm-dis"), 0
    if dis is None:
        print("skip - no llvm-dis of at least version 19 here")
        return 0
    for path in paths:
        try:
            listing = output(dis, path, "-o", "-")
            faults = [*check_functions(listing, FUNCTIONS), *check_rest(listing)]
            faults += check_readers(path, listing)
        except RuntimeError as error:
            faults = [str(error)]
        print(f"{'not ok' if faults else 'ok'} - {Path(path).name}", *faults[:20], sep="\n  ")
        failed += bool(faults)
    print(f"{len(paths) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
