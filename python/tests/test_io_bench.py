"""`mori bench io`: the table, JSON, the picture, and what it says when it cannot."""

import csv
import importlib.util
import json
import subprocess
import sys

import pytest
from io_pairs import BACKENDS

SHORT = ("--sizes", "8,4096", "--batches", "1,4", "--iters", "5")
HEAD = (
    "MsgSize (B)  BatchSize  TotalSize (MB)  Max BW (GB/s)  Avg BW (GB/s)  Min Lat (us)  "
    "Avg Lat (us)"
)


def bench(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "mori", "bench", "io", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("operation", ["read", "write"])
def test_table(backend, operation):
    done = bench("--backend", backend, "--op", operation, *SHORT)
    assert done.returncode == 0, done.stderr
    title, head, *rows = done.stdout.splitlines()
    assert title == f"{operation} over {backend}, security default"
    assert head == HEAD
    numbers = [[float(cell) for cell in row.split()] for row in rows]
    assert [row[:2] for row in numbers] == [[8, 1], [4096, 1], [8, 4], [4096, 4]]
    for size, batch, total, best, mean, least, average in numbers:
        assert total == pytest.approx(size * batch / 1e6, abs=5e-4)
        assert best >= mean >= 0
        assert 0 < least <= average


def test_json():
    done = bench("--json", "--security", "trusted", "--spin-us", "20", *SHORT)
    report = json.loads(done.stdout)
    assert (report["backend"], report["op"], report["security"]) == ("TCP", "write", "trusted")
    assert [row["message_bytes"] for row in report["rows"]] == [8, 4096, 8, 4096]
    assert all(row["transfers"] == 5 for row in report["rows"])
    assert all(row["max_gb_per_s"] >= row["avg_gb_per_s"] > 0 for row in report["rows"])


def test_picture(tmp_path):
    target = tmp_path / "bench.svg"
    done = bench("--plot", str(target), *SHORT)
    if importlib.util.find_spec("matplotlib") is None:
        assert done.returncode == 1
        assert "--plot needs matplotlib, which is not installed" in done.stderr
        assert done.stdout == ""  # said before anything is measured
        return
    assert done.returncode == 0, done.stderr
    assert target.read_text().startswith("<?xml")
    done = bench("--plot", str(tmp_path / "bench.png"), *SHORT)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
    done = bench("--plot", str(tmp_path / "nowhere/bench.svg"), *SHORT)
    assert done.returncode == 1
    assert "cannot write" in done.stderr


def test_picture_of_no_kind(tmp_path):
    done = bench("--plot", str(tmp_path / "bench.jpg"), *SHORT)
    assert done.returncode == 1
    assert "a name that ends in .svg or .png" in done.stderr
    assert done.stdout == ""


def test_csv(tmp_path):
    target = tmp_path / "bench.csv"
    done = bench("--csv", str(target), *SHORT)
    assert done.returncode == 0, done.stderr
    with target.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["message_bytes"], row["batch_size"]) for row in rows] == [
        ("8", "1"),
        ("4096", "1"),
        ("8", "4"),
        ("4096", "4"),
    ]
    assert all(float(row["avg_us"]) >= float(row["min_us"]) > 0 for row in rows)
    done = bench("--csv", str(tmp_path / "nowhere/bench.csv"), *SHORT)
    assert done.returncode == 1
    assert "cannot write" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--sizes", "0"], 2, "0 is less than 1"),
        (["--sizes", "8,x"], 2, "'8,x' are not whole numbers by commas"),
        (["--iters", "0"], 1, "--iters is 0, expected at least 1"),
        (["--backend", "FABRIC"], 2, "invalid choice"),
        (["--host", "192.0.2.200", *SHORT], 1, "192.0.2.200"),
    ],
)
def test_wrong_use(arguments, status, message):
    done = bench(*arguments)
    assert done.returncode == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr
