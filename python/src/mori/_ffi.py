"""The one module that knows cffi: the shared `ffi`, and the loading of the three libraries.

Everything above it speaks Python only; everything below it is C. The declarations come from the
C headers (python/build_cdef.py), so constants and layouts are never written down twice. A library
is loaded when the first module that needs it is imported, never by `import mori`. Read
mori/_raw/__init__.py next.

Where a library is looked for, in this order:
  1. MORI_LIBRARY_DIR, one or more folders separated by ':'. When it is set, nowhere else.
  2. the folder `lib` of this package, where the wheel puts the libraries.
  3. the system's loader.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    from mori._cdef_mori import ffi
except ModuleNotFoundError as missing:
    if missing.name == "mori._cdef_mori":
        raise ImportError(
            "mori is not built: its declarations, mori/_cdef_mori.py, are missing. Install the "
            "package (`pip install .`), or run python/build_cdef.py capi/include python/src/mori"
        ) from None
    raise ImportError(f"mori needs cffi: {missing}") from missing

# The first ABI level that has all that this package calls, by library. A higher level is fine:
# symbols are only ever added.
_NEEDED_ABI_LEVEL = {"shmem": 3, "ep": 1, "io": 2}


def constant(name: str) -> int:
    """Value of an enumerator or integer macro of the headers."""
    return int(ffi.integer_const(name))


def header_version(name: str) -> tuple[int, int, int]:
    """Version of the header that the package was built with."""
    parts = (constant(f"MORI_{name.upper()}_VERSION_{p}") for p in ("MAJOR", "MINOR", "PATCH"))
    major, minor, patch = parts
    return major, minor, patch


@dataclass(frozen=True)
class Library:
    """A loaded library: `lib` holds its functions."""

    name: str
    path: str
    version: tuple[int, int, int]
    abi_level: int
    lib: Any


_loaded: dict[str, Library] = {}
_lock = threading.RLock()


def _file_names(name: str) -> list[str]:
    return [f"libmori-{name}.so.{header_version(name)[0]}", f"libmori-{name}.so"]


def _candidates(name: str) -> tuple[list[str], str]:
    """What to hand to dlopen, best first, and in words where that is."""
    files = _file_names(name)
    chosen = os.environ.get("MORI_LIBRARY_DIR", "")
    if chosen:
        folders = [Path(part) for part in chosen.split(":") if part]
        paths = [folder / file for folder in folders for file in files]
        return [str(path) for path in paths if path.exists()], f"MORI_LIBRARY_DIR={chosen}"
    own = Path(__file__).parent / "lib"
    paths = [own / file for file in files if (own / file).exists()]
    return [str(path) for path in paths] or files, f"{own} and the system's loader"


def _open(name: str) -> tuple[Any, str]:
    from mori.errors import LibraryError

    candidates, where = _candidates(name)
    problems = []
    for candidate in candidates:
        try:
            return ffi.dlopen(candidate, ffi.RTLD_NOW), candidate
        except OSError as error:
            problems.append(str(error).removeprefix(f"cannot load library '{candidate}': "))
    reason = "; ".join(problems) if problems else f"no {_file_names(name)[0]} there"
    raise LibraryError(f"libmori-{name} could not be loaded from {where}: {reason}")


def _checked(name: str, lib: Any, path: str) -> Library:
    """Asks the library who it is, and refuses one that this package cannot speak to."""
    from mori.errors import LibraryError

    try:
        packed = int(getattr(lib, f"mori_{name}_version")())
        level = int(getattr(lib, f"mori_{name}_abi_level")())
    except (AttributeError, ffi.error) as error:
        raise LibraryError(f"{path} is not libmori-{name}: {error}") from None
    version = (packed >> 22, (packed >> 12) & 0x3FF, packed & 0xFFF)
    text, wanted = ".".join(map(str, version)), header_version(name)
    if version[0] != wanted[0]:
        raise LibraryError(
            f"{path} is version {text}, this package was built for "
            f"{'.'.join(map(str, wanted))}: another major version"
        )
    needed = _NEEDED_ABI_LEVEL[name]
    if level < needed:
        raise LibraryError(
            f"{path} (version {text}) has ABI level {level}, this package needs at least {needed}"
        )
    return Library(name, path, version, level, lib)


def load(name: str) -> Library:
    """Loads libmori-`name` once and returns it.

    Raises mori.errors.LibraryError (an ImportError) when it is missing, is something else, or is
    of a version or ABI level that this package cannot use; the message has both numbers.
    """
    with _lock:
        library = _loaded.get(name)
        if library is None:
            # ep must bind to the very shmem that this process uses, so that one is loaded first.
            if name == "ep":
                load("shmem")
            library = _loaded[name] = _checked(name, *_open(name))
        return library
