#!/usr/bin/env python3
"""Each crate configures alone with both Mesons, Debian's and the newest, and builds alone with one.

Debug builds without tests: what is checked is that a crate finds everything it needs through its
own subprojects/ folder, not the code.

usage: alone.py FOLDER MESON ...
"""

import pathlib
import shutil
import subprocess
import sys

CRATES = (
    "capi",
    "subprojects/mori-base",
    "subprojects/mori-device",
    "subprojects/mori-link",
    "libmori-shmem",
    "libmori-ep",
    "libmori-io",
)
ROOT = pathlib.Path(__file__).resolve().parents[1]
OPTIONS = ("-Dbuildtype=debug", "-Ddebug=false", "-Dtests=disabled")


def run(*command):
    """Runs a command; returns its output when it failed, else nothing."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).splitlines()[-30:] if done.returncode else []


def version_of(meson):
    return subprocess.run([meson, "--version"], capture_output=True, text=True).stdout.strip()


def options_of(crate):
    """GPU kernels have a suite of their own."""
    text = (ROOT / crate / "meson_options.txt").read_text()
    skipped = [name for name in ("amd", "nvidia", "bitcode") if f"'{name}'" in text]
    return [*OPTIONS, *(f"-D{name}=disabled" for name in skipped)]


def main(folder, mesons):
    good = True
    for crate in CRATES:
        name = crate.rpartition("/")[2]
        for meson in mesons:
            build = folder / f"{name}-{version_of(meson)}"
            shutil.rmtree(build, ignore_errors=True)
            faults = run(meson, "setup", str(build), crate, *options_of(crate))
            title = f"{name} configures alone with Meson {version_of(meson)}"
            print(f"{'not ok' if faults else 'ok'} - {title}", *faults, sep="\n  ", flush=True)
            good &= not faults
        faults = run("ninja", "-C", str(build), "-j2")
        print(
            f"{'not ok' if faults else 'ok'} - {name} builds alone", *faults, sep="\n  ", flush=True
        )
        good &= not faults
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2:]))
