"""The suite ir: the device bitcode of a build and what compilers make of it. Without clang there is
no bitcode, and nothing to test.

usage: python tests/ir BUILD_FOLDER
"""

import concurrent.futures
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TRITONS = ROOT / "build/triton"
LIMIT_S = 280 * float(os.environ.get("MORI_TEST_PATIENCE", "1"))


def run(command, environment):
    """(exit status, output)."""
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        env=environment,
        check=False,
    )
    return done.returncode, done.stdout


def main(build):
    folder = build / "subprojects/libmori-shmem/functions"
    bitcode = sorted(folder.glob("libmori_shmem_device-*.bc"))
    if not bitcode:
        print("skip - the build has no device bitcode (no clang of version 19 or later)")
        return 0
    setup = "source python/setup_env.sh && mori_make_triton"
    if subprocess.call(["bash", "-c", setup], cwd=ROOT, timeout=LIMIT_S) != 0:
        print("not ok - Triton could not be installed")
        return 1
    python = [sys.executable, "-B"]
    of_vendor = [next((b for b in bitcode if v in b.name), None) for v in ("-gfx942", "-sm_90")]
    commands = [[*python, HERE / "triton_compile.py", one] for one in sorted(TRITONS.iterdir())]
    commands += [
        [*python, HERE / "raw_link.py", *bitcode],
        [*python, HERE / "ordering.py", *bitcode],
    ]
    if all(of_vendor):
        commands.append([*python, HERE / "ordering_test.py", *of_vendor])
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        environment = {
            **os.environ,
            "MORI_SHMEM_BC_DIR": str(folder),
            "MORI_CACHE_DIR": f"{scratch}/mori",
            "TRITON_CACHE_DIR": f"{scratch}/triton",
        }
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for status, output in pool.map(lambda one: run(one, environment), commands):
                print(output, end="", flush=True)
                failed += status != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
