"""The io benchmarks: how io_host, io_submission.py, ucx_perftest and fi_pingpong are run, and which
metrics come of what they print. What is measured is said in io_host.cpp. compare.py calls this.

A write of ours is over when it has been acknowledged: its latency is a round trip. What the peers
print is half of one, so it is doubled here.
"""

import collections
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import host_benchmarks
from host_benchmarks import UcxTest, await_server, free_port, program
from metric import BenchmarkError, Metric, UnavailableError, bandwidth, nanoseconds
from program import parse_samples, run_program

MIB = 1 << 20
ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZES = {"8B": 8, "4KiB": 4096, "64KiB": 64 << 10, "1MiB": MIB, "64MiB": 64 * MIB}
LATENCY_SIZES = ("8B", "4KiB", "64KiB")
BATCHES = (1, 128)
# The goals: rates at least 0.95 of the plain way's, round trips at most 1.15 times as long.
RATE, ROUND_TRIP = 0.95, 1 / 1.15
SUBMISSION_NS, PYTHON_SUBMISSION_NS = 150, 500
ROUNDS = 5  # each moves tens of gigabytes

# --- ucx_perftest ---------------------------------------------------------------------------------

UCX_ENVIRONMENTS = {
    "tcp": {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"},
    "shm": {"UCX_TLS": host_benchmarks.UCX_TRANSPORTS},
}


def ucx_count(size, kind):
    """As many as take a fraction of a second, also over TCP."""
    return 5000 if size <= 4096 else max(4, (256 if kind == "bw" else 64) * MIB // size)


UCX_TESTS = {
    f"{way}_{size}_{kind}": UcxTest(f"{prefix}_{kind}", SIZES[size], ucx_count(SIZES[size], kind))
    for way, prefix in (("put", "ucp_put"), ("tag", "tag"))
    for kind, sizes in (("lat", LATENCY_SIZES), ("bw", SIZES))
    for size in sizes
}


def sample_ucx(kind, smoke):
    """(name, value) of each test: bytes per second, or nanoseconds there and back."""
    with tempfile.NamedTemporaryFile("w", suffix=".batch") as batch:
        for name, test in UCX_TESTS.items():
            batch.write(f"{name} {test.arguments(smoke)}\n")
        batch.flush()
        found = host_benchmarks.run_batch(batch.name, UCX_ENVIRONMENTS[kind], UCX_TESTS)
    for name, value in found.items():
        way, size, what = name.split("_")
        if what == "lat":
            yield f"write_{size}_latency/ucx_{way}", 2 * value
        else:
            yield f"{size}_bandwidth/ucx_{way}", value


# --- fi_pingpong ----------------------------------------------------------------------------------


def fabric_pair(size, count, provider):
    """Nanoseconds there and back, as a pair of processes of libfabric's."""
    port = str(free_port())
    common = ["fi_pingpong", *provider, "-I", str(count), "-S", str(size)]
    server = subprocess.Popen(
        [*common, "-B", port], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        await_server(server, int(port))
        text = run_program([*common, "-P", port, "127.0.0.1"])
        server.wait(20)
    finally:
        if server.poll() is None:
            server.kill()
        server.wait()
    columns = text.splitlines()[-1].split()
    return 2 * 1000 * float(columns[6])


FABRIC_PROVIDERS = {
    "tcp": ("-p", "tcp", "-e", "msg"),
    "shm": ("-p", "shm", "-e", "rdm"),
}


def sample_fabric(kind, smoke):
    """(name, value); nothing where libfabric's tool is missing or does not work."""
    if not shutil.which("fi_pingpong"):
        note("there is no fi_pingpong (Debian: libfabric-bin)")
        return
    for size in LATENCY_SIZES:
        count = 10 if smoke else 500
        try:
            value = fabric_pair(SIZES[size], count, FABRIC_PROVIDERS[kind])
        except (BenchmarkError, IndexError, ValueError, subprocess.TimeoutExpired) as error:
            note(f"fi_pingpong over {kind}: {error}")
            return
        yield f"write_{size}_latency/fabric", value


# --- Our programs ---------------------------------------------------------------------------------


def note(text):
    print(f"note: {text}", file=sys.stderr)


def python_environment(options):
    """Where the package and its library are, for a program in Python; None: it cannot run here."""
    try:
        import cffi  # noqa: F401
        import numpy  # noqa: F401
    except ImportError as error:
        note(f"the submission from Python is not measured: {error}")
        return None
    libraries = options.programs.resolve().parents[1] / "subprojects/libmori-io"
    generator = [sys.executable, "-B", str(ROOT / "python/build_cdef.py")]
    run_program([*generator, str(ROOT / "capi/include"), str(ROOT / "python/src/mori")])
    source = str(ROOT / "python/src")
    return {**os.environ, "PYTHONPATH": source, "MORI_LIBRARY_DIR": str(libraries)}


def sample_io(kind, options):
    smoke = ["--smoke"] if options.smoke else []
    environment = python_environment(options)
    samples = collections.defaultdict(list)

    def add(pairs):
        for name, value in pairs:
            samples[name].append(value)

    for _ in range(1 if options.smoke else min(options.rounds, ROUNDS)):
        add(parse_samples(run_program([program(options, "io_host"), kind, *smoke])))
        if environment is not None:
            script = str(ROOT / "tests/bench/io_submission.py")
            add(
                parse_samples(
                    run_program([sys.executable, "-B", script, kind, *smoke], environment)
                )
            )
        if shutil.which("ucx_perftest"):
            add(sample_ucx(kind, options.smoke))
        add(sample_fabric(kind, options.smoke))
    return samples


def sample_io_shm(options):
    return sample_io("shm", options)


def sample_io_tcp(options):
    return sample_io("tcp", options)


# --- Other Python packages --------------------------------------------------------------------

PEERS = ROOT / "build/peers/bin/python"  # made by compare.sh


def sample_io_peers(options):
    """Ours and NIXL over TCP, each through its Python package, in turn."""
    if not PEERS.exists():
        raise UnavailableError(
            f"there is no {PEERS.relative_to(ROOT)} with the packages of the peers"
        )
    environment = python_environment(options)
    if environment is None:
        raise UnavailableError("this Python lacks cffi or numpy")
    smoke = ["--smoke"] if options.smoke else []
    script = str(ROOT / "tests/bench/io_python.py")
    tcp = {**os.environ, **UCX_ENVIRONMENTS["tcp"]}
    samples = collections.defaultdict(list)
    for _ in range(1 if options.smoke else min(options.rounds, ROUNDS)):
        for command, settings in (
            ([sys.executable, "-B", script, "ours", *smoke], environment),
            ([str(PEERS), "-B", script, "nixl", *smoke], tcp),
        ):
            lines = run_program(command, settings).splitlines()
            # NIXL logs to standard output too.
            text = "\n".join(line for line in lines if line.startswith("write_"))
            for name, value in parse_samples(text):
                samples[name].append(value)
    return samples


# --- Metrics --------------------------------------------------------------------------------------


def wide(size, least):
    return SIZES[size] >= SIZES[least]


def io_metrics(kind, plain, least):
    """Those of both: `plain` is the plain way, `least` the size from which on its rate is the
    goal."""

    def rate(size, batch, goal):
        name = f"write_{size}_b{batch}"
        return bandwidth(
            f"{kind}_{name}_GB/s_vs_{plain}",
            f"{name}_bandwidth/ours",
            f"{name}_bandwidth/{plain}",
            goal=goal,
        )

    def optional(name, ours, peers, unit=1.0, less=False):
        return Metric(name, ours, peers, unit=unit, less_is_better=less, optional=True)

    for batch in BATCHES:
        for size in SIZES:
            if size != "8B":
                yield rate(size, batch, RATE if wide(size, least) else None)
        for size in SIZES:
            ours = f"write_{size}_b{batch}_bandwidth/ours"
            peers = tuple(f"{size}_bandwidth/ucx_{way}" for way in ("put", "tag"))
            yield optional(f"{kind}_write_{size}_b{batch}_GB/s_vs_ucx", ours, peers, 1e9)
    yield bandwidth(
        f"{kind}_read_1MiB_b1_GB/s_vs_{plain}",
        "read_1MiB_b1_bandwidth/ours",
        f"read_1MiB_b1_bandwidth/{plain}",
    )
    for size in LATENCY_SIZES:
        name = f"write_{size}_latency"
        ucx = tuple(f"{name}/ucx_{way}" for way in ("put", "tag"))
        yield optional(f"{kind}_{name}_ns_vs_ucx", f"{name}/ours", ucx, less=True)
        yield optional(
            f"{kind}_{name}_ns_vs_libfabric", f"{name}/ours", (f"{name}/fabric",), less=True
        )
    for name, limit, is_optional in (
        ("submit_128", SUBMISSION_NS, False),
        ("submit_128_python", PYTHON_SUBMISSION_NS, True),
    ):
        yield Metric(
            f"{kind}_{name}_ns_per_operation",
            f"{name}/ours",
            goal=1.0,
            less_is_better=True,
            limit=limit,
            optional=is_optional,
        )


IO_PEERS = tuple(
    bandwidth(
        f"tcp_python_write_{size}_b{batch}_GB/s_vs_nixl",
        f"write_{size}_b{batch}_bandwidth/ours",
        f"write_{size}_b{batch}_bandwidth/nixl",
    )
    for size, batch in (("64KiB", 1), ("1MiB", 1), ("64MiB", 1), ("64KiB", 128), ("1MiB", 128))
)

IO_TCP = (
    *io_metrics("tcp", "raw", "64KiB"),
    *(
        nanoseconds(
            f"tcp_write_{size}_latency_ns_vs_{raw}",
            f"write_{size}_latency/{ours}",
            f"write_{size}_latency/{raw}",
            goal=ROUND_TRIP if size == "8B" else None,
        )
        for ours, raw in (("ours", "raw"), ("spin", "raw_spin"))
        for size in LATENCY_SIZES
    ),
    *(
        bandwidth(
            f"tcp_mac_write_{size}_b1_GB/s_vs_raw",
            f"write_{size}_b1_bandwidth/mac",
            f"write_{size}_b1_bandwidth/raw",
        )
        for size in ("64KiB", "1MiB")
    ),
    nanoseconds(
        "tcp_mac_write_8B_latency_ns_vs_raw", "write_8B_latency/mac", "write_8B_latency/raw"
    ),
)

IO_SHM = (
    *io_metrics("shm", "memcpy", "1MiB"),
    *(
        bandwidth(
            f"shm_attach_write_{size}_b1_GB/s_vs_memcpy",
            f"write_{size}_b1_bandwidth/attach",
            f"write_{size}_b1_bandwidth/memcpy",
        )
        for size in ("64KiB", "1MiB")
    ),
)
