"""`mori run-tests`: passes here, names tests, goes on after a failure."""

import json
import os
import subprocess
import sys

from mori import self_test
from mori.cli import main


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "mori", "run-tests", *arguments],
        capture_output=True,
        text=True,
        timeout=90,
        env={**os.environ, **environment},
        check=False,
    )


def test_all_pass():
    done = run("--json")
    report = json.loads(done.stdout)
    failed = [one for one in report["tests"] if not one["passed"]]
    assert not failed
    assert done.returncode == 0
    assert [one["name"] for one in report["tests"]] == list(self_test.TESTS)
    assert report["tests"][0]["found"] == "shmem 0.3.0, ep 0.1.0, io 0.2.0"
    assert report["ok"] is True


def test_a_failure_does_not_end_the_run(monkeypatch, capsys):
    def fails():
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(self_test, "TESTS", {"a": fails, "b": lambda: "fine"})
    assert main(["run-tests"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("not ok - a: OSError: [Errno 28] No space left on device (")
    assert lines[1].startswith("ok - b: fine (")
    assert lines[2] == "1 passed, 1 failed"


def test_without_libraries(tmp_path):
    done = run("--only", "lib", MORI_LIBRARY_DIR=str(tmp_path))
    assert done.returncode == 1
    assert "not ok - libraries: LibraryError: libmori-shmem could not be loaded" in done.stdout
    assert "Traceback" not in done.stderr


def test_names():
    assert run("--list", "--only", "ep").stdout == "ep-two-pes\nep-four-pes\n"
    done = run("--only", "nothing")
    assert done.returncode == 2
    assert "no test begins with 'nothing': libraries, shmem-mapped" in done.stderr
