#!/usr/bin/env python3
"""Memory that is not there, and memory that must come back: a full tmpfs, a memory cgroup, a PE's
resident set, many cycles in the same processes."""

import contextlib
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

import cases
from cases import SkipError, case
from processes import Crew, expect

MIB = 1 << 20


@contextlib.contextmanager
def small_tmpfs(size_mib):
    """A tmpfs in a mount namespace of this process, which its children share."""
    if os.geteuid() != 0:
        raise SkipError("needs root to mount a tmpfs")
    clone_newns, libc = 0x00020000, ctypes.CDLL(None, use_errno=True)
    if libc.unshare(clone_newns) != 0:
        raise SkipError(f"no mount namespace: {os.strerror(ctypes.get_errno())}")
    with tempfile.TemporaryDirectory(prefix="mori-multi-") as folder:
        options = ["-t", "tmpfs", "-o", f"size={size_mib}m", "mori-multi", folder]
        for command in (["mount", "--make-rprivate", "/"], ["mount", *options]):
            done = subprocess.run(command, capture_output=True, text=True, timeout=20)
            if done.returncode != 0:
                raise SkipError(f"{' '.join(command)}: {done.stderr.strip()}")
        try:
            yield pathlib.Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True, timeout=20)


def free_mib(folder):
    about = os.statvfs(folder)
    return about.f_bavail * about.f_frsize / MIB


def expect_no_memory(crew, size_mib):
    crew.send_all("malloc", 0, size_mib * MIB)
    for pe, process in enumerate(crew.members):
        reply = process.receive()
        expect(reply.name == "MORI_E_NO_MEMORY", f"malloc of {size_mib} MiB on PE {pe}: {reply}")
        yield reply


@case("a full tmpfs is a status on all PEs, and smaller requests go on")
def full_tmpfs(_):
    with small_tmpfs(64) as folder, Crew(2, {"MORI_SHMEM_HEAP_DIR": str(folder)}) as crew:
        crew.warm_up()
        expect(free_mib(folder) > 63, f"{free_mib(folder)} MiB free after destroy, of 64")
        crew.join(heap_mib=256)
        for reply in expect_no_memory(crew, 40):
            expect(str(40 * MIB) in reply.text, f"{reply} does not say what was asked for")
        expect(free_mib(folder) > 60, f"{free_mib(folder)} MiB free after a refusal")
        crew.all_ok("malloc", 0, 20 * MIB)
        crew.all_ok("fill", 0)
        list(expect_no_memory(crew, 20))
        crew.all_ok("malloc", 0, 8 * MIB)
        crew.all_ok("fill", 0)
        crew.all_ok("put", 0, 1)
        crew.all_ok("free", 0)
        crew.all_ok("free", 0)
        crew.make_layer(crew.small)
        crew.run_round()
        list(expect_no_memory(crew, 40))
        # An operator that does not fit, either.
        crew.all_ok("destroy", 0)
        crew.join(heap_mib=256)
        crew.send_all("layer", 0, 4096, 1280, 0)
        for process in crew.members:
            reply = process.receive()
            expect(reply.name == "MORI_E_NO_MEMORY", f"operator: {reply}")
        crew.make_layer(crew.small)
        crew.run_round()
        crew.prove_clean()
        expect(free_mib(folder) > 63, f"{free_mib(folder)} MiB free in the end, of 64")


