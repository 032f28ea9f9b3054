"""The command-line tool: what `mori info` reports, exit statuses, and errors without traces."""

import json
import os
import subprocess
import sys

import fake_gpu
import pytest
from mori import info
from mori.shmem import set_log_level


def mori(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "mori", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        check=False,
    )


def test_info():
    done = mori("info", MORI_SHMEM_HEAP_SIZE="16MiB")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for part in (
        "mori 0.1.0",
        "libmori-shmem 0.3.0, ABI level 3",
        "libmori-ep    0.1.0, ABI level 1",
        "libmori-io    0.2.0, ABI level 2",
        "host    viable: ",
        "worker threads for one PE, static heap",
        "default host (MORI_BACKEND)",
        "TCP     viable",
        "FABRIC  not viable: ",
        "heap per PE 16MiB (MORI_SHMEM_HEAP_SIZE)",
        "MORI_SHMEM_HEAP_SIZE=16MiB",
    ):
        assert part in done.stdout


def test_info_json():
    done = mori("info", "--json")
    report = json.loads(done.stdout)
    assert report["libraries"]["shmem"]["version"] == "0.3.0"
    assert report["backends"]["host"]["viable"] is True
    for name in ("amd", "nvidia"):
        backend = report["backends"][name]
        assert backend["viable"] or backend["reason"]
    assert list(report["io_backends"]) == ["XGMI", "RDMA", "TCP", "FABRIC"]
    assert report["io_backends"]["TCP"]["viable"] is True
    assert report["io_backends"]["FABRIC"]["status"] == "MORI_E_UNSUPPORTED"
    assert report["default_backend"] == {"name": "host", "reason": "MORI_BACKEND"}
    assert report["memory"]["available_bytes"] > 0


def test_info_of_a_gpu(monkeypatch, capsys):
    fake_gpu.pretend(monkeypatch, "nvidia", 3)
    monkeypatch.delenv("MORI_BACKEND")
    report = info.gather()
    set_log_level("warn")
    nvidia = report["backends"]["nvidia"]
    assert (nvidia["viable"], nvidia["gpu_ordinal"], nvidia["gpu_sharer_count"]) == (True, 3, 2)
    info._print(report)
    printed = capsys.readouterr().out
    assert "nvidia  viable: GPU 3 for 2 PEs, static heap\n" in printed
    assert "default auto (without MORI_BACKEND: the GPU if torch is imported" in printed


def test_info_without_libraries(tmp_path):
    done = mori("info", MORI_LIBRARY_DIR=str(tmp_path))
    assert done.returncode == 1
    assert "libmori-shmem not usable" in done.stdout
    assert "Traceback" not in done.stderr


def test_info_with_a_bad_setting():
    done = mori("info", MORI_SHMEM_MODE="wild")
    assert done.returncode == 1
    assert "host    not viable" in done.stdout
    assert "wild" in done.stdout


@pytest.mark.parametrize(
    "arguments", [[], ["fly"], ["info", "--yaml"], ["bench"], ["bench", "io", "--sizes", "x"]]
)
def test_wrong_use(arguments):
    done = mori(*arguments)
    assert done.returncode == 2
    assert "usage: mori" in done.stderr
    assert "Traceback" not in done.stderr


def test_version_and_help():
    assert mori("--version").stdout == "mori 0.1.0\n"
    assert "demo" in mori("--help").stdout
    assert "--corrupt" in mori("demo", "--help").stdout
    assert "--plot FILE.svg" in mori("bench", "io", "--help").stdout


@pytest.mark.parametrize(
    "command", [["bench", "io"], ["bench", "ep"], ["bench", "shmem"], ["doctor"]]
)
def test_help_has_examples_and_exit_statuses(command):
    printed = mori(*command, "--help").stdout
    assert f"  mori {' '.join(command)} " in printed
    assert "exit status: 0 " in printed
    assert "2 wrong use" in printed
