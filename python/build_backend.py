"""The build backend of the package (PEP 517 and 660): a wheel is a zip file, written here.

What goes in: python/src/mori, the declarations that build_cdef.py makes from capi/include, and the
shared libraries and the device bitcode when they are built. Where the libraries are is said by the
configuration setting `library-dir` or the environment variable MORI_BUILD_LIBRARY_DIR (one or more
folders separated by ':'); without it the package looks for them at run time (mori/_ffi.py).
`platform-name` or MORI_BUILD_PLATFORM is the platform tag of a wheel with libraries, which only
packaging/wheel.sh knows to be true; without it the tag is this machine's. Wheel and sdist are
reproducible: sorted entries, one fixed time stamp.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PACKAGE = HERE / "src" / "mori"
HEADERS = ROOT / "capi" / "include"
_LIBRARIES = ("shmem", "ep", "io")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first time that a zip file can say


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def _library_files(settings: dict[str, Any] | None) -> list[tuple[str, Path]]:
    """(file name by SONAME, file) of each built library that the settings point to."""
    where = (settings or {}).get("library-dir") or os.environ.get("MORI_BUILD_LIBRARY_DIR", "")
    if not where:
        return []
    found = []
    for name in _LIBRARIES:
        for folder in str(where).split(":"):
            # Only libX.so.N: of the three names that a library is installed under, the loader's.
            matches = sorted(Path(folder).glob(f"libmori-{name}.so.[0-9]"))
            if matches:
                found.append((matches[0].name, matches[0].resolve()))
                break
    if not found:
        raise SystemExit(f"no libmori-*.so.N in {where}")
    return found


def _bitcode_files(settings: dict[str, Any] | None) -> list[tuple[str, Path]]:
    """(name, file) of the device bitcode, the sources of more and what compiles them, which lie in
    mori/bitcode below the folder of libmori-shmem."""
    where = (settings or {}).get("library-dir") or os.environ.get("MORI_BUILD_LIBRARY_DIR", "")
    for folder in filter(None, str(where).split(":")):
        files = sorted(path for path in (Path(folder) / "mori/bitcode").glob("*") if path.is_file())
        if files:
            return [(path.name, path) for path in files]
    return []


def _declarations() -> bytes:
    """Text of the module that build_cdef.py generates."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(HERE / "build_cdef.py"), str(HEADERS), folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise SystemExit(f"build_cdef.py failed: {done.stderr.strip()}")
        return (Path(folder) / "_cdef_mori.py").read_bytes()


def _metadata() -> str:
    project = _project()
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"Author: {project['authors'][0]['name']}",
        f"License: {project['license']}",
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {requirement}" for requirement in project["dependencies"]),
    ]
    for extra, requirements in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines.extend(f'Requires-Dist: {one} ; extra == "{extra}"' for one in requirements)
    readme = ROOT / project["readme"]
    if readme.exists():
        lines += ["Description-Content-Type: text/markdown", "", readme.read_text("utf-8")]
    return "\n".join(lines) + "\n"


def _tag(has_libraries: bool, settings: dict[str, Any] | None) -> str:
    """Any Python; any machine too as long as nothing compiled is inside."""
    named = (settings or {}).get("platform-name") or os.environ.get("MORI_BUILD_PLATFORM", "")
    machine = named or sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"py3-none-{machine}" if has_libraries else "py3-none-any"


def _dist_info() -> str:
    project = _project()
    return f"{project['name']}-{project['version']}.dist-info"


def _information(tag: str) -> list[tuple[str, bytes]]:
    """Files of the dist-info folder, RECORD aside."""
    scripts = "".join(f"{name} = {target}\n" for name, target in _project()["scripts"].items())
    pure = "true" if tag.endswith("-any") else "false"
    wheel = f"Wheel-Version: 1.0\nGenerator: mori\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"
    files = [
        ("METADATA", _metadata().encode()),
        ("WHEEL", wheel.encode()),
        ("entry_points.txt", f"[console_scripts]\n{scripts}".encode()),
    ]
    if (ROOT / "LICENSE").exists():
        files.append(("LICENSE", (ROOT / "LICENSE").read_bytes()))
    return [(f"{_dist_info()}/{name}", content) for name, content in files]