@contextlib.contextmanager
def memory_cgroup(limit_mib):
    """A memory cgroup of either version; gives the file that takes process ids."""
    if os.geteuid() != 0:
        raise SkipError("needs root to make a cgroup")
    name = f"mori-multi-{os.getpid()}"
    two, one = pathlib.Path("/sys/fs/cgroup"), pathlib.Path("/sys/fs/cgroup/memory")
    controllers = two / "cgroup.subtree_control"
    if controllers.exists() and "memory" in controllers.read_text().split():
        group, limits = two / name, ("memory.max", "memory.swap.max")
    elif (one / "memory.limit_in_bytes").exists():
        group, limits = one / name, ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
    else:
        raise SkipError("no memory controller in /sys/fs/cgroup that a group can be made under")
    try:
        group.mkdir()
        (group / limits[0]).write_text(str(limit_mib * MIB))
    except OSError as why:
        with contextlib.suppress(OSError):
            group.rmdir()
        raise SkipError(f"no memory cgroup with a limit: {why}") from None
    # Swap would only make the limit softer.
    with contextlib.suppress(OSError):
        (group / limits[1]).write_text(str(limit_mib * MIB if "memsw" in limits[1] else 0))
    try:
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


@case("a memory cgroup's limit is a status on all PEs")
def cgroup_limit(_):
    with memory_cgroup(96) as procs, Crew(2) as crew:
        for process in crew.members:
            procs.write_text(str(process.pid))
        crew.warm_up()
        crew.join(heap_mib=256)
        for reply in expect_no_memory(crew, 80):
            expect("limit of memory cgroup" in reply.text, f"{reply}")
        crew.all_ok("malloc", 0, 16 * MIB)
        crew.all_ok("fill", 0)
        crew.all_ok("put", 0, 1)
        crew.prove_clean()


@case("a PE's resident set beyond its heap stays under 64 MiB")
def resident_set(_):
    with Crew(4) as crew:
        crew.join(heap_mib=256)
        # Rows of 14336 bytes, as DeepSeek-V3's are in bfloat16; 512 tokens on each PE.
        crew.make_layer((3584, 512))
        for _ in range(3):
            crew.run_round()
        used = [process.resident_kib() / 1024 for process in crew.members]
        expect(max(used) < 64, f"{max(used):.1f} MiB")
        crew.all_ok("destroy", 0)
        after = [process.resident_kib() / 1024 for process in crew.members]
    return f"{max(used):.1f} MiB with an operator, {max(after):.1f} MiB after destroy"


@case("100 cycles of create, dispatch, combine, destroy leave nothing")
def soak(_):
    cycles, settled_after = 100 * cases.TRIALS, 20
    with Crew(3) as crew:
        crew.warm_up()
        early = []
        for cycle in range(cycles):
            crew.join()
            crew.make_layer(crew.small)
            crew.run_round()
            crew.all_ok("destroy", 0)
            for process in crew.members:
                expect(process.holds() == process.idle_state, f"cycle {cycle}: {process.holds()}")
            if cycle == settled_after:
                early = [process.resident_kib() for process in crew.members]
        late = [process.resident_kib() for process in crew.members]
        growth = max(b - a for a, b in zip(early, late, strict=True))
        expect(growth < 512, f"grew by {growth} KiB in {cycles - settled_after} cycles")
    return f"{growth} KiB of growth after cycle {settled_after} of {cycles}, {late[0]} KiB resident"


@case("1000 lives of a context leave no thread, descriptor, mapping or memory")
def lives(_):
    lives_count, settled_after = 1000, 50
    with Crew(2) as crew:
        crew.warm_up()
        early = []
        for life in range(lives_count):
            # Another size each time: what was there before must not show.
            crew.join(heap_mib=1 + life % 7)
            crew.all_ok("malloc", 0, (1 + life % 7) * MIB // 2)
            crew.all_ok("destroy", 0)
            if life == settled_after:
                early = [process.resident_kib() for process in crew.members]
        for process in crew.members:
            expect(process.holds() == process.idle_state, f"{process.holds()} after all lives")
        late = [process.resident_kib() for process in crew.members]
        growth = max(b - a for a, b in zip(early, late, strict=True))
        expect(growth < 512, f"grew by {growth} KiB in {lives_count - settled_after} lives")
    return f"{growth} KiB of growth after life {settled_after}, {late[0]} KiB resident"


if __name__ == "__main__":
    sys.exit(cases.main())
