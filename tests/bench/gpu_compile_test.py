"""Compiles and links the GPU benchmarks' programs as their users would, with warnings as errors:
nothing runs, but what they call of the libraries and of NVSHMEM does not rot.

usage: gpu_compile_test.py FOLDER_OF_LIBRARIES FOLDER_FOR_PROGRAMS
"""

import pathlib
import sys

import gpu_programs
from metric import BenchmarkError, UnavailableError

SKIPPED = 77


def main():
    libraries, folder = (pathlib.Path(word).resolve() for word in sys.argv[1:])
    try:
        gpu_programs.find_nvcc()
    except UnavailableError as reason:
        print(f"skipped: {reason}")
        return SKIPPED
    names = list(gpu_programs.PROGRAMS)
    try:
        gpu_programs.find_nvshmem()
    except UnavailableError as reason:
        print(f"without shmem_nvshmem: {reason}")
        names = [name for name in names if not gpu_programs.PROGRAMS[name].nvshmem]
    builder = gpu_programs.Builder(libraries, folder=folder, arch="sm_90", strict=True)
    try:
        made = builder.make(names)
    except BenchmarkError as error:
        print(error)
        return 1
    empty = [name for name, path in made.items() if path.stat().st_size == 0]
    print("compiled:", *made, *(f"{name} is empty" for name in empty))
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
