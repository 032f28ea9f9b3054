#!/usr/bin/env python3
"""Installs each library alone, as a package would, and checks that exactly its files arrive: with
the tag `runtime` the library, with `devel` its link, pkg-config file, C++ header and module source,
beside the C headers that all of them share. Then builds a C program against what was installed.

usage: install_test.py BUILD_FOLDER LIBRARY ...      (names: shmem ep io; meson from $MESON or PATH)
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

MESON = os.environ.get("MESON", "meson")
C_HEADERS = {
    "mori.h",
    "mori/base.h",
    "mori/shmem.h",
    "mori/shmem_device.h",
    "mori/shmem_heap.h",
    "mori/shmem_teams.h",
    "mori/shmem_types.h",
    "mori/shmem_module.h",
    "mori/ep.h",
    "mori/io.h",
    "mori/io_types.h",
    "mori/cpp/result.hpp",
}
PROGRAM = """#include <mori/{0}.h>
int main(void) {{ return mori_{0}_version() == MORI_VERSION_PACK({1}) ? 0 : 1; }}
"""


def install(build, target, tag, skipped):
    command = [
        MESON,
        "install",
        "-C",
        str(build),
        "--no-rebuild",
        "--quiet",
        "--tags",
        tag,
        "--skip-subprojects",
        ",".join(skipped),
    ]
    subprocess.run(
        command,
        check=True,
        timeout=60,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "DESTDIR": str(target)},
    )
    return {str(path.relative_to(target)) for path in target.rglob("*") if not path.is_dir()}


# Where there is a clang: for each architecture, and what more is built with.
BITCODE = (
    r".*/mori/bitcode/libmori_shmem_device-(?:gfx\w+|sm_\d+)\.bc",
    r".*/mori/bitcode/libmori_shmem_device-(?:amd|nvidia)\.cpp",
    r".*/mori/bitcode/build_bitcode\.py",
)


def expected(name, tag):
    """Patterns of the files that belong to one library."""
    if tag == "runtime":
        return [rf".*/libmori-{name}\.so\.0(\.\d+\.\d+)?", *(BITCODE if name == "shmem" else ())]
    more = {
        "shmem": [r".*/include/mori/device_api/.*\.hpp", r".*/include/mori/shmem_functions\.h"],
        "ep": [],
        "io": [],
    }[name]
    return [
        rf".*/libmori-{name}\.so",
        rf".*/pkgconfig/mori-{name}\.pc",
        rf".*/include/mori/{name}\.hpp",
        rf".*/mori/modules/{name}\.cppm",
        *more,
    ]


def check_files(name, tag, files):
    patterns = expected(name, tag)
    own = {file for file in files if any(re.fullmatch(p, file) for p in patterns)}
    shared = {
        file for file in files - own if tag == "devel" and file.split("/include/")[-1] in C_HEADERS
    }
    for file in sorted(files - own - shared):
        yield f"{file} does not belong to {name} ({tag})"
    for pattern in patterns:
        # What not every build has.
        optional = "device_api" in pattern or "bitcode" in pattern
        if not optional and not any(re.fullmatch(pattern, file) for file in own):
            yield f"nothing installed matches {pattern}"
    if tag == "devel" and len(shared) != len(C_HEADERS):
        yield f"C headers installed: {sorted(shared)}"


def check_use(name, target, version):
    """Compiles, links and runs a program through pkg-config, with the installed files alone."""
    pkgconfig = next(target.rglob("pkgconfig"))
    environment = {
        **os.environ,
        "PKG_CONFIG_SYSROOT_DIR": str(target),
        "PKG_CONFIG_LIBDIR": str(pkgconfig),
        "LD_LIBRARY_PATH": str(pkgconfig.parent),
    }
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", f"mori-{name}"],
        check=True,
        env=environment,
        capture_output=True,
        text=True,
    ).stdout.split()
    source, program = target / "use.c", target / "use"
    source.write_text(PROGRAM.format(name, version.replace(".", ", ")))
    link = [f"-Wl,-rpath-link,{pkgconfig.parent}"]
    built = subprocess.run(
        ["cc", "-std=c11", "-Wall", "-Werror", str(source), *flags, *link, "-o", str(program)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if built.returncode:
        return [built.stderr.strip()]
    ran = subprocess.run([str(program)], env=environment, timeout=30)
    return [f"the program ended with {ran.returncode}"] if ran.returncode else []


def report(title, faults):
    print(f"{'not ok' if faults else 'ok'} - {title}")
    for fault in faults:
        print(f"  {fault}")
    return not faults


def main(build, names):
    good = True
    projects = {"shmem": "libmori-shmem", "ep": "libmori-ep", "io": "libmori-io"}
    for name in names:
        skipped = [project for other, project in projects.items() if other != name]
        with tempfile.TemporaryDirectory() as folder:
            target = pathlib.Path(folder)
            for tag in ("runtime", "devel"):
                part = target / tag
                files = install(build, part, tag, skipped)
                good &= report(f"{name}: files of {tag}", list(check_files(name, tag, files)))
            both = target / "use"
            # ep needs shmem at run time, as its package would.
            needed = [p for p in skipped if not (name == "ep" and p == "libmori-shmem")]
            for tag in ("runtime", "devel"):
                shutil.copytree(target / tag, both, symlinks=True, dirs_exist_ok=True)
                install(build, both, tag, needed)
            text = next(both.rglob(f"mori-{name}.pc")).read_text()
            version = re.search(r"^Version: (.+)$", text, re.M)[1]
            good &= report(f"{name}: a program builds on it", check_use(name, both, version))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2:]))
