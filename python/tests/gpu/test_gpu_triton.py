"""The device functions in Triton kernels on a GPU: PEs as processes, and as threads. What each does
and which values it must find is in triton_bodies.py; the kernels are in triton_kernels.py."""

import sys
import threading
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
try:
    import mori.ir.triton as device
except ImportError as missing:
    pytest.skip(f"no Triton that is known: {missing}", allow_module_level=True)

from mori.errors import StateError  # noqa: E402
from mori.shmem import Context, set_default_context  # noqa: E402
from pes import on_threads  # noqa: E402
from test_gpu_processes import run_group  # noqa: E402

pytestmark = pytest.mark.device
PROGRAM = Path(__file__).with_name("triton_pe.py")


@pytest.mark.parametrize("world", [2, 4])
def test_values(world, tmp_path, mps_environment):
    command = [sys.executable, str(PROGRAM), "values"]
    for found in run_group(command, world, tmp_path, mps_environment):
        assert found["counts"] == {"acted": [8] * 8}
        assert found["ping_pongs"] == {"rounds": 500}
        assert found["gathers"] == {"epochs": 5}


def test_ends(tmp_path, mps_environment):
    command = [sys.executable, str(PROGRAM), "ends"]
    first, second = run_group(command, 2, tmp_path, mps_environment)
    assert first["counts"] == second["counts"] == {"acted": [8] * 8}
    assert "put to PE 99: argument 0x63 is outside the limit 0x2" in first["refusals"]["said"]
    for found in (first, second):
        assert "wait: deadline passed" in found["timeouts"]["said"]


def test_threads():
    """Each PE has an instance of each kernel, and one that belongs to another is refused."""
    import triton_bodies
    from triton_bodies import PROCESS, THREAD, Pe

    device.install_hook()
    first = threading.Event()

    def body(context: Context) -> list[str]:
        set_default_context(context)
        with torch.cuda.stream(torch.cuda.Stream()):
            pe = Pe(context, THREAD)
            done = []
            for name, one in triton_bodies.BODIES.items():
                one(pe)
                done.append(name)
            found = torch.zeros((3,), dtype=torch.int32, device="cuda")
            if pe.me == 0:
                PROCESS.who[(1,)](found, extern_libs=pe.libraries)
                torch.cuda.current_stream().synchronize()
                first.set()
            else:
                assert first.wait(60)
                with pytest.raises(StateError, match="per_context"):
                    PROCESS.who[(1,)](found, extern_libs=pe.libraries)
            pe.meet()
            set_default_context(None)
        return done

    options = {"heap_bytes": 64 << 20, "wait_timeout_s": 60.0, "bootstrap_timeout_s": 60.0}
    for done in on_threads(2, body, **options):
        assert done == list(triton_bodies.BODIES)
