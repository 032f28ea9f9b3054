"""What importing the package does, and what it says when it cannot."""

import subprocess
from pathlib import Path

import pytest
from mori._ffi import load
from pes import run_python


def test_no_framework_is_imported():
    done = run_python(
        "import sys, mori, mori.shmem, mori.ops, mori.io, mori.cpp, mori.cli\n"
        "mori.shmem.Context.unique_id()\n"
        "mori.io.IOEngine('alone', mori.io.IOEngineConfig('127.0.0.1')).close()\n"
        "print([m for m in ('torch', 'ml_dtypes', 'rich') if m in sys.modules])"
    )
    assert done.stderr == ""
    assert done.stdout == "[]\n"


def test_import_mori_loads_no_library():
    done = run_python(
        "import mori, mori.cpp, mori.errors\n"
        "print('libmori' in open('/proc/self/maps').read(), mori.__version__)"
    )
    assert (done.stdout, done.stderr) == ("False 0.1.0\n", "")


def test_submodules_are_attributes():
    done = run_python(
        "import mori; print(mori.shmem.shmem_npes, mori.ops.EpDispatchCombineOp, mori.io.IOEngine)"
    )
    assert done.returncode == 0, done.stderr


def test_unknown_attribute():
    import mori

    with pytest.raises(AttributeError, match="no attribute 'shmen'"):
        _ = mori.shmen


@pytest.mark.parametrize(("name", "library"), [("shmem", "shmem"), ("ops", "shmem"), ("io", "io")])
def test_missing_library_is_an_import_error(name, library, tmp_path):
    done = run_python(
        f"try:\n  import mori.{name}\nexcept ImportError as e:\n  print(e)",
        MORI_LIBRARY_DIR=str(tmp_path),
    )
    assert done.stderr == ""
    assert f"libmori-{library} could not be loaded from MORI_LIBRARY_DIR={tmp_path}" in done.stdout
    assert f"no libmori-{library}.so.0 there" in done.stdout


def test_library_that_is_no_library(tmp_path):
    (tmp_path / "libmori-shmem.so.0").write_bytes(b"not ELF")
    done = run_python(
        "try:\n  import mori.shmem\nexcept ImportError as e:\n  print(e)",
        MORI_LIBRARY_DIR=str(tmp_path),
    )
    assert "libmori-shmem.so.0" in done.stdout
    assert done.stderr == ""


FAKE = """
unsigned mori_shmem_version(void) { return %du << 22 | %du << 12 | %du; }
unsigned mori_shmem_abi_level(void) { return %d; }
"""


@pytest.mark.parametrize(
    ("version", "level", "message"),
    [
        ((7, 2, 1), 2, ["is version 7.2.1", "built for 0.3.0"]),
        ((0, 1, 0), 2, ["has ABI level 2", "needs at least 3"]),
    ],
)
def test_library_of_another_version_is_refused(tmp_path, version, level, message):
    source = tmp_path / "fake.c"
    source.write_text(FAKE % (*version, level))
    library = tmp_path / "libmori-shmem.so.0"
    command = ["cc", "-shared", "-fPIC", "-w", str(source), "-o", str(library)]
    subprocess.run(command, check=True, timeout=60)
    done = run_python(
        "try:\n  import mori.shmem\nexcept ImportError as e:\n  print(e)",
        MORI_LIBRARY_DIR=str(tmp_path),
    )
    assert done.stderr == ""
    for part in message:
        assert part in done.stdout


def test_library_without_its_functions_is_refused(tmp_path):
    library = tmp_path / "libmori-shmem.so.0"
    source = tmp_path / "empty.c"
    source.write_text("int nothing;\n")
    subprocess.run(
        ["cc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True, timeout=60
    )
    done = run_python(
        "try:\n  import mori.shmem\nexcept ImportError as e:\n  print(e)",
        MORI_LIBRARY_DIR=str(tmp_path),
    )
    assert "is not libmori-shmem" in done.stdout


def test_ep_uses_the_shmem_of_this_process():
    shmem, ep = load("shmem"), load("ep")
    assert shmem.abi_level >= 1
    assert ep.abi_level >= 1
    loaded = {
        line.split()[-1]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "libmori-shmem" in line
    }
    assert len(loaded) == 1


def test_enumerations_have_the_documented_values():
    from mori.cpp import EpDispatchCombineKernelType as Kernel
    from mori.cpp import EpDispatchCombineQuantType as Quant

    assert {k.name: k.value for k in Kernel} == {
        "IntraNode": 0,
        "InterNode": 1,
        "InterNodeV1": 2,
        "InterNodeV1LL": 3,
        "AsyncLL": 4,
        "IntraNodeLL": 5,
    }
    assert {q.name: q.value for q in Quant} == {
        "None_": 0,
        "Fp8DirectCast": 1,
        "Fp8BlockwiseQuant": 2,
        "Fp4BlockwiseQuant": 3,
    }
    from mori import cpp, ops, shmem

    assert ops.EpDispatchCombineKernelType is cpp.EpDispatchCombineKernelType
    assert (shmem.MORI_SHMEM_INIT_WITH_MPI_COMM, cpp.MORI_SHMEM_INIT_WITH_UNIQUEID) == (0, 1)
