"""The GPU benchmarks: how their programs are run, each under an MPS daemon of its own, and which
metrics come of what they print. What is measured, and which bytes count, is said in
gpu/shmem_measure.hpp and gpu/ep_gpu.cu. compare.py calls this; gpu_programs.py builds the programs.

Where a peer is missing (NVSHMEM, torch), ours is measured alone, and a note says why.
"""

import collections
import os
import pathlib
import shutil
import subprocess
import sys

import gpu_programs
import mps
from gpu_programs import Builder
from metric import BenchmarkError, Metric, UnavailableError, bandwidth
from program import parse_samples, run_with_notes

HERE = pathlib.Path(__file__).parent
SHMEM_PES = (2, 8)
EP_RANKS = (8, 4, 2)
EP_TOKENS = (4096, 128)
DTYPES = ("bf16", "f8")
# Speed that is to be reached: that of the peer, but for copies, which carry no protocol at all, and
# torch, which has the whole GPU in one process and still moves every row twice.
COPY_GOAL = 0.80
PUT_COPY_GOAL = 0.95
TORCH_GOAL = 2.0
PYTHON_CALL_NS = 15_000.0
# NVSHMEM within one machine, over the loopback interface. No multicast: PEs of one GPU.
NVSHMEM_ENVIRONMENT = {
    "NVSHMEM_DISABLE_NVLS": "1",
    "NVSHMEM_REMOTE_TRANSPORT": "none",
    "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "lo",
    "NVSHMEM_SYMMETRIC_SIZE": str(768 << 20),
}


class Measuring:
    """Samples of one benchmark and what was noted while they were taken."""

    def __init__(self, options):
        self.options = options
        self.builder = Builder(options.build, options.nvshmem, arch=options.arch)
        self.samples = collections.defaultdict(list)
        self.quick = ["--quick"] if options.quick else []

    def note(self, text):
        print(f"note: {text}", file=sys.stderr, flush=True)

    def take(self, output):
        text, notes = output
        for line in dict.fromkeys(notes.splitlines()):
            self.note(line)
        for name, value in parse_samples(text):
            self.samples[name].append(value)

    def run_shared(self, program, process_count, arguments):
        """A program of ours whose processes share the GPU in equal parts."""
        with mps.daemon() as environment:
            environment = mps.share(environment, process_count)
            if gpu_programs.PROGRAMS[program.name].nvshmem:
                environment = {**NVSHMEM_ENVIRONMENT, **environment}
            folders = self.builder.library_folders(gpu_programs.PROGRAMS[program.name])
            environment = gpu_programs.with_libraries(environment, folders)
            self.take(run_with_notes([str(program), str(process_count), *arguments], environment))

    def run_script(self, name, arguments, environment=None):
        """A Python script, which has the GPU to itself; a note where it cannot run."""
        command = [sys.executable, "-B", str(HERE / f"gpu/{name}.py"), *map(str, arguments)]
        try:
            self.take(run_with_notes(command, environment))
        except BenchmarkError as error:
            self.note(f"without {name}: {str(error).strip().splitlines()[-1]}")


def begin(options):
    if (reason := mps.why_not()) is not None:
        raise UnavailableError(reason)
    return Measuring(options)


# --- shmem ----------------------------------------------------------------------------------------


def sample_shmem_gpu(options):
    measuring = begin(options)
    measuring.builder.make(["shmem_ours"])
    programs = ["shmem_ours"]
    try:
        measuring.builder.make(["shmem_nvshmem"])
        programs.append("shmem_nvshmem")
    except BenchmarkError as error:
        measuring.note(f"without NVSHMEM: {error}")
    for _ in range(1 if options.quick else 3):
        for count in SHMEM_PES:
            for name in tuple(programs):
                run_shmem(measuring, programs, name, count)
    return measuring.samples


def run_shmem(measuring, programs, name, count):
    try:
        measuring.run_shared(measuring.builder.folder / name, count, measuring.quick)
    except BenchmarkError as error:
        if name == "shmem_ours":
            raise
        measuring.note(f"NVSHMEM with {count} PEs is not measured: {error}")
        programs.remove(name)


def shmem_metrics():
    latencies = {
        "signal_round_trip": "signal_round_trip",
        **{f"put_{size}_round_trip": f"put_{size}_round_trip" for size in SHMEM_SIZES},
        **{f"device_barrier_{count}": f"barrier_{count}" for count in SHMEM_PES},
    }
    for name, sample in latencies.items():
        yield Metric(
            f"{name}_us_vs_nvshmem",
            f"{sample}/ours",
            (f"{sample}/nvshmem",),
            goal=1.0,
            less_is_better=True,
            unit=1e3,
            optional=True,
        )
    for name in ("put_256MiB", "put_256MiB_wide"):
        yield Metric(
            f"{name}_GB/s_vs_nvshmem",
            f"{name}/ours",
            (f"{name}/nvshmem",),
            goal=1.0,
            unit=1e9,
            optional=True,
        )
    for name, goal in (("put_256MiB", None), ("put_256MiB_wide", PUT_COPY_GOAL)):
        yield bandwidth(f"{name}_GB/s_vs_copy", f"{name}/ours", "copy_256MiB/ours", goal=goal)


SHMEM_SIZES = ("8B", "14336B", "64KiB")
SHMEM_GPU = tuple(shmem_metrics())


# --- ep -------------------------------------------------------------------------------------------


