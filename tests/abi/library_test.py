#!/usr/bin/env python3
"""What a built library shows to the outside: exported symbols and their versions, what it needs,
what it leaves undefined, and how it is linked. Compared with the record in capi/abi/.

usage: library_test.py CAPI_FOLDER NAME LIBRARY.so [--write]
--write records the exported symbols; additions only (docs/versioning.md).
"""

import pathlib
import re
import subprocess
import sys

NEEDED = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}
NEEDED_MORE = {"ep": {"libmori-shmem.so.0"}}
# Vendor libraries are opened at run time; what ships inside must be inside.
FOREIGN = re.compile(
    r"^(ibv_|rdma_|hip|hsa_|cu[A-Z]|cuda|nccl|sodium_|crypto_|randombytes|_ZN3fmt)"
)
GLIBC_WHEEL, GLIBC_MAX = (2, 34), (2, 36)
MAX_BYTES = 20 << 20


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def exported(library):
    """Lines `symbol NODE` of all defined dynamic symbols, without the nodes' own."""
    lines = output("nm", "-D", "--defined-only", "--with-symbol-versions", library).splitlines()
    rows = [line.split() for line in lines]
    return sorted(row[-1].replace("@@", " ") for row in rows if row[-2] != "A")


def undefined(library):
    return [
        line.split()[-1].split("@")[0]
        for line in output("nm", "-D", "--undefined-only", library).splitlines()
    ]


def check_symbols(library, record):
    now, before = exported(library), record.read_text().splitlines()
    faults = [f"gone or moved: {line}" for line in before if line not in now]
    faults += [f"not recorded: {line}; run with --write" for line in now if line not in before]
    return faults


def check_map(library, capi, name):
    """The version script and the library agree, and only C names leave."""
    script = (capi / "maps" / f"mori-{name}.map").read_text()
    wanted = set()
    for node, body in re.findall(r"^(MORI_\w+\.\d+) \{(.*?)^\}", script, re.M | re.S):
        wanted |= {f"{symbol} {node}" for symbol in re.findall(r"^\s+(mori_\w+);", body, re.M)}
    now = set(exported(library))
    faults = [f"in the version script only: {line}" for line in sorted(wanted - now)]
    faults += [f"in the library only: {line}" for line in sorted(now - wanted)]
    return faults + [
        f"not a name of this library: {line}"
        for line in sorted(now)
        if not line.startswith(f"mori_{name}_")
    ]


def check_dynamic(library, name):
    dynamic = output("readelf", "-dW", library)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    for extra in sorted(needed - NEEDED - NEEDED_MORE.get(name, set())):
        yield f"needs {extra}"
    if f"[libmori-{name}.so.0]" not in dynamic:
        yield "its SONAME is not libmori-" + name + ".so.0"
    if not re.search(r"\(FLAGS_1\).*NODELETE", dynamic):
        yield "it is not linked with -z nodelete"
    if "(TEXTREL)" in dynamic:
        yield "it has text relocations"


def check_segments(library):
    stack = re.search(r"GNU_STACK.*", output("readelf", "-lW", library))
    if not stack or re.search(r"\sRWE\s", stack[0]):
        yield "its stack is executable"
    size = int(output("size", library).splitlines()[1].split()[3])
    if size > MAX_BYTES:
        yield f"{size} bytes are loaded, {MAX_BYTES} are allowed"


def check_undefined(library):
    return [f"leaves {symbol} undefined" for symbol in undefined(library) if FOREIGN.match(symbol)]


def check_glibc(library):
    found = re.findall(r"\bGLIBC_(\d+)\.(\d+)", output("readelf", "-VW", library))
    newest = max((int(major), int(minor)) for major, minor in found)
    print(
        f"  newest glibc symbol version: {newest[0]}.{newest[1]}"
        + (" (above what a wheel may use)" if newest > GLIBC_WHEEL else "")
    )
    return [f"needs glibc {newest[0]}.{newest[1]}"] if newest > GLIBC_MAX else []


def main(capi, name, library, write):
    record = capi / "abi/symbols" / f"mori-{name}.txt"
    if write:
        record.write_text("\n".join(exported(library)) + "\n")
        return 0
    checks = {
        "exported symbols are those recorded": check_symbols(library, record),
        "exported symbols are those of the version script": check_map(library, capi, name),
        "dynamic section": check_dynamic(library, name),
        "segments and size": check_segments(library),
        "undefined symbols": check_undefined(library),
        "glibc symbol versions": check_glibc(library),
    }
    failed = False
    for title, faults in checks.items():
        faults = list(faults)
        failed |= bool(faults)
        print(f"{'not ok' if faults else 'ok'} - {name}: {title}")
        for fault in faults:
            print(f"  {fault}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], "--write" in sys.argv[4:]))
