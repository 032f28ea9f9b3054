"""Where a context is when nobody says so, and which device it is on. torch is fake_torch.py, the
device fake_gpu.py."""

import sys

import fake_gpu
import fake_torch
import pytest
from mori._arrays import kinds
from mori._ffi import constant
from mori.errors import InvalidError
from mori.shmem import Context
from mori.shmem._backend import chosen_backend
from pes import OPTIONS, run_python
from test_gpu_arrays import op_for

VALUE = {n: constant(f"MORI_BACKEND_{n.upper()}") for n in ("auto", "host", "amd", "nvidia")}


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.delenv("MORI_BACKEND", raising=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(kinds, "_kinds", {})


def use(monkeypatch, **kind):
    module = fake_torch.make(**kind)
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def test_host_without_torch():
    assert chosen_backend("auto") == VALUE["host"]


def test_the_gpu_of_torch(monkeypatch):
    torch = use(monkeypatch)
    assert chosen_backend("auto") == VALUE["nvidia"]
    assert chosen_backend(VALUE["auto"]) == VALUE["nvidia"]
    torch.cuda.available = False
    assert chosen_backend("auto") == VALUE["host"]
    use(monkeypatch, hip="6.2")
    assert chosen_backend("auto") == VALUE["amd"]


def test_what_is_said_wins(monkeypatch):
    use(monkeypatch)
    assert chosen_backend("host") == VALUE["host"]
    assert chosen_backend("amd") == VALUE["amd"]
    monkeypatch.setenv("MORI_BACKEND", "host")
    assert chosen_backend("auto") == VALUE["auto"]  # the library reads the variable
    assert chosen_backend("nvidia") == VALUE["nvidia"]
    monkeypatch.setenv("MORI_BACKEND", "auto")
    assert chosen_backend("auto") == VALUE["nvidia"]
    monkeypatch.setenv("MORI_BACKEND", "")
    assert chosen_backend("auto") == VALUE["nvidia"]


@pytest.mark.parametrize("backend", ["cuda", "", "NVIDIA"])
def test_unknown_names(monkeypatch, backend):
    with pytest.raises(InvalidError, match=f"backend is '{backend}', expected one of auto, host"):
        chosen_backend(backend)
    if backend:
        monkeypatch.setenv("MORI_BACKEND", backend)
        with pytest.raises(InvalidError, match=f"MORI_BACKEND='{backend}' is none of auto, host"):
            Context(Context.unique_id(), 0, 1, **OPTIONS)


@pytest.mark.parametrize("hip", [None, "6.2"])
def test_context_follows_torch(monkeypatch, hip):
    backend = "nvidia" if hip is None else "amd"
    shmem, _ = fake_gpu.pretend(monkeypatch, backend, 3)
    torch = use(monkeypatch, hip=hip)
    with Context(Context.unique_id(), 0, 1, **OPTIONS) as context:
        assert shmem.asked == [VALUE[backend]]
        assert torch.cuda.log == ["mem_get_info"]  # torch's device is the thread's before
        info = context.info()
        assert (info.backend, info.gpu_ordinal, info.gpu_sharer_count) == (backend, 3, 2)
        assert context.place.name == ("cuda:3" if hip is None else "hip:3")
        assert str(context.array(4, "float32").device) == "cuda:3"
        op_for(context)
        assert torch.cuda.log[1:] == ["enter 3", "exit 3"]


def test_host_context_beside_a_gpu(monkeypatch):
    torch = use(monkeypatch)
    with Context(Context.unique_id(), 0, 1, backend="host", **OPTIONS) as context:
        assert torch.cuda.log == []
        info = context.info()
        assert (info.backend, info.gpu_ordinal, info.gpu_sharer_count) == ("host", -1, 0)
        assert context.place.name == "cpu"
        op_for(context)
        assert torch.cuda.log == []


def test_backend_of_the_environment_binds_the_device(monkeypatch):
    fake_gpu.pretend(monkeypatch, "nvidia", 1)
    monkeypatch.setenv("MORI_BACKEND", "nvidia")
    torch = use(monkeypatch)
    with Context(Context.unique_id(), 0, 1, **OPTIONS) as context:
        assert torch.cuda.log == ["mem_get_info"]
        assert context.place.index == 1


def test_a_gpu_that_is_not_there_is_unavailable():
    """What the library tried is in the text. Where there is one, another vendor's is missing."""
    program = (
        "from mori.shmem import Context\nfrom mori.errors import MoriError\n"
        "for backend in ('amd', 'nvidia'):\n"
        "  try:\n    Context(Context.unique_id(), 0, 1, backend=backend, heap_bytes=1 << 20)\n"
        "  except MoriError as error:\n    print(error.status_name, error)\n"
    )
    done = run_python(program)
    assert done.returncode == 0, done.stderr
    assert "MORI_E_UNAVAILABLE" in done.stdout
