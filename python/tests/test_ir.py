"""mori.ir without a GPU and without Triton: what is found where, what is built, what is refused;
and the table of functions."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import mori.ir
import mori.shmem as shmem
import pytest
from mori.errors import InvalidError, NotFoundError, UnavailableError, UnsupportedError
from mori.ir import MORI_DEVICE_FUNCTIONS, SIGNAL_ADD, SIGNAL_SET, find_bitcode, get_bitcode_path
from mori.ir import _bitcode as bitcode
from mori.shmem import Context
from pes import OPTIONS

ROOT = Path(__file__).resolve().parents[2]
FILES = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with something for each architecture, and nothing else to be found or built."""
    for name in FILES:
        (tmp_path / f"libmori_shmem_device-{name}.bc").write_bytes(b"BC")
    monkeypatch.delenv("MORI_SHMEM_BC", raising=False)
    monkeypatch.delenv("MORI_GPU_ARCH", raising=False)
    monkeypatch.setenv("MORI_SHMEM_BC_DIR", str(tmp_path))
    monkeypatch.setenv("MORI_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def path_of(folder, arch):
    return str(folder / f"libmori_shmem_device-{arch}.bc")


@pytest.mark.parametrize("arch", FILES)
def test_found_by_architecture(folder, arch):
    assert find_bitcode(arch) == get_bitcode_path(arch) == path_of(folder, arch)


def test_current_architecture(folder, monkeypatch):
    monkeypatch.setenv("MORI_GPU_ARCH", "gfx942")
    assert find_bitcode() == path_of(folder, "gfx942")
    assert find_bitcode("gfx950:sramecc+:xnack-") == path_of(folder, "gfx950")


def test_no_gpu_to_ask(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr("mori.ir._device._nvidia", lambda: ("", "no libcuda"))
    monkeypatch.setattr("mori.ir._device._amd", lambda: ("", "no libamdhip64"))
    with pytest.raises(UnavailableError, match=r"no libcuda; no libamdhip64.*find_bitcode"):
        find_bitcode()


def test_one_file_for_both_code_object_versions(folder):
    assert find_bitcode("gfx942", cov=5) == find_bitcode("gfx942", cov=6)
    with pytest.raises(InvalidError, match="cov is 4, expected 5 or 6"):
        find_bitcode("gfx942", cov=4)


def test_environment_names_a_file(folder, monkeypatch):
    own = folder / "own.bc"
    own.write_bytes(b"BC")
    monkeypatch.setenv("MORI_SHMEM_BC", str(own))
    assert find_bitcode("gfx942") == find_bitcode() == str(own)
    monkeypatch.setenv("MORI_SHMEM_BC", str(folder / "absent.bc"))
    with pytest.raises(NotFoundError, match=r"MORI_SHMEM_BC is .*absent\.bc, where there is no"):
        find_bitcode("gfx942")


@pytest.mark.parametrize("arch", ["", "x86_64", "gfx", "sm_", "../gfx942", 90])
def test_no_architecture(folder, arch):
    with pytest.raises(InvalidError, match="expected the like of"):
        find_bitcode(arch)


def test_missing_architecture_lists_what_exists(folder):
    with pytest.raises(NotFoundError) as refused:
        find_bitcode("gfx1100")
    for part in ("gfx1100", "its source is not installed", "gfx90a, gfx942, gfx950, sm_80, sm_90"):
        assert part in str(refused.value)


def test_newer_nvidia_takes_older_bitcode(folder):
    assert find_bitcode("sm_89") == path_of(folder, "sm_80")
    assert find_bitcode("sm_100a") == path_of(folder, "sm_90")
    with pytest.raises(NotFoundError):
        find_bitcode("sm_75")


def test_folders_in_their_order(tmp_path, monkeypatch):
    monkeypatch.setenv("MORI_SHMEM_BC_DIR", "")
    monkeypatch.setenv("MORI_LIBRARY_DIR", f"{tmp_path}/a:{tmp_path}/b")
    found = bitcode.folders()
    assert found[0] == Path(mori.ir.__file__).parents[1] / "lib/bitcode"
    assert found[1:3] == [tmp_path / "a/mori/bitcode", tmp_path / "b/mori/bitcode"]
    # The library of this process is known too, wherever it was found.
    mapped = bitcode._mapped_library_folder()
    assert mapped is not None
    assert mapped / "mori/bitcode" in found


def test_folder_of_debian_packages(monkeypatch):
    monkeypatch.setenv("MORI_SHMEM_BC_DIR", "")
    monkeypatch.setattr(bitcode.sysconfig, "get_config_var", lambda name: f"of-{name}")
    found = bitcode.folders()
    assert found.index(Path("/usr/lib/of-MULTIARCH/mori/bitcode")) < found.index(
        Path("/usr/lib/mori/bitcode")
    )


# Building. A compiler that notes what it is asked for, and the real one where there is clang.


@pytest.fixture
def source(folder):
    """A source for AMD and a program that "compiles" it."""
    (folder / "libmori_shmem_device-amd.cpp").write_text("source")
    program = folder / "build_bitcode.py"
    program.write_text(
        "import sys, pathlib\n"
        "arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
        "log = pathlib.Path(__file__).with_name('log')\n"
        "log.write_text((log.read_text() if log.exists() else '') + arguments['--arch'] + ' ')\n"
        "pathlib.Path(arguments['--output']).write_text('built')\n"
    )
    return folder


@pytest.fixture
def clang(source, monkeypatch):
    path = source / "clang++-19"
    path.write_text("#!/bin/sh\necho clang version 19.1.0\n")
    path.chmod(0o755)
    monkeypatch.setenv("MORI_CLANG", str(path))
    return path


def test_built_once_and_kept(source, clang):
    first = find_bitcode("gfx908")
    assert Path(first).read_text() == "built"
    assert first.startswith(str(source / "cache"))
    assert find_bitcode("gfx908") == first
    assert (source / "log").read_text() == "gfx908 "
    # Another source is another build.
    (source / "libmori_shmem_device-amd.cpp").write_text("changed")
    assert find_bitcode("gfx908") != first
    assert (source / "log").read_text() == "gfx908 gfx908 "


def test_failed_build_is_told(source, clang):
    (source / "build_bitcode.py").write_text("import sys; sys.exit('no such processor')")
    with pytest.raises(NotFoundError, match=r"clang\+\+-19 failed: no such processor"):
        find_bitcode("gfx908")


def test_no_compiler(source, monkeypatch):
    monkeypatch.delenv("MORI_CLANG", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(NotFoundError, match="no clang of at least version 19"):
        find_bitcode("gfx908")


def test_oldest_clang_that_will_do(source, monkeypatch):
    versions = {"clang++": 14, "clang++-19": 19, "clang++-22": 22}
    monkeypatch.delenv("MORI_CLANG", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: name if name in versions else None)
    monkeypatch.setattr(bitcode, "_version_of", versions.get)
    assert bitcode._clang() == "clang++-19"
    versions["clang++"] = 20
    del versions["clang++-19"]
    assert bitcode._clang() == "clang++"


def test_really_built(tmp_path, monkeypatch):
    """For an architecture that is not shipped, from what is installed."""
    monkeypatch.delenv("MORI_SHMEM_BC", raising=False)
    monkeypatch.setenv("MORI_CACHE_DIR", str(tmp_path))
    if bitcode._clang() is None or bitcode._source("amd") is None:
        pytest.skip("no clang, or the package was built without bitcode")
    made = Path(find_bitcode("gfx908"))
    assert made.read_bytes()[:2] == b"BC"
    assert made.is_relative_to(tmp_path)


def test_content_path(folder):
    path = path_of(folder, "gfx942")
    first = bitcode.content_path(path)
    assert Path(first).name == Path(path).name
    assert bitcode.content_path(path) == first
    Path(path).write_bytes(b"BC of another build")
    assert bitcode.content_path(path) != first
    os.environ["MORI_CACHE_DIR"] = "/proc/nowhere"  # undone by the fixture
    assert bitcode.content_path(path) == path


# The table.


def test_table_of_functions():
    assert (SIGNAL_SET, SIGNAL_ADD) == (9, 10)
    assert len(MORI_DEVICE_FUNCTIONS) == 98
    types = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
    types |= {"float32", "float64"}
    for name, entry in MORI_DEVICE_FUNCTIONS.items():
        assert entry["symbol"] == f"mori_shmem_{name}"
        assert {entry["ret"], *entry["args"]} <= types
        assert len(entry["args"]) == len(entry["arg_names"])
        assert entry["doc"].endswith(".")
    pure = [name for name, entry in MORI_DEVICE_FUNCTIONS.items() if entry.get("pure")]
    assert pure == ["my_pe", "n_pes", "ptr_p2p", "ptr"]
    put = MORI_DEVICE_FUNCTIONS["putmem_nbi_signal_block"]
    assert put["args"] == ["uint64"] * 5 + ["int32"] * 3
    assert put["program_symbol"] == "mori_shmem_program_putmem_nbi_signal_block"
    assert put["scope"] == "block"


def test_generated_files_are_up_to_date():
    program = ROOT / "libmori-shmem/functions/generate.py"
    command = [sys.executable, "-B", str(program), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


# Modules.


def test_host_backend_has_no_modules():
    with Context(Context.unique_id(), 0, 1, backend="host", **OPTIONS) as context:
        with pytest.raises(UnsupportedError, match="host backend"):
            shmem.shmem_module_init(1234, context=context)
        with pytest.raises(UnavailableError, match="no device modules"):
            context.module_init(1234)
        with pytest.raises(UnavailableError, match="no device modules"):
            context.module_forget(1234)
        with pytest.raises(InvalidError, match="module is 'x'"):
            context.module_init("x")


def test_triton_is_not_imported():
    code = "import sys, mori.ir; sys.exit('triton' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(("version", "taken"), [("3.6.0", True), ("3.8.1", True), ("3.7.0", False)])
def test_releases_of_triton(version, taken, monkeypatch):
    # Not through the package, which imports Triton.
    path = Path(mori.ir.__file__).parent / "triton/_versions.py"
    scope: dict = {}
    exec(path.read_text(), scope)
    monkeypatch.delenv("MORI_TRITON_ANY", raising=False)
    if taken:
        scope["check"](version)
    else:
        with pytest.raises(ImportError, match=r"tested with Triton 3\.6 and 3\.8, this is 3\.7\.0"):
            scope["check"](version)
        monkeypatch.setenv("MORI_TRITON_ANY", "1")
        scope["check"](version)
