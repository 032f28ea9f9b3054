#!/usr/bin/env python3
"""Prints the version of a library as its C header states it, after comparing it with the newest
node of its version script. The build asks this at configure time, so a release that forgets one of
the two does not configure. The rules are in docs/versioning.md.

usage: read_version.py CAPI_FOLDER shmem|ep|io
"""

import pathlib
import re
import sys


def read_version(capi, name):
    upper = name.upper()
    header = (capi / "include/mori" / f"{name}.h").read_text()
    version = [
        int(re.search(rf"#define MORI_{upper}_VERSION_{part} (\d+)", header)[1])
        for part in ("MAJOR", "MINOR", "PATCH")
    ]
    script = (capi / "maps" / f"mori-{name}.map").read_text()
    nodes = [
        (int(major), int(minor))
        for major, minor in re.findall(rf"^MORI_{upper}_(\d+)\.(\d+) \{{", script, re.M)
    ]
    if not nodes or max(nodes) != tuple(version[:2]):
        newest = "none" if not nodes else "{}.{}".format(*max(nodes))
        sys.exit(
            f"mori-{name}.map: newest node is {newest}, but mori/{name}.h says "
            f"{'.'.join(map(str, version))}; see docs/versioning.md"
        )
    return ".".join(map(str, version))


if __name__ == "__main__":
    print(read_version(pathlib.Path(sys.argv[1]), sys.argv[2]))
