"""Where the device bitcode of an architecture is; built when it is not there and clang is.

Searched in this order:
  1. MORI_SHMEM_BC, a file, for whatever architecture is asked.
  2. MORI_SHMEM_BC_DIR, one or more folders separated by ':'. When it is set, nowhere else.
  3. the folder lib/bitcode of this package, then mori/bitcode beside libmori-shmem.
For an architecture that is in none of them bitcode is built with clang from the source that lies in
the same folders, and kept in MORI_CACHE_DIR, else the user's cache folder; without clang, a newer
NVIDIA GPU is served by the bitcode of an older one.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from mori.errors import InvalidError, NotFoundError
from mori.ir._device import current_architecture

_PREFIX = "libmori_shmem_device-"
_ARCHITECTURE = re.compile(r"gfx[0-9a-f]{3,4}|sm_\d{2,3}[af]?")
_CODE_OBJECT_VERSIONS = (None, 5, 6)
_CLANGS = ("clang++", *(f"clang++-{version}" for version in range(19, 31)))
_OLDEST_CLANG = 19
_BUILD_LIMIT_S = 300


def _mapped_library_folder() -> Path | None:
    """Where the libmori-shmem of this process lies, if it is loaded."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    paths = (line.split(maxsplit=5)[-1] for line in lines if "/libmori-shmem.so" in line)
    return next((Path(path).parent for path in paths), None)


def folders() -> list[Path]:
    """Where bitcode may lie, best first."""
    chosen = os.environ.get("MORI_SHMEM_BC_DIR", "")
    if chosen:
        return [Path(part) for part in chosen.split(":") if part]
    found = [Path(__file__).parents[1] / "lib/bitcode"]
    libraries = [Path(p) for p in os.environ.get("MORI_LIBRARY_DIR", "").split(":") if p]
    mapped = _mapped_library_folder()
    # Where Debian's packages have libraries.
    multiarch = sysconfig.get_config_var("MULTIARCH")
    for folder in (
        *libraries,
        *([mapped] if mapped else []),
        *([Path("/usr/lib") / multiarch] if multiarch else []),
        Path("/usr/lib"),
        Path("/usr/local/lib"),
    ):
        if folder / "mori/bitcode" not in found:
            found.append(folder / "mori/bitcode")
    return found


def available() -> dict[str, Path]:
    """Architecture -> bitcode, of all that is installed."""
    found: dict[str, Path] = {}
    for folder in folders():
        for path in sorted(folder.glob(f"{_PREFIX}*.bc")):
            found.setdefault(path.stem.removeprefix(_PREFIX), path)
    return found


def cache_folder() -> Path:
    chosen = os.environ.get("MORI_CACHE_DIR", "")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mori"


def _version_of(clang: str) -> int:
    """Its major version, 0 if it does not say one."""
    try:
        said = subprocess.run(
            [clang, "--version"], capture_output=True, text=True, timeout=60, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r"version (\d+)\.", said)
    return int(match[1]) if match else 0


def _clang() -> str | None:
    """MORI_CLANG, else the oldest that will do: bitcode is for readers that are not older."""
    named = os.environ.get("MORI_CLANG", "")
    if named:
        return named
    found = {_version_of(path): path for path in map(shutil.which, _CLANGS) if path}
    usable = [version for version in found if version >= _OLDEST_CLANG]
    return found[min(usable)] if usable else None


def _source(vendor: str) -> tuple[Path, Path] | None:
    """The vendor's source and the program that compiles it."""
    for folder in folders():
        source, program = folder / f"{_PREFIX}{vendor}.cpp", folder / "build_bitcode.py"
        if source.is_file() and program.is_file():
            return source, program
    return None


def _build(arch: str) -> tuple[Path | None, str]:
    """(bitcode, "") or (None, why not). What was built before is taken from the cache."""
    parts = _source("amd" if arch.startswith("gfx") else "nvidia")
    if parts is None:
        return None, "its source is not installed"
    clang = _clang()
    if clang is None:
        return None, f"there is no clang of at least version {_OLDEST_CLANG} to build it"
    source, program = parts
    digest = hashlib.sha256(source.read_bytes() + program.read_bytes())
    digest.update(f"{Path(clang).resolve()} {_version_of(clang)}".encode())
    made = cache_folder() / f"bitcode-{digest.hexdigest()[:16]}" / f"{_PREFIX}{arch}.bc"
    if made.is_file():
        return made, ""
    try:
        made.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [
                *(sys.executable, str(program), "--clang", clang, "--arch", arch),
                *("--source", str(source), "--output", str(made)),
            ],
            capture_output=True,
            text=True,
            timeout=_BUILD_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"building it failed: {error}"
    if done.returncode != 0:
        return None, f"building it with {clang} failed: {done.stderr.strip()[-2000:]}"
    return made, ""


def _older(arch: str, found: dict[str, Path]) -> Path | None:
    """For an NVIDIA GPU: the bitcode for the newest of those that it runs the instructions of."""
    if not arch.startswith("sm_"):
        return None

    def number(name: str) -> int:
        return int(re.sub(r"\D", "", name))

    served = [name for name in found if name.startswith("sm_") and number(name) <= number(arch)]
    return found[max(served, key=number)] if served else None


def find_bitcode(arch: str | None = None, *, cov: int | None = None) -> str:
    """Path of libmori_shmem_device-ARCH.bc.

    arch  "gfx942", "sm_90", ...; None: the current device's
    cov   code object version (AMD): 5 and 6 are served by the same file, which names none

    Raises NotFoundError (also a LookupError) with the list of what exists, InvalidError for what is
    no architecture, UnavailableError when there is no device to ask.
    """
    if cov not in _CODE_OBJECT_VERSIONS:
        raise InvalidError(f"cov is {cov!r}, expected 5 or 6")
    named = os.environ.get("MORI_SHMEM_BC", "")
    if named:
        if not Path(named).is_file():
            raise NotFoundError(f"MORI_SHMEM_BC is {named}, where there is no file")
        return named
    if arch is None:
        arch = current_architecture()
    arch = str(arch).split(":")[0]
    if not _ARCHITECTURE.fullmatch(arch):
        raise InvalidError(f'arch is {arch!r}, expected the like of "gfx942" or "sm_90"')
    found = available()
    if arch in found:
        return str(found[arch])
    built, problem = _build(arch)
    path = built or _older(arch, found)
    if path is not None:
        return str(path)
    raise NotFoundError(
        f"there is no device bitcode for {arch} and {problem}; there is some for: "
        f"{', '.join(sorted(found)) or 'none'} (searched {', '.join(map(str, folders()))})"
    )


def get_bitcode_path(arch: str | None = None, *, cov: int | None = None) -> str:
    """The same as find_bitcode."""
    return find_bitcode(arch, cov=cov)


def content_path(path: str) -> str:
    """A path of the same bitcode that names its content, for compilers whose caches know a library
    by its path alone. The path itself where the cache folder cannot be written."""
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
    link = cache_folder() / f"content-{digest}" / Path(path).name
    try:
        if not link.is_file():
            link.parent.mkdir(parents=True, exist_ok=True)
            partial = link.with_name(f".{link.name}.{os.getpid()}")
            shutil.copyfile(path, partial)
            partial.replace(link)
    except OSError:
        return path
    return str(link)
