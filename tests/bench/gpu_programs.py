"""Builds the GPU benchmarks' programs with nvcc, on the machine that runs them or beforehand: finds
the compiler, our libraries and NVSHMEM, and says what is missing. A program whose sources, flags
and target have not changed is not built again, so that a folder of programs may be taken along to a
machine of another path.

usage of the command line: compare.sh --compile-only shmem-gpu ep-gpu
"""

import concurrent.futures
import dataclasses
import functools
import hashlib
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess

from metric import BenchmarkError, UnavailableError

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/bench"
FOLDER = ROOT / "build/bench-gpu"
LIMIT_S = 300  # of one compilation
INCLUDES = (
    "capi/include",
    "libmori-shmem/include",
    "libmori-ep/include",
    "subprojects/mori-device/include",
)
# Where libraries are looked for unless --build says: what is installed, then what is built.
BUILDS = ("build/stage", "build/release", "build/bench")
NVSHMEM_VERSION = re.compile(r"NVSHMEM_VENDOR_(?:MAJOR|MINOR|PATCH)_VERSION\s+(\d+)")


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    libraries: tuple = ()  # of ours: shmem, ep
    nvshmem: bool = False
    cubin: bool = False  # code for a driver, no program

    @property
    def source(self):
        return HERE / f"gpu/{self.name}.cu"


PROGRAMS = {
    "shmem_ours": Program("shmem_ours", ("shmem",)),
    "shmem_nvshmem": Program("shmem_nvshmem", nvshmem=True),
    "ep_gpu": Program("ep_gpu", ("ep", "shmem")),
    "ir_native": Program("ir_native", cubin=True),
}


@dataclasses.dataclass(frozen=True)
class Nvshmem:
    folder: pathlib.Path
    version: str


# --- What is there --------------------------------------------------------------------------------


def find_nvcc():
    for candidate in ("nvcc", "/usr/local/cuda/bin/nvcc"):
        if (found := shutil.which(candidate)) is not None:
            return found
    raise UnavailableError("there is no nvcc")


def find_library(build, name):
    """The folder of libmori-NAME.so."""
    builds = [build] if build is not None else [ROOT / folder for folder in BUILDS]
    for folder in builds:
        for found in sorted(folder.rglob(f"libmori-{name}.so")):
            return found.parent
    raise BenchmarkError(f"there is no libmori-{name}.so below {', '.join(map(str, builds))}")


def find_nvshmem(folder=None):
    """The one below `folder`, else the one of this interpreter's packages."""
    folders = [folder] if folder is not None else _nvshmem_packages()
    for candidate in folders:
        header = candidate / "include/non_abi/nvshmem_version.h"
        if header.exists() and (candidate / "lib/libnvshmem_device.a").exists():
            version = ".".join(NVSHMEM_VERSION.findall(header.read_text())[:3])
            return Nvshmem(candidate, version)
    where = folder if folder is not None else "this interpreter's packages (nvidia-nvshmem-cu13)"
    raise UnavailableError(f"there is no NVSHMEM in {where}")


def _nvshmem_packages():
    try:
        spec = importlib.util.find_spec("nvidia.nvshmem")
    except ModuleNotFoundError:
        return []
    return [pathlib.Path(place) for place in (spec.submodule_search_locations if spec else ())]


@functools.cache
def architecture():
    """Of the GPU here, else of the one that the figures are about."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "sm_90"
    found = re.match(r"(\d+)\.(\d+)", done.stdout)
    return f"sm_{found[1]}{found[2]}" if found and done.returncode == 0 else "sm_90"


# --- Building -------------------------------------------------------------------------------------


@dataclasses.dataclass
class Builder:
    build: pathlib.Path | None = None  # where our libraries are
    nvshmem: pathlib.Path | None = None
    folder: pathlib.Path = FOLDER
    arch: str = ""
    strict: bool = False  # warnings are errors

    def make(self, names):
        """Builds programs, two at a time, and returns their paths by name."""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return dict(zip(names, pool.map(self._make, names), strict=True))

    def library_folders(self, program):
        """For the loader: LD_LIBRARY_PATH of a program that was built elsewhere."""
        ours = [find_library(self.build, name) for name in program.libraries]
        theirs = [find_nvshmem(self.nvshmem).folder / "lib"] if program.nvshmem else []
        return list(dict.fromkeys(map(str, ours + theirs)))

    def _make(self, name):
        program = PROGRAMS[name]
        arch = self.arch or architecture()
        options = self._options(program, arch)
        target, stamp = self.folder / name, self.folder / f"{name}.stamp"
        digest = self._digest(program, arch)
        if not (target.exists() and stamp.exists() and stamp.read_text() == digest):
            self.folder.mkdir(parents=True, exist_ok=True)
            stamp.unlink(missing_ok=True)
            self._compile([find_nvcc(), *options, str(program.source), "-o", str(target)])
            stamp.write_text(digest)
        return target

    def _options(self, program, arch):
        words = ["-std=c++20", "-O3", f"-arch={arch}", "-Xcompiler", "-Wall,-Wextra"]
        if self.strict:
            words += ["-Werror", "all-warnings"]
        for folder in INCLUDES:
            words += ["-I", str(ROOT / folder)]
        if program.cubin:
            words += ["-cubin"]
        for name in program.libraries:
            folder = find_library(self.build, name)
            words += [f"-L{folder}", f"-lmori-{name}", "-Xlinker", f"-rpath={folder}"]
        if program.nvshmem:
            found = find_nvshmem(self.nvshmem).folder
            words += ["-rdc=true", "-isystem", str(found / "include"), f"-L{found / 'lib'}"]
            words += ["-l:libnvshmem_host.so.3", "-lnvshmem_device"]
        return words

    def _digest(self, program, arch):
        """Of everything that the program is made of, and of no path of this machine."""
        known = hashlib.sha256(f"{arch} {self.strict} {program}".encode())
        if program.nvshmem:
            known.update(find_nvshmem(self.nvshmem).version.encode())
        files = [*HERE.glob("*.hpp"), *HERE.glob("gpu/*.hpp"), program.source, __file__]
        for folder in INCLUDES if program.libraries or program.cubin else ():
            files += (ROOT / folder).rglob("*.h*")
        for path in sorted(map(pathlib.Path, files)):
            known.update(path.name.encode())
            known.update(path.read_bytes())
        return known.hexdigest()

    @staticmethod
    def _compile(command):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BenchmarkError(f"{command[0]}: {error}") from error
        if done.returncode != 0:
            said = done.stdout + done.stderr
            raise BenchmarkError(f"{' '.join(command)}\nexit code {done.returncode}\n{said}")


def with_libraries(environment, folders):
    before = environment.get("LD_LIBRARY_PATH", "")
    joined = os.pathsep.join([*folders, *([before] if before else [])])
    return {**environment, "LD_LIBRARY_PATH": joined}