def sample_ep_gpu(options):
    measuring = begin(options)
    program = measuring.builder.make(["ep_gpu"])["ep_gpu"]
    extra = [
        word for name in ("only", "tokens", "blocks", "warps") for word in chosen(options, name)
    ]
    for ranks in options.ranks or EP_RANKS:
        measuring.run_shared(program, ranks, [*measuring.quick, *extra])
    if options.only is None:
        measuring.run_script("torch_rows", [EP_RANKS[0], *measuring.quick])
        measuring.run_script("ep_call", measuring.quick, python_environment(measuring))
    return measuring.samples


# --- ir -------------------------------------------------------------------------------------------


def sample_ir_gpu(options):
    measuring = begin(options)
    cubin = measuring.builder.make(["ir_native"])["ir_native"]
    # Fails, rather than go without, where Triton is missing: there is nothing else to measure.
    command = [sys.executable, "-B", str(HERE / "gpu/ir_all_gather.py"), str(cubin)]
    environment = python_environment(measuring)
    bitcode = gpu_programs.find_library(options.build, "shmem") / "functions"
    if bitcode.is_dir():  # a build folder, not an installed library
        environment["MORI_SHMEM_BC_DIR"] = str(bitcode)
    measuring.take(run_with_notes([*command, *measuring.quick], environment))
    return measuring.samples


IR_ROW_BYTES = (1 << 20, 16 << 20, 64 << 20)
IR_GOAL = 0.9
IR_GPU = tuple(
    Metric(
        f"triton_all_gather_{size >> 20}MiB_us_vs_native",
        f"all_gather_{size}B_ns/triton",
        (f"all_gather_{size}B_ns/native",),
        goal=IR_GOAL,
        less_is_better=True,
        unit=1e3,
    )
    for size in IR_ROW_BYTES
)


# --- ep, what its metrics are made of -------------------------------------------------------------


def chosen(options, name):
    value = getattr(options, name)
    return [] if value is None else [f"--{name}", str(value)]


def python_environment(measuring):
    """Where `mori` is importable: as it is, else a copy whose declarations are made here."""
    libraries = measuring.builder.library_folders(gpu_programs.PROGRAMS["ep_gpu"])
    environment = {**os.environ, "MORI_LIBRARY_DIR": os.pathsep.join(libraries)}
    check = [sys.executable, "-c", "import mori.ops"]
    if subprocess.run(check, env=environment, capture_output=True).returncode == 0:
        return environment
    root, copy = gpu_programs.ROOT, measuring.builder.folder / "python"
    shutil.copytree(root / "python/src", copy, dirs_exist_ok=True)
    command = [sys.executable, "-B", str(root / "python/build_cdef.py")]
    made = subprocess.run(
        [*command, str(root / "capi/include"), str(copy / "mori")], capture_output=True, text=True
    )
    if made.returncode != 0:
        measuring.note(f"mori's declarations for Python: {made.stderr.strip()}")
    before = environment.get("PYTHONPATH", "")
    return {
        **environment,
        "PYTHONPATH": os.pathsep.join([str(copy), *([before] if before else [])]),
    }


def time_us(name, ours, *peers, goal=None):
    return Metric(name, ours, peers, goal, less_is_better=True, unit=1e3, optional=True)


def rate(name, ours, *peers, goal=None):
    return Metric(name, ours, peers, goal, unit=1e9, optional=True)


def case_metrics(what, dtype, tokens, ranks):
    """One operation: its time, and its speed beside every peer."""
    case = f"{what}_{dtype}_{tokens}_ep{ranks}"
    payload = f"payload_{dtype}_{tokens}_ep{ranks}/copy"
    large = tokens == max(EP_TOKENS)
    naive = what.removesuffix("_external")
    yield time_us(
        f"{case}_us_vs_naive", f"{case}_ns/ours", f"{naive}_{case[len(what) + 1 :]}_ns/naive"
    )
    yield rate(f"{case}_GB/s_vs_copy", f"{case}/ours", payload, goal=COPY_GOAL if large else None)
    if ranks == EP_RANKS[0]:
        torch = f"{naive}_{dtype}_{tokens}_ep{ranks}/torch"
        yield rate(f"{case}_GB/s_vs_torch", f"{case}/ours", torch, goal=TORCH_GOAL)


def ep_metrics():
    for ranks in EP_RANKS:
        for tokens in EP_TOKENS:
            for what, dtype in (
                ("dispatch", "bf16"),
                ("dispatch", "f8"),
                ("combine", "bf16"),
                ("combine_external", "bf16"),
            ):
                yield from case_metrics(what, dtype, tokens, ranks)
            for what in ("dispatch", "combine", "layer"):
                case = f"{what}_bf16_{tokens}_ep{ranks}"
                yield time_us(f"{case}_graph_us_vs_calls", f"{case}_ns/graph", f"{case}_ns/ours")
    for what in ("dispatch", "combine"):
        name = f"call_{what}_bf16_{min(EP_TOKENS)}_ep{EP_RANKS[0]}"
        yield time_us(f"{name}_us", f"{name}_ns/host_ours")
    yield python_call("dispatch", 1.0)
    yield python_call("combine", None)


def python_call(what, goal):
    return Metric(
        f"python_{what}_call_us",
        f"python_{what}_call/ours",
        goal=goal,
        less_is_better=True,
        unit=1e3,
        limit=PYTHON_CALL_NS / 1e3 if goal is not None else None,
        optional=True,
    )


EP_GPU = tuple(ep_metrics())
