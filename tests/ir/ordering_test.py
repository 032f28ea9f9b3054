#!/usr/bin/env python3
"""That ordering.py notices: bitcode whose fences and atomics have a narrower scope than they must
is refused, with the functions named.

usage: ordering_test.py BITCODE_OF_AMD BITCODE_OF_NVIDIA
"""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIMIT_S = 240
AMD, NVIDIA = (Path(one).resolve() for one in sys.argv[1:3])


def run(*command, text=None):
    return subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


class Narrowed(unittest.TestCase):
    def narrowed(self, bitcode, folder, *replacements):
        """What ordering.py says of the same module with words replaced in its text."""
        listing = run("llvm-dis-22", bitcode, "-o", "-").stdout
        for old, new in replacements:
            self.assertIn(old, listing)
            listing = listing.replace(old, new)
        made = Path(folder) / bitcode.name
        self.assertEqual(run("llvm-as-22", "-", "-o", made, text=listing).returncode, 0)
        return run(sys.executable, "-B", HERE / "ordering.py", made)

    def test_nvidia(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.narrowed(NVIDIA, folder, ("fence.acq_rel.sys", "fence.acq_rel.gpu"))
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("0 passed, 1 failed", done.stdout)
        self.assertIn("mori_shmem_barrier_all_thread: has no fence.acq_rel.sys", done.stdout)

    def test_amd(self):
        with tempfile.TemporaryDirectory() as folder:
            narrower = ("fence release\n", 'fence syncscope("agent") release\n')
            done = self.narrowed(AMD, folder, narrower)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("0 passed, 1 failed", done.stdout)
        self.assertIn("writes back for this GPU alone: ", done.stdout)


if __name__ == "__main__":
    if shutil.which("llvm-as-22") is None:
        print("skip - no llvm-as-22 here")
        sys.exit(0)
    unittest.main(argv=sys.argv[:1])
