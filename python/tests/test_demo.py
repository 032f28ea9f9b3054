"""The demonstration on a small text: it passes, and it notices one corrupted row."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from mori.demo import kv, model

TEXT = """The quick brown fox jumps over the lazy dog; the dog sleeps, and the fox runs on.
Symmetric memory is memory that every PE of a group allocates alike."""


def demo(*arguments, timeout=90):
    return subprocess.run(
        [sys.executable, "-m", "mori", "demo", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return str(path)


def test_demo_is_ok(text):
    done = demo(
        *("--text", text, "--pes", "4", "--words", "12", "--seed", "3", "--kv-tokens", "100")
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[-1] == "demo: OK"
    assert "repeated to 48" in done.stdout
    assert "48 rows compared, 0 wrong" in done.stdout
    assert "slowest rank: PE" in done.stdout
    assert "load skew: PE" in done.stdout
    assert "KV cache of 128 tokens: 61 layers of 2 blocks" in done.stdout
    assert "every byte verified, 0 with faults" in done.stdout
    assert sum(line.lstrip().startswith(("0 ", "1 ", "2 ", "3 ")) for line in lines) == 4


@pytest.mark.parametrize("seed", ["1", "2"])
def test_corrupted_row_is_noticed(text, seed):
    part = ("--part", "layer")
    done = demo("--text", text, "--pes", "2", "--words", "8", "--seed", seed, "--corrupt", *part)
    assert done.returncode == 1
    assert "demo: FAILED" in done.stdout
    assert "demo: OK" not in done.stdout
    assert "first mismatch: PE" in done.stdout
    assert "16 rows compared, 1 wrong" in done.stdout


def test_one_pe(text):
    done = demo("--text", text, "--pes", "1", "--words", "1", "--part", "layer")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--pes", "3"], 2, "does not divide 256 experts"),
        (["--pes", "0"], 2, "0 is less than 1"),
        (["--words", "many"], 2, "'many' is not a whole number"),
        (["--text", "/nowhere/at/all"], 1, "cannot read /nowhere/at/all: No such file"),
        (["--seed", "-1"], 2, "less than 0"),
    ],
)
def test_wrong_use(arguments, status, message):
    done = demo(*arguments)
    assert done.returncode == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_text_without_words(tmp_path):
    path = tmp_path / "empty"
    path.write_text("... --- ...")
    done = demo("--text", str(path))
    assert done.returncode == 1
    assert "has no words" in done.stderr


def test_more_than_the_memory_is_refused(text):
    for arguments, advice in (
        (("--pes", "256", "--words", str(1 << 20)), "pass smaller --words or --pes"),
        (("--part", "kv", "--kv-tokens", str(1 << 21)), "pass smaller --kv-tokens"),
    ):
        done = demo("--text", text, *arguments)
        assert done.returncode == 1
        assert "GiB are available: " in done.stderr
        assert advice in done.stderr
    assert "demo: FAILED" in done.stderr
    assert "Traceback" not in done.stderr


@contextlib.contextmanager
def running_demo(*arguments):
    """A demo whose PEs have joined, and a descriptor of each PE that turns readable at its end."""
    run = subprocess.Popen(
        [sys.executable, "-m", "mori", "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    pids, ends = [], []
    try:
        for line in run.stdout:
            if "each PE joined" in line:
                break
        pids = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        ends = [os.pidfd_open(int(pid)) for pid in pids]
        yield run, [int(pid) for pid in pids], ends
    finally:
        run.kill()
        run.wait()
        run.stdout.close()
        run.stderr.close()
        for end in ends:
            os.close(end)


def assert_gone(ends):
    for end in ends:
        readable, _, _ = select.select([end], [], [], 20)
        assert readable, "a PE process is still running"


def test_dying_pe_ends_the_run(text):
    """The starter says which PE ended and how, and leaves no process behind."""
    with running_demo("--text", text, "--pes", "2", "--words", "256") as (run, pids, ends):
        assert len(pids) == 2
        os.kill(pids[1], signal.SIGKILL)
        _, err = run.communicate(timeout=60)
        assert run.returncode == 1
        assert "ended early (killed by SIGKILL)" in err
        assert_gone(ends)


def test_killed_starter_takes_its_pes_along(text):
    with running_demo("--text", text, "--pes", "2", "--words", "512") as (run, pids, ends):
        assert len(pids) == 2
        run.kill()
        run.wait()
        assert_gone(ends)


# The KV cache


def test_kv_part(text):
    """Each way that is there moves the whole cache; no other block is touched."""
    done = demo("--text", text, "--part", "kv", "--kv-tokens", "200")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PE " not in done.stdout
    rows = [
        line for line in done.stdout.splitlines() if line.startswith((" XGMI", " RDMA", " TCP"))
    ]
    moved = [line for line in rows if "not here" not in line]
    assert len(rows) == 5
    assert sum(line.startswith(" TCP") for line in moved) == 2
    for line in moved:
        verified, wrong = line.split("|")[-1].split()
        assert (int(verified), int(wrong)) == (61 * 4 * kv.BLOCK_BYTES, 0)
    assert done.stdout.splitlines()[-1] == "demo: OK"


def test_corrupted_cache_is_noticed(text):
    done = demo("--text", text, "--part", "kv", "--kv-tokens", "130", "--corrupt")
    assert done.returncode == 1
    assert "first mismatch over TCP: layer 30, token 71 (" in done.stdout
    assert "value 11: 0x" in done.stdout
    assert done.stdout.splitlines()[-1] == "demo: FAILED"


def test_vectors_of_tokens():
    """All differ, by word, position and layer; equal arguments give equal bits, block by block."""
    numbers = kv.words_as_numbers(["fox", "dog", "fox"] * 64, 1)
    assert numbers[0] == numbers[2] != numbers[1]
    bits = kv.layer_bits(numbers, 5)
    assert bits.shape == (192, kv.WIDTH)
    assert len(np.unique(bits, axis=0)) == 192
    assert (bits != kv.layer_bits(numbers, 6)).any(axis=1).all()
    assert (kv.layer_bits(numbers[64:], 5, first=64) == bits[64:]).all()
    assert (kv.words_as_numbers(["fox"], 2) != numbers[0]).all()
    assert np.abs(model.from_bf16(bits)).max() <= 1.0
    assert not (bits == kv.POISON).any()
    assert not np.array_equal(kv.block_table(20, 28, 2), kv.block_table(20, 28, 3))
    assert kv.BLOCK_BYTES == 64 * 576 * 2


# The layer itself


def test_bf16_rounds_to_nearest_even():
    values = np.array([1.0, 1.00390625, 1.01171875, -0.0, 3.0e38, 1e-40, 0.1], np.float32)
    bits = model.to_bf16(values)
    assert bits.tolist()[:4] == [0x3F80, 0x3F80, 0x3F82, 0x8000]
    back = model.from_bf16(bits)
    assert np.abs(back - values).max() <= 2.0**-8 * 3.0e38
    assert (model.to_bf16(back) == bits).all()


def test_bf16_agrees_with_ml_dtypes():
    import ml_dtypes

    values = np.random.default_rng(1).standard_normal(10000).astype(np.float32)
    assert (model.to_bf16(values) == values.astype(ml_dtypes.bfloat16).view(np.uint16)).all()


def test_equal_words_are_equal_tokens_and_seeds_differ():
    tokens = model.embed(["fox", "dog", "fox"], 1)
    assert (tokens[0] == tokens[2]).all()
    assert (tokens[0] != tokens[1]).any()
    assert (model.embed(["fox"], 2) != tokens[0]).any()
    experts, weights = model.route(tokens, 1)
    assert experts.shape == weights.shape == (3, model.TOP_K)
    assert all(len(set(row)) == model.TOP_K for row in experts.tolist())
    assert np.allclose(weights.sum(axis=1), model.ROUTED_SCALE)


def test_reference_does_not_depend_on_the_number_of_ranks():
    words = ["fox", "dog", "memory"]
    one, _ = model.Reference(1, 1).rows(words)
    eight, tolerance = model.Reference(1, 8).rows(words)
    assert np.allclose(one, eight, rtol=1e-12, atol=1e-12)
    assert (tolerance > 0).all()
    assert (tolerance < 0.06).all()
