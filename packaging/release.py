#!/usr/bin/env python3
"""Checks that the tree can be released as it is, and says what the tag's message would be.

What must always hold: a library's header, version script, project and changelog say one version;
so do the tree's build file, pyproject.toml, package and Debian files; symbols files name the nodes
of the version scripts; the recorded ABI has what the version scripts export; what earlier releases
froze is there. For a release also: changelogs have no unreleased entries, this release is frozen,
and nothing is uncommitted. Nothing is pushed; a tag is made only with --tag, here.

usage: release.py [--always] [--tag] [--root FOLDER]
  --always   only what must hold between releases too
  --tag      makes the annotated tag vVERSION when all is well
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tomllib

LIBRARIES = ("shmem", "ep", "io")
HEADING = re.compile(r"^## (.+)$", re.M)


def found(path, pattern):
    """The first group of a pattern that a file must have, else a text that no version equals."""
    match = re.search(pattern, path.read_text("utf-8"), re.M) if path.exists() else None
    return match[1] if match else f"nothing ({path.name} has none)"


def tree_version(root):
    return found(root / "meson.build", r"version: '([\d.]+)'")


def library_version(root, name):
    return found(root / f"libmori-{name}/meson.build", r"version: '([\d.]+)'")


def nodes(root, name):
    """Node -> symbols of a version script, in its order."""
    text = (root / f"capi/maps/mori-{name}.map").read_text("utf-8")
    blocks = re.findall(r"^(MORI_\w+?_[\d.]+) \{(.*?)^\}", text, re.M | re.S)
    return {node: re.findall(r"^\s+(mori_\w+);", body, re.M) for node, body in blocks}


def released(path):
    """Headings of a changelog, newest first, "Unreleased" aside."""
    return [one for one in HEADING.findall(path.read_text("utf-8")) if one != "Unreleased"]


def section(path, heading):
    """What a changelog says under a heading."""
    parts = HEADING.split(path.read_text("utf-8"))
    return dict(zip(parts[1::2], parts[2::2], strict=True)).get(heading, "").strip()


def check_tree_version(root):
    version = tree_version(root)
    said = {
        "pyproject.toml": tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"][
            "version"
        ],
        "mori.__version__": found(
            root / "python/src/mori/__init__.py", r'^__version__ = "([\d.]+)"'
        ),
        "debian/changelog": found(root / "packaging/debian/changelog", r"^mori \(([\d.]+)\)"),
        "debian/mori.1": found(root / "packaging/debian/mori.1", r'^\.TH .* "mori ([\d.]+)"'),
        "CHANGELOG.md": released(root / "CHANGELOG.md")[0],
    }
    for name, other in said.items():
        if other != version:
            yield f"{name} says {other}, meson.build says {version}"


def check_library_versions(root):
    for name in LIBRARIES:
        version = library_version(root, name)
        parts = [
            found(root / f"capi/include/mori/{name}.h", rf"MORI_{name.upper()}_VERSION_{p} (\d+)")
            for p in ("MAJOR", "MINOR", "PATCH")
        ]
        newest = list(nodes(root, name))[-1].rsplit("_", 1)[1]
        if ".".join(parts) != version:
            yield f"mori/{name}.h says {'.'.join(parts)}, libmori-{name}/meson.build {version}"
        if not version.startswith(f"{newest}."):
            yield f"mori-{name}.map ends with node {newest}, the version is {version}"
        noted = released(root / f"libmori-{name}/CHANGELOG.md")[0]
        if noted != version:
            yield f"libmori-{name}/CHANGELOG.md ends with {noted}, the version is {version}"


def check_abi_records(root):
    for name in LIBRARIES:
        record = set((root / f"capi/abi/symbols/mori-{name}.txt").read_text().splitlines())
        wanted = {f"{one} {node}" for node, many in nodes(root, name).items() for one in many}
        for line in sorted(wanted - record):
            yield f"capi/abi/symbols/mori-{name}.txt lacks {line}"
        for line in sorted(record - wanted):
            yield f"mori-{name}.map lacks {line}"
        symbols = (root / f"packaging/debian/libmori-{name}0.symbols").read_text()
        for node in nodes(root, name):
            if f" (symver){node} {node.rsplit('_', 1)[1]}.0\n" not in symbols:
                yield f"debian/libmori-{name}0.symbols lacks {node}"


def check_frozen(root):
    """All releases since 1.0 stay frozen, of those before the last; this one may not be out yet."""
    out = [one for one in released(root / "CHANGELOG.md") if one != tree_version(root)]
    kept = [one for one in out if not one.startswith("0.")] or out[:1]
    for version in kept:
        if not (root / f"capi/abi/{version}/layout.txt").exists():
            yield f"capi/abi/{version} is missing: that release is not frozen"


def check_nothing_unreleased(root):
    for path in ("CHANGELOG.md", *(f"libmori-{name}/CHANGELOG.md" for name in LIBRARIES)):
        if section(root / path, "Unreleased"):
            yield f"{path} has unreleased entries; put them under the version they belong to"


def check_this_is_frozen(root):
    version = tree_version(root)
    if not (root / f"capi/abi/{version}/layout.txt").exists():
        yield f"capi/abi/{version} is missing; bash capi/abi/freeze.sh {version} build/release"


def check_committed(root):
    done = subprocess.run(
        ["git", "-C", str(root), "status", "--porcelain"], capture_output=True, text=True
    )
    if done.returncode:
        yield f"git: {done.stderr.strip()}"
    for line in done.stdout.splitlines():
        yield f"not committed: {line[3:]}"


ALWAYS = (check_tree_version, check_library_versions, check_abi_records, check_frozen)
FOR_A_RELEASE = (check_nothing_unreleased, check_this_is_frozen, check_committed)


def message(root):
    """Of the tag: versions, then what each changelog says about them."""
    version = tree_version(root)
    versions = {name: library_version(root, name) for name in LIBRARIES}
    lines = [f"mori {version}", ""]
    lines += [f"libmori-{name} {one}" for name, one in versions.items()]
    lines += ["", section(root / "CHANGELOG.md", version)]
    for name, one in versions.items():
        lines += ["", f"libmori-{name} {one}:", ""]
        lines += [section(root / f"libmori-{name}/CHANGELOG.md", one)]
    return "\n".join(lines).strip() + "\n"


def make_tag(root):
    """0, or git's exit code."""
    name = f"v{tree_version(root)}"
    done = subprocess.run(
        ["git", "-C", str(root), "tag", "-a", name, "--cleanup=verbatim", "-F", "-"],
        input=message(root),
        text=True,
    )
    if done.returncode == 0:
        print(f"tagged {name} here; it is not pushed")
    return done.returncode


def main():
    parser = argparse.ArgumentParser(prog="release.py", description=__doc__.split("\n")[0])
    parser.add_argument("--always", action="store_true", help="what holds between releases too")
    parser.add_argument("--tag", action="store_true", help="make the tag when all is well")
    parser.add_argument(
        "--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1]
    )
    options = parser.parse_args()
    good = True
    for check in ALWAYS if options.always else ALWAYS + FOR_A_RELEASE:
        faults = list(check(options.root))
        good &= not faults
        title = check.__name__.removeprefix("check_").replace("_", " ")
        print(f"{'not ok' if faults else 'ok'} - release: {title}")
        print("".join(f"  {fault}\n" for fault in faults), end="")
    if not good:
        return 1
    if not options.always:
        print(message(options.root), end="")
    return make_tag(options.root) if options.tag else 0


if __name__ == "__main__":
    sys.exit(main())
