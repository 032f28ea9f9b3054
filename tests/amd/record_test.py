#!/usr/bin/env python3
"""Tests of the record of executed code objects: what is accepted, refused and skipped, and that the
same source compiled in another folder gives the same bytes.
"""

import contextlib
import dataclasses
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import inspection_test
import record


@dataclasses.dataclass
class Object:
    """As much of a code object as the record looks at."""

    name: str = "k-gfx942.hsaco"
    architecture: str = "gfx942"
    sha256: str = "a" * 64
    compiler: str = "clang 1"
    kernels: dict = dataclasses.field(default_factory=lambda: {"run": {}, "walk": {}})


ENTRY = {
    "name": "k-gfx942.hsaco",
    "architecture": "gfx942",
    "sha256": "a" * 64,
    "compiler": "clang 1",
    "kernels": {"run": {"seeds": [1], "pe_counts": [2]}},
}
RECORD = {"date": "2000-01-02", "emulator": {}, "objects": [ENTRY]}


def check_verdicts():
    same = record.judge(Object(), RECORD)
    assert (same.word, same.text.split()[-1]) == ("ok", "2000-01-02"), same
    changed = record.judge(Object(sha256="b" * 64), RECORD)
    assert changed.word == "not ok", changed
    assert record.REFRESH in changed.text, changed
    assert "bbbbbbbbbbbb is not the recorded aaaaaaaaaaaa" in changed.text, changed
    new = record.judge(Object(name="new-gfx942.hsaco"), RECORD)
    assert (new.word, record.REFRESH in new.text) == ("not ok", True), new
    other = record.judge(Object(sha256="b" * 64, compiler="clang 2"), RECORD)
    assert other.word == "skip", other
    assert "by clang 2, the recorded one by clang 1" in other.text, other


def check_missing_kernels():
    assert list(record.kernels_not_run([Object()], [ENTRY])) == ["gfx942 walk"]
    walked = {**ENTRY, "kernels": {"walk": {"seeds": [1], "pe_counts": [4]}}}
    assert list(record.kernels_not_run([Object()], [ENTRY, walked])) == []
    other = {**walked, "architecture": "gfx950"}
    assert list(record.kernels_not_run([Object()], [ENTRY, other])) == ["gfx942 walk"]


def check_writing():
    more = {**ENTRY, "kernels": {"run": {"seeds": [2], "pe_counts": [2]}, "walk": {"seeds": [3]}}}
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
        path = pathlib.Path(folder, "record.json")
        assert record.write([ENTRY, more], folder, path)
        written = json.loads(path.read_text())
        assert written["objects"][0]["kernels"] == {
            "run": {"seeds": [1, 2], "pe_counts": [2]},
            "walk": {"seeds": [3]},
        }, written
        path.write_text(json.dumps({**written, "date": "2000-01-02"}))
        assert not record.write([ENTRY, more], folder, path), "nothing but the date has changed"
        assert json.loads(path.read_text())["date"] == "2000-01-02"
        assert record.write([ENTRY], folder, path)
    assert said.getvalue() == "record.json was written; commit it\n" * 2


def check_same_bytes():
    """The compile command of the build, from its own record, in two other places."""
    if shutil.which(inspection_test.COMPILER) is None:
        return
    flags = pathlib.Path("subprojects/mori-device/meson.build")
    assert "-fuse-cuid=none" in (inspection_test.ROOT / flags).read_text()
    hashes = set()
    for name in ("one", "another/one"):
        with tempfile.TemporaryDirectory() as top:
            folder = pathlib.Path(top, name)
            folder.mkdir(parents=True)
            workshop = inspection_test.Workshop(folder)
            body = inspection_test.BODY.format(inspection_test.GOOD)
            path, _ = workshop.compile(body, "gfx942", "-fuse-cuid=none")
            hashes.add(record.CodeObject.read(path).sha256)
    assert len(hashes) == 1, "the folder leaks into the code object"


CHECKS = (check_verdicts, check_missing_kernels, check_writing, check_same_bytes)


def main():
    good = True
    for check in CHECKS:
        title = check.__name__.removeprefix("check_").replace("_", " ")
        try:
            check()
            print(f"ok - record: {title}")
        except (AssertionError, subprocess.SubprocessError) as error:
            good = False
            print(f"not ok - record: {title}: {error}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
