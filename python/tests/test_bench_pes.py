"""`mori bench shmem` and `mori bench ep`: tables, CSV, launchers, and what they say when they
cannot."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mori.bench import ep, pes, shmem
from mori.bench.report import BenchError

SHMEM = ("shmem", "--sizes", "8,4096", "--iters", "20", "--window", "4")
EP = ("ep", "--tokens", "1,9", "--hidden", "64", "--experts", "4", "--top-k", "3", "--iters", "2")


def bench(*arguments, before=(), **environment):
    return subprocess.run(
        [*before, sys.executable, "-m", "mori", "bench", *arguments],
        capture_output=True,
        text=True,
        timeout=90,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize("options", [(), ("--network",), ("--pes", "3")])
def test_shmem(options):
    done = bench(*SHMEM, *options)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no progress into a pipe
    title, head, *rows = done.stdout.splitlines()
    assert title.endswith("over TCP" if options == ("--network",) else "mapped")
    assert head.startswith("MsgSize (B)  Put Lat (us)  Min (us)  Get Lat (us)")
    numbers = [[float(cell) for cell in row.split()] for row in rows]
    assert [row[0] for row in numbers] == [8, 4096]
    for _, put, least_put, get, least_get, rate in numbers:
        assert put >= least_put > 0
        assert get >= least_get > 0
        assert rate >= 0


def test_shmem_json_says_the_transport():
    mapped, network = (
        json.loads(bench(*SHMEM, "--json", *more).stdout) for more in ((), ("--network",))
    )
    assert (mapped["pes"], mapped["window"], mapped["network"]) == (2, 4, False)
    assert {row["transport"] for row in mapped["rows"]} == {"p2p"}
    assert {row["transport"] for row in network["rows"]} == {"tcp"}


def test_ep(tmp_path):
    target = tmp_path / "ep.csv"
    done = bench(*EP, "--pes", "3", "--csv", str(target))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3 PEs of the host back end, hidden 64 float32, top 3 of 4 ")
    with target.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["token_count"] for row in rows] == ["1", "9"]
    for row in rows:
        # Each of the PEs' tokens comes here at most once.
        assert 0 <= int(row["received_count"]) <= 3 * int(row["token_count"])
        for what in ("dispatch", "combine"):
            assert float(row[f"{what}_avg_us"]) >= float(row[f"{what}_min_us"]) > 0


def test_ep_of_one_pe_receives_its_own():
    report = json.loads(bench(*EP, "--pes", "1", "--json").stdout)
    assert [row["received_count"] for row in report["rows"]] == [1, 9]
    assert (report["pes"], report["hidden"], report["top_k"]) == (1, 64, 3)


def test_under_a_launcher():
    mpirun = Path(sys.executable).with_name("mpirun")
    if not mpirun.exists() and not shutil.which("mpirun"):
        pytest.skip("no mpirun")
    launcher = str(mpirun if mpirun.exists() else "mpirun")
    before = (launcher, "--allow-run-as-root", "--oversubscribe", "-n", "3")
    done = bench(*EP, "--pes", "7", "--json", before=before)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)  # one object: one process prints
    assert report["pes"] == 3


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["shmem", "--pes", "1"], 2, "'1', expected a number of at least 2"),
        (["shmem", "--sizes", "0"], 2, "0 is less than 1"),
        (["ep", "--top-k", "99"], 1, "mori bench ep: --top-k is 99, there are 64 experts"),
        (["ep", "--hidden", "10", "--tokens", "1"], 1, "hidden_dim"),
        (["ep", "--csv", "/nowhere/ep.csv"], 1, "cannot write /nowhere/ep.csv"),
    ],
)
def test_wrong_use(arguments, status, message):
    done = bench(*arguments)
    assert done.returncode == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_pe_that_fails_is_told(monkeypatch):
    """The other PE cannot take part: its own words are in the error, and nothing hangs."""
    monkeypatch.setattr(pes, "_JOIN_S", 20.0)
    job = {"tokens": [1], "hidden": 64, "experts": 4, "top_k": 3, "iters": 1, "heap_bytes": 1 << 24}
    rows = pes.rows_of("mori.bench.nothing", ep.rows, 2, job)
    with pytest.raises(BenchError, match="another PE: ModuleNotFoundError"):
        list(rows)


def test_wrong_bytes_are_an_error(monkeypatch):
    class Corrupt:
        """A context whose gets change a byte."""

        def put(self, there, local, pe):
            there[:] = local

        def get(self, local, there, pe):
            local[:] = there
            local[-1] ^= 1

        def quiet(self):
            """All is there at once."""

    import numpy as np

    there, local = np.zeros(16, np.uint8), np.zeros(16, np.uint8)
    with pytest.raises(BenchError, match="wrong bytes after puts of 16 bytes"):
        shmem._check(Corrupt(), there, local)
