"""Settings of all tests: each has a deadline, and none may leave a context behind.

Tests that need several PEs take them from pes.py. Expected values of dispatch and combine come
from routing.py, which is numpy only.
"""

from __future__ import annotations

import faulthandler
import os

import pytest

_DEADLINE_S = 100.0
# Tests are of the host backend unless they say otherwise, also where torch has a GPU.
os.environ["MORI_BACKEND"] = "host"


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs a GPU that torch knows")


@pytest.fixture(autouse=True)
def deadline():
    """A test that hangs ends the run with the stack of each thread."""
    faulthandler.dump_traceback_later(_DEADLINE_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def no_context_left():
    """What a test opens it closes; threads of the test have no default of their own left."""
    from mori.shmem import set_default_context
    from mori.shmem._context import living_contexts

    set_default_context(None)
    yield
    left = living_contexts()
    for context in left:
        context.finalize()
    set_default_context(None)
    assert not left, f"contexts left open: {left}"
