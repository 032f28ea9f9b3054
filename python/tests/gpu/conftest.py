"""Tests that need a GPU: skipped, with the reason, where torch is missing or sees none.

    MORI_LIBRARY_DIR=FOLDER PYTHONPATH=python/src python -m pytest -m gpu python/tests

MORI_GPU_TESTS_ON=host runs those that need no stream or graph on the host backend instead: a trial
of the tests themselves. What is compared is always the host backend with the same inputs.
"""

from __future__ import annotations

import faulthandler
import os

import mps
import pytest

_DEADLINE_S = 300.0
ON_HOST = os.environ.get("MORI_GPU_TESTS_ON") == "host"


def _missing() -> str:
    """Why these tests cannot run; "" when they can."""
    try:
        import torch
    except ImportError as error:
        return f"no torch: {error}"
    if ON_HOST or torch.cuda.is_available():
        return ""
    return f"torch {torch.__version__} sees no GPU"


def pytest_collection_modifyitems(items):
    mine = [item for item in items if item.path.parent.name == "gpu"]
    reason = _missing() if mine else ""
    for item in mine:
        item.add_marker(pytest.mark.gpu)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
        elif ON_HOST and item.get_closest_marker("device"):
            item.add_marker(pytest.mark.skip(reason="the host has no streams and graphs"))


def pytest_configure(config):
    config.addinivalue_line("markers", "device: needs a real GPU, not only its results")


@pytest.fixture(autouse=True)
def deadline():
    """In place of the shorter one of other tests: processes import torch and open the device."""
    faulthandler.dump_traceback_later(_DEADLINE_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def backend_of_torch(monkeypatch):
    """Contexts choose by themselves, as a user's do."""
    if not ON_HOST:
        monkeypatch.delenv("MORI_BACKEND", raising=False)
    monkeypatch.delenv("MORI_CHECK", raising=False)


@pytest.fixture
def context():
    """One PE where torch's tensors are."""
    from mori.shmem import Context
    from pes import OPTIONS

    with Context(Context.unique_id(), 0, 1, **OPTIONS) as one:
        yield one


@pytest.fixture
def contexts(context):
    """(the same, one PE on the host)."""
    from mori.shmem import Context
    from pes import OPTIONS

    with Context(Context.unique_id(), 0, 1, backend="host", **OPTIONS) as host:
        yield context, host


@pytest.fixture(scope="session")
def mps_environment():
    """Variables with which processes share the GPU at the same time."""
    if ON_HOST:
        yield dict(os.environ)
        return
    with mps.daemon() as environment:
        # Made once, so that it does not see what is set for the length of a test.
        yield {name: value for name, value in environment.items() if name != "MORI_BACKEND"}
