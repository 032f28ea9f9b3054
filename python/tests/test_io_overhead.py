"""How many steps a submission takes in Python, over a library whose functions return at once, and
that it leaves nothing behind. Not one of them is taken for an element of a batch of arrays. The
time of the same calls: io_overhead.py."""

import json

import io_overhead
import pytest
from io_pairs import run_python_io

PROGRAM = """
import gc, json, sys
import io_overhead
from steps import steps_of

found = {}
for name, (call, _) in io_overhead.calls().items():
    call()
    frames, c_calls = steps_of(call)
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(300):
        call()
    gc.collect()
    found[name] = frames, c_calls, sys.getallocatedblocks() - before
print(json.dumps(found))
"""
# (Python frames, calls into C) with some to spare; a call into C costs 50 to 150 ns, a frame 100 to
# 400 ns: the bound of 64 us for 128 operations is far away.
MOST = {
    "batch of 128, arrays": (20, 25),
    "batch of 128, lists": (24, 40),
    "batch of 128 by engine": (22, 28),
    "single": (20, 20),
    "single, submitted and waited": (32, 36),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    io_overhead.build(folder)
    done = run_python_io(PROGRAM, MORI_LIBRARY_DIR=str(folder))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", MOST)
def test_steps_of_a_submission(found, name):
    frames, c_calls, left = found[name]
    assert frames <= MOST[name][0], f"{frames} frames"
    assert c_calls <= MOST[name][1], f"{c_calls} calls into C"
    assert frames > MOST[name][0] // 3, "steps are not seen: the bounds mean nothing"
    assert left < 100
