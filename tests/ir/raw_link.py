#!/usr/bin/env python3
"""The example of libmori-shmem/examples: a kernel in C++ and in LLVM IR, linked with the device
bitcode to what a driver loads, for every architecture; the kernel and the state are there, and
nothing is left undefined.

usage: raw_link.py BITCODE...
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "libmori-shmem/examples"
sys.path.insert(0, str(ROOT / "tests"))

from device_objects import GLOBAL_FUNCTION, UNDEFINED, symbols  # noqa: E402

LIMIT_S = 120 * float(os.environ.get("MORI_TEST_PATIENCE", "1"))
STATE = "mori_shmem_module_state_v2"


def faults_of(data):
    found = list(symbols(data))
    names = {name for name, _, binding, index in found if binding and index != UNDEFINED}
    yield from (f"lacks {name}" for name in ("ring", STATE) if name not in names)
    for name, kind, binding, index in found:
        if name and binding == 1 and index == UNDEFINED:
            yield f"leaves {name} undefined"
        # ptxas has functions of its own, whose names begin with $.
        foreign = name != "ring" and not name.startswith("$")
        if kind == GLOBAL_FUNCTION and binding and index and foreign:
            yield f"keeps {name}, which is inlined"


def main(paths):
    llvm = next((str(v) for v in (22, 23, 24) if shutil.which(f"llvm-link-{v}")), None)
    if llvm is None:
        print("skip - no llvm-link of version 22 to 24 here")
        return 0
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for path in map(Path, paths):
            arch = path.stem.removeprefix("libmori_shmem_device-")
            vendor = "amd" if arch.startswith("gfx") else "nvidia"
            if vendor == "nvidia" and shutil.which("ptxas") is None:
                print(f"skip - {arch}: no ptxas here")
                continue
            for kernel in ("ring.cpp", f"ring_{vendor}.ll"):
                made = Path(folder) / f"{arch}-{kernel}.out"
                done = subprocess.run(
                    [
                        *("bash", EXAMPLES / "link.sh", arch, EXAMPLES / kernel, path, made),
                        ROOT / "libmori-shmem/include",
                    ],
                    capture_output=True,
                    text=True,
                    timeout=LIMIT_S,
                    env={**os.environ, "LLVM": llvm},
                    check=False,
                )
                faults = [done.stderr.strip()[-800:]] if done.returncode or done.stderr else []
                faults += faults_of(made.read_bytes()) if made.exists() else ["nothing was made"]
                print(f"{'not ok' if faults else 'ok'} - {arch}: {kernel}", *faults, sep="\n  ")
                failed += bool(faults)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
