"""The build backend: what is in a wheel, and that it is the same each time."""

import importlib.util
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def backend():
    path = ROOT / "python/build_backend.py"
    spec = importlib.util.spec_from_file_location("build_backend", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_wheel_without_libraries(backend, tmp_path, monkeypatch):
    monkeypatch.delenv("MORI_BUILD_LIBRARY_DIR", raising=False)
    name = backend.build_wheel(str(tmp_path))
    assert name == "mori-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(tmp_path / name) as wheel:
        names = wheel.namelist()
        assert wheel.testzip() is None
        assert len(names) == len(set(names))
        for expected in (
            "mori/__init__.py",
            "mori/_cdef_mori.py",
            "mori/py.typed",
            "mori/demo/pe.py",
            "mori-0.1.0.dist-info/METADATA",
            "mori-0.1.0.dist-info/RECORD",
        ):
            assert expected in names
        assert not any(n.startswith("mori/lib/") or "__pycache__" in n for n in names)
        record = wheel.read("mori-0.1.0.dist-info/RECORD").decode().splitlines()
        assert sorted(line.split(",")[0] for line in record) == sorted(names)
        metadata = wheel.read("mori-0.1.0.dist-info/METADATA").decode()
        assert "Requires-Dist: cffi>=1.15" in metadata
        assert 'Requires-Dist: torch>=2.1 ; extra == "torch"' in metadata
        entry_points = wheel.read("mori-0.1.0.dist-info/entry_points.txt").decode()
        assert "mori = mori.cli:main" in entry_points


def test_wheel_with_libraries(backend, tmp_path):
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "libmori-shmem.so.0.1.0").write_bytes(b"library")
    (folder / "libmori-shmem.so.0").symlink_to("libmori-shmem.so.0.1.0")
    name = backend.build_wheel(str(tmp_path), {"library-dir": str(folder)})
    assert name.startswith("mori-0.1.0-py3-none-linux_")
    with zipfile.ZipFile(tmp_path / name) as wheel:
        assert wheel.read("mori/lib/libmori-shmem.so.0") == b"library"
        assert wheel.getinfo("mori/lib/libmori-shmem.so.0").external_attr >> 16 & 0o777 == 0o755


def test_platform_of_a_wheel_with_libraries(backend, tmp_path):
    (tmp_path / "libmori-io.so.0").write_bytes(b"library")
    settings = {"library-dir": str(tmp_path), "platform-name": "manylinux_2_34_x86_64"}
    name = backend.build_wheel(str(tmp_path), settings)
    assert name == "mori-0.1.0-py3-none-manylinux_2_34_x86_64.whl"
    # Nothing compiled inside: for any platform, whatever is asked.
    del settings["library-dir"]
    assert backend.build_wheel(str(tmp_path), settings) == "mori-0.1.0-py3-none-any.whl"


def test_sdist_is_reproducible_and_nobodys(backend, tmp_path):
    first, second = tmp_path / "1", tmp_path / "2"
    for folder in (first, second):
        folder.mkdir()
        assert backend.build_sdist(str(folder)) == "mori-0.1.0.tar.gz"
    name = "mori-0.1.0.tar.gz"
    assert (first / name).read_bytes() == (second / name).read_bytes()
    with tarfile.open(first / name) as archive:
        entries = {entry.name.removeprefix("mori-0.1.0/"): entry for entry in archive}
    assert {(e.uid, e.gid, e.mtime, e.uname) for e in entries.values()} == {(0, 0, 0, "")}
    assert entries["subprojects/libmori-io"].linkname == "../libmori-io"
    assert entries["tests/tidy/run"].mode == 0o755
    assert entries["pyproject.toml"].mode == 0o644
    assert entries["PKG-INFO"].size > 0


def test_wheel_is_reproducible(backend, tmp_path):
    first, second = tmp_path / "1", tmp_path / "2"
    for folder in (first, second):
        folder.mkdir()
        backend.build_wheel(str(folder))
    (one,), (two,) = first.iterdir(), second.iterdir()
    assert one.read_bytes() == two.read_bytes()


def test_missing_libraries_are_an_error(backend, tmp_path):
    with pytest.raises(SystemExit, match=r"no libmori-\*\.so\.N in"):
        backend.build_wheel(str(tmp_path), {"library-dir": str(tmp_path)})
