#!/usr/bin/env python3
"""The wheel as a user meets it: built by its one command from the objects of a finished build,
looked at, installed into an environment made from scratch, where the README's Python examples run
with numpy alone; and the sdist, from which a package builds without the repository.

usage: wheel_test.py BUILD_FOLDER
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TAG = "py3-none-manylinux_2_34_x86_64"
LIBRARIES = ("libmori-shmem.so.0", "libmori-ep.so.0", "libmori-io.so.0")
LARGEST_BYTES = 20 << 20
# What has no business in an environment of numpy only.
ONLY = {"mori", "numpy", "cffi", "pycparser", "pip", "setuptools", "wheel"}
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("MORI_", "PYTHON", "LD_LIBRARY"))
}


def run(*command, timeout=300, folder=None):
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=CLEAN,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if done.returncode:
        text = (done.stdout + done.stderr).strip()
        raise AssertionError(f"{command[0]} ended with {done.returncode}: {text[-2000:]}")
    return done.stdout


def build(objects, folder):
    """(wheel, sdist) that packaging/wheel.sh made."""
    run("bash", ROOT / "packaging/wheel.sh", "--from", objects, "--output", folder)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def check_reproducible(objects, first, folder):
    for one, two in zip(first, build(objects, folder), strict=True):
        assert one.read_bytes() == two.read_bytes(), f"{one.name} differs between two builds"


def check_content(wheel, folder):
    assert re.fullmatch(rf"mori-[\d.]+-{TAG}\.whl", wheel.name), wheel.name
    assert wheel.stat().st_size < LARGEST_BYTES, wheel.stat().st_size
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(folder)
    assert "mori/py.typed" in names
    assert "mori/_cdef_mori.py" in names
    assert sorted(n for n in names if ".so" in n) == sorted(f"mori/lib/{n}" for n in LIBRARIES)
    for name in LIBRARIES:
        sections = run("readelf", "-SW", folder / "mori/lib" / name)
        assert ".symtab" not in sections, f"{name} is not stripped"
        assert ".debug_info" not in sections, f"{name} is not stripped"
        assert str(ROOT).encode() not in (folder / "mori/lib" / name).read_bytes(), f"{name}: paths"


def check_policy(wheel):
    said = " ".join(run(sys.executable, "-m", "auditwheel", "show", wheel).split())
    assert f'platform tag: "{TAG.removeprefix("py3-none-")}"' in said, said


def make_environment(folder, wheel):
    """An environment with the wheel and what it requires; its Python."""
    base = pathlib.Path(sys.executable).resolve()
    run(base, "-m", "venv", folder)
    python = folder / "bin/python"
    run(python, "-m", "pip", "install", "--disable-pip-version-check", "-q", wheel, timeout=600)
    return python


def check_installed(python, folder):
    listed = json.loads(
        run(python, "-m", "pip", "list", "--disable-pip-version-check", "--format", "json")
    )
    assert {package["name"].lower() for package in listed} <= ONLY, listed
    report = json.loads(run(folder / "bin/mori", "info", "--json", folder=folder))
    for name, library in report["libraries"].items():
        assert library["loaded"], (name, library)
        assert library["path"].startswith(str(folder)), (name, library)
    assert report["backends"]["host"]["viable"], report["backends"]["host"]
    has_bitcode = "import mori.ir, mori.ir._bitcode as b; print(len(b.available()))"
    print(f"  device bitcode of {run(python, '-c', has_bitcode).strip()} architectures")


def check_examples(python):
    said = run(python, "-B", ROOT / "tests/ffi/readme_examples.py", "python")
    print("".join(f"  {line}\n" for line in said.splitlines()), end="")
    assert said.count("ok - ") >= 2, said
    assert "not ok" not in said, said


def check_sdist(python, sdist, wheel, folder):
    tracked = run("git", "-C", ROOT, "ls-files", "-z").split("\0")
    base = sdist.name.removesuffix(".tar.gz")
    with tarfile.open(sdist) as archive:
        held = {entry.name: entry for entry in archive}
    missing = {name for name in tracked if name and f"{base}/{name}" not in held}
    assert not missing, f"the sdist lacks {sorted(missing)[:5]}"
    assert {(e.uid, e.gid, e.mtime) for e in held.values()} == {(0, 0, 0)}
    run(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, sdist, timeout=600)
    (made,) = folder.glob("*.whl")
    assert made.name.endswith("-py3-none-any.whl"), made.name
    with zipfile.ZipFile(made) as pure, zipfile.ZipFile(wheel) as full:
        sources = [name for name in full.namelist() if name.endswith(".py") and "lib" not in name]
        assert sources, "no source in the wheel"
        for name in sources:
            assert pure.read(name) == full.read(name), name


def main(objects):
    good = True
    with tempfile.TemporaryDirectory(prefix="mori-wheel-") as name:
        work = pathlib.Path(name)
        wheel, sdist = first = build(objects, work / "dist")
        python = work / "venv/bin/python"
        steps = [
            ("built twice, the same bytes", check_reproducible, objects, first, work / "b"),
            ("content", check_content, wheel, work / "content"),
            ("auditwheel", check_policy, wheel),
            ("pip install into a new environment", make_environment, work / "venv", wheel),
            ("mori info there", check_installed, python, work / "venv"),
            ("README examples there", check_examples, python),
            ("a package from the sdist", check_sdist, python, sdist, wheel, work / "sdist"),
        ]
        for title, check, *arguments in steps:
            try:
                check(*arguments)
            except (AssertionError, OSError, subprocess.TimeoutExpired) as fault:
                good = False
                print(f"not ok - wheel: {title}\n  {fault}")
            else:
                print(f"ok - wheel: {title}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
