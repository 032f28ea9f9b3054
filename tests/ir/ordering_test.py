#!/usr/bin/env python3
"""That ordering.py notices: the same bitcode with fences of a narrower scope is refused, with the
functions named.

usage: ordering_test.py BITCODE_OF_AMD BITCODE_OF_NVIDIA
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIMIT_S = 240 * float(os.environ.get("MORI_TEST_PATIENCE", "1"))
# What is replaced in the module's text, and what has to be said of it then.
NARROWED = (
    (
        "fence release\n",
        'fence syncscope("agent") release\n',
        "mori_shmem_quiet_thread: writes back for this GPU alone: ",
    ),
    (
        "fence.acq_rel.sys",
        "fence.acq_rel.gpu",
        "mori_shmem_barrier_all_thread: has no fence.acq_rel.sys",
    ),
)


def run(*command, text=None):
    return subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def fault_of(bitcode, folder, old, new, said):
    listing = run("llvm-dis-22", bitcode, "-o", "-").stdout
    if old not in listing:
        return f"the module has no {old.strip()}"
    made = Path(folder) / bitcode.name
    done = run("llvm-as-22", "-", "-o", made, text=listing.replace(old, new))
    if done.returncode != 0:
        return done.stderr
    done = run(sys.executable, "-B", HERE / "ordering.py", made)
    return "" if done.returncode == 1 and said in done.stdout else f"it said {done.stdout}"


def main(paths):
    if shutil.which("llvm-as-22") is None:
        print("skip - no llvm-as-22 here")
        return 0
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for bitcode, narrowed in zip(map(Path, paths), NARROWED, strict=True):
            fault = fault_of(bitcode, folder, *narrowed)
            word = "not ok" if fault else "ok"
            print(f"{word} - fences of a narrower scope in {bitcode.name} are noticed", fault)
            failed += bool(fault)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