def _write_wheel(folder: str, tag: str, files: list[tuple[str, bytes]]) -> str:
    project = _project()
    name = f"{project['name']}-{project['version']}-{tag}.whl"
    record = []
    with zipfile.ZipFile(Path(folder) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in [*sorted(files), *_information(tag)]:
            entry = zipfile.ZipInfo(path, _EPOCH)
            mode = 0o755 if ".so" in path else 0o644
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            record.append(f"{path},sha256={digest.decode()},{len(content)}")
        record_path = f"{_dist_info()}/RECORD"
        record.append(f"{record_path},,")
        wheel.writestr(zipfile.ZipInfo(record_path, _EPOCH), "\n".join(record) + "\n")
    return name


def _package_files() -> list[tuple[str, bytes]]:
    """Sources of the package; what a build put there is made anew."""
    files = []
    for path in PACKAGE.rglob("*"):
        inside = path.relative_to(PACKAGE.parent)
        built = inside.parts[1] == "lib"  # by an editable installation
        kept = not built and (path.suffix == ".py" or path.name == "py.typed")
        if path.is_file() and kept and not path.name.startswith("_cdef_"):
            files.append((inside.as_posix(), path.read_bytes()))
    return files


# The hooks that pip and other front ends call.


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    return []


def get_requires_for_build_sdist(config_settings: dict[str, Any] | None = None) -> list[str]:
    return []


def get_requires_for_build_editable(config_settings: dict[str, Any] | None = None) -> list[str]:
    return []


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    libraries = _library_files(config_settings)
    files = _package_files()
    files.append(("mori/_cdef_mori.py", _declarations()))
    files.extend((f"mori/lib/{name}", path.read_bytes()) for name, path in libraries)
    bitcode = _bitcode_files(config_settings)
    files.extend((f"mori/lib/bitcode/{name}", path.read_bytes()) for name, path in bitcode)
    return _write_wheel(wheel_directory, _tag(bool(libraries), config_settings), files)


def build_editable(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """A wheel with a path entry alone; declarations and libraries go into the source tree."""
    (PACKAGE / "_cdef_mori.py").write_bytes(_declarations())
    linked = _library_files(config_settings)
    linked += [(f"bitcode/{name}", path) for name, path in _bitcode_files(config_settings)]
    for name, path in linked:
        target = PACKAGE / "lib" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.symlink_to(path)
    entry = ("mori_source.pth", f"{PACKAGE.parent}\n".encode())
    return _write_wheel(wheel_directory, "py3-none-any", [entry])


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without whose file it was and when."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.mode & 0o100 else 0o644
    return entry


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """All tracked files, so that the libraries can be built from it too."""
    project = _project()
    base = f"{project['name']}-{project['version']}"
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, timeout=60, check=False
    )
    if listing.returncode != 0:
        raise SystemExit("an sdist is made from a git checkout: git ls-files failed")
    tracked = sorted(filter(None, listing.stdout.decode().split("\0")))
    files = {name: ROOT / name for name in tracked if os.path.lexists(ROOT / name)}
    with (
        open(Path(sdist_directory) / f"{base}.tar.gz", "wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, path in files.items():
            entry = _plain(archive.gettarinfo(path, f"{base}/{name}"))
            if entry.isreg():
                archive.addfile(entry, io.BytesIO(path.read_bytes()))
            else:
                archive.addfile(entry)
        metadata = _metadata().encode()
        entry = _plain(tarfile.TarInfo(f"{base}/PKG-INFO"))
        entry.size = len(metadata)
        archive.addfile(entry, io.BytesIO(metadata))
    return f"{base}.tar.gz"
