#!/usr/bin/env python3
"""Runs the kernels' AMD code objects on this machine's processor, by an emulator over a source tree
of tinygrad that TINYGRAD_TREE names. README.md says how to get one and what a pass is worth.

usage: execution.py BUILD_FOLDER        MORI_TEST_LONG=1 in the environment: more random schedules
"""

import json
import os
import pathlib
import subprocess
import sys

from emulator.decoder import TREE

HERE = pathlib.Path(__file__).resolve().parent
SUITES = ["emulator/probe_test.py"]


def reason_to_skip(build):
    tree = os.environ.get(TREE)
    if not tree:
        return f"{TREE} names no source tree of tinygrad; see tests/amd/README.md"
    if not pathlib.Path(tree, "test/mockgpu/amd/emu.py").exists():
        return f"{TREE}={tree} is no source tree of tinygrad: it has no test/mockgpu/amd/emu.py"
    if not outputs(build, ".hsaco"):
        return "no code objects for AMD GPUs were compiled"
    return None


def outputs(build, ending):
    """Files of the build whose names end so."""
    targets = json.loads((build / "meson-info/intro-targets.json").read_text())
    names = {name for target in targets for name in target["filename"]}
    return sorted(pathlib.Path(name) for name in names if name.endswith(ending))


def main(build):
    if reason := reason_to_skip(build):
        print(f"skip - AMD code objects are not executed: {reason}")
        return 0
    subprocess.run(["ninja", "-C", str(build), "-j2", "amd-host"], check=True)
    os.environ.setdefault("CACHEDB", str(build / "tinygrad.db"))
    (library,) = outputs(build, "libamd-emulator.so")
    failed = 0
    for probe in outputs(build, ".hsaco"):
        if probe.name.startswith("probe_kernels-"):
            command = [sys.executable, "-B", str(HERE / SUITES[0]), str(library), str(probe)]
            failed += subprocess.run(command).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
