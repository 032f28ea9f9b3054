#!/usr/bin/env python3
"""The release command sees each fault that it is there for, in a copy of the tree, and makes a tag
with a message when there is none.

usage: release_test.py
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = ROOT / "packaging/release.py"
PARTS = (
    *("meson.build", "pyproject.toml", "CHANGELOG.md", "packaging", "capi", "python/src/mori"),
    *(
        f"libmori-{name}/{file}"
        for name in ("shmem", "ep", "io")
        for file in ("meson.build", "CHANGELOG.md")
    ),
)
# File, what is changed in it, to what, and what must be said then.
FAULTS = (
    ("pyproject.toml", 'version = "0', 'version = "7', "pyproject.toml says 7."),
    ("python/src/mori/__init__.py", '__version__ = "0', '__version__ = "7', "__version__ says 7."),
    ("packaging/debian/changelog", "mori (0", "mori (7", "debian/changelog says 7."),
    ("packaging/debian/mori.1", '"mori 0', '"mori 7', "debian/mori.1 says 7."),
    ("libmori-io/meson.build", "version: '0", "version: '7", "libmori-io/meson.build 7."),
    ("libmori-ep/CHANGELOG.md", "## 0.1.0", "## 7.0.0", "libmori-ep/CHANGELOG.md ends with 7.0.0"),
    ("capi/maps/mori-io.map", "    mori_io_submit;\n", "", "lacks mori_io_submit MORI_IO_0.2"),
    (
        "capi/abi/symbols/mori-ep.txt",
        "mori_ep_combine MORI_EP_0.1\n",
        "",
        "mori-ep.txt lacks mori_ep_combine MORI_EP_0.1",
    ),
    (
        "packaging/debian/libmori-shmem0.symbols",
        "(symver)MORI_SHMEM_0.2",
        "(symver)MORI_SHMEM_9.9",
        "libmori-shmem0.symbols lacks MORI_SHMEM_0.2",
    ),
    ("CHANGELOG.md", "## 0.1.0", "## 0.1.0\n\n## 0.0.9", "capi/abi/0.0.9 is missing"),
)


def run(root, *options):
    # A tag has somebody who made it, also where git knows nobody.
    tagger = {"GIT_COMMITTER_NAME": "test", "GIT_COMMITTER_EMAIL": "test@invalid"}
    done = subprocess.run(
        [sys.executable, "-B", str(COMMAND), "--root", str(root), *options],
        env={**os.environ, **tagger},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def git(root, *arguments):
    identity = ["-c", "user.name=test", "-c", "user.email=test@invalid"]
    done = subprocess.run(
        ["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout


def copy(folder):
    for part in PARTS:
        source, target = ROOT / part, folder / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "lib"))
        else:
            shutil.copy(source, target)
    return folder


def seen(root, file, old, new, expected):
    """Whether a fault made in the copy is reported; the copy is then as before."""
    path = root / file
    before = path.read_text("utf-8")
    assert old in before, f"{file} has no {old!r}"
    path.write_text(before.replace(old, new, 1), "utf-8")
    status, said = run(root, "--always")
    path.write_text(before, "utf-8")
    return status == 1 and expected in said, said


def release_of(root):
    """Makes the copy what a release is: nothing unreleased, everything committed."""
    for path in root.rglob("CHANGELOG.md"):
        text = path.read_text("utf-8")
        path.write_text(re.sub(r"^## Unreleased\n.*?(?=^## )", "", text, flags=re.M | re.S))
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "release")


def check_release(root):
    """Unreleased entries and uncommitted files are refused; a tag has the message."""
    status, said = run(root, "--tag")
    yield "unreleased entries", status == 1 and "has unreleased entries" in said, said
    release_of(root)
    (root / "left").write_text("over\n")
    status, said = run(root, "--tag")
    yield "uncommitted files", status == 1 and "not committed: left" in said, said
    (root / "left").unlink()
    status, said = run(root, "--tag")
    yield "a release", status == 0 and "it is not pushed" in said, said
    text = git(root, "tag", "-l", "--format=%(contents)", "v*")
    good = text.startswith("mori 0.") and "libmori-io 0." in text and "## " not in text
    yield "the tag's message", good, text


def main():
    good = True

    def report(title, fine, said):
        nonlocal good
        good &= fine
        print(f"{'ok' if fine else 'not ok'} - release: {title}")
        if not fine:
            print("".join(f"  {line}\n" for line in said.splitlines()[:20]), end="")

    status, said = run(ROOT, "--always")
    report("this tree", status == 0, said)
    with tempfile.TemporaryDirectory(prefix="mori-release-") as name:
        root = copy(pathlib.Path(name))
        for fault in FAULTS:
            report(f"a fault in {fault[0]} is seen", *seen(root, *fault))
        for title, fine, said in check_release(root):
            report(title, fine, said)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
