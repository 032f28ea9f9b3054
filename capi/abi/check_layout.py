#!/usr/bin/env python3
"""Compares what the layout program prints with the record in layout.txt. A line that is gone or
different breaks programs that are already compiled; a new line is an addition, to be recorded with
--write in the same change (docs/versioning.md).

usage: check_layout.py PROGRAM layout.txt [--write]
"""

import difflib
import pathlib
import subprocess
import sys


def main(program, record, write):
    now = subprocess.run([program], check=True, capture_output=True, text=True, timeout=30).stdout
    if write:
        record.write_text(now)
        return 0
    before = record.read_text()
    changes = list(
        difflib.unified_diff(before.splitlines(), now.splitlines(), "recorded", "now", n=2)
    )
    print("\n".join(changes))
    for kind in ("struct", "enum", "typedef"):
        same = [line for line in before.splitlines() if line.startswith(kind)]
        print(f"{len(same)} {kind}s recorded")
    print(
        "ok - layout is as recorded" if not changes else "not ok - layout differs from layout.txt"
    )
    return 1 if changes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], pathlib.Path(sys.argv[2]), "--write" in sys.argv[3:]))
