"""The host benchmarks: how the programs shmem_host and ep_host and ucx_perftest are run, and which
metrics come of what they print. What is measured, and which bytes count, is said in shmem_host.cpp
and ep_host.cpp. compare.py calls this.
"""

import collections
import contextlib
import dataclasses
import os
import pathlib
import socket
import subprocess
import tempfile
import time

from metric import BenchmarkError, Metric, bandwidth, nanoseconds
from program import parse_samples, run_program

MIB = 1 << 20

# --- ucx_perftest ---------------------------------------------------------------------------------

# What UCX may choose from unless UCX_TLS says otherwise: what it uses within a host. By
# System V memory, and without cma, it was neither faster nor slower.
UCX_TRANSPORTS = "posix,cma,self"


@dataclasses.dataclass(frozen=True)
class UcxTest:
    test: str  # as `ucx_perftest -t` calls it
    size: int
    count: int  # the same as in shmem_host.cpp

    def arguments(self, smoke):
        count = max(4, self.count // 100) if smoke else self.count
        return f"-t {self.test} -s {self.size} -n {count} -w {count // 10 + 1}"

    def sample(self, row):
        """Nanoseconds (of ping-pongs the median), or bytes per second for bandwidths."""
        if self.test.endswith("_bw"):
            return float(row["overall_bw"]) * MIB
        if self.test.endswith("_lat"):
            return float(row["50.0_percentile_lat"]) * 1000
        return float(row["overall_lat"]) * 1000


UCX_TESTS = {
    "put_8B_latency": UcxTest("ucp_put_lat", 8, 200_000),
    "put_64KiB_latency": UcxTest("ucp_put_lat", 64 << 10, 4096),
    "put_1MiB_latency": UcxTest("ucp_put_lat", 1 << 20, 256),
    "put_8B_bandwidth": UcxTest("ucp_put_bw", 8, 200_000),
    "put_64KiB_bandwidth": UcxTest("ucp_put_bw", 64 << 10, 8192),
    "put_1MiB_bandwidth": UcxTest("ucp_put_bw", 1 << 20, 512),
    "fetch_add": UcxTest("ucp_fadd", 8, 200_000),
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_listening(port):
    """Looks without connecting: the server takes one connection only."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = pathlib.Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state = line.split()[:4]
            if state == "0A" and int(local.split(":")[1], 16) == port:
                return True
    return False


def parse_ucx(text, tests=UCX_TESTS):
    """Samples of one batch's CSV, whose first column is headed by the batch file's name."""
    lines = [line for line in text.splitlines() if "," in line]
    columns = lines[0].split(",")[1:] if lines else []
    rows = {}
    for line in lines[1:]:
        name, *values = (value.strip() for value in line.split(","))
        rows[name] = dict(zip(columns, values, strict=True))
    missing = [name for name in tests if name not in rows]
    if missing:
        raise BenchmarkError(f"ucx_perftest gave no {', '.join(missing)}:\n{text}")
    return {name: test.sample(rows[name]) for name, test in tests.items()}


class LostPortError(BenchmarkError):
    """The server ended before it listened: mostly, somebody else took the port meanwhile."""


def run_ucx(smoke):
    """All tests by one pair of processes on two cores."""
    with tempfile.NamedTemporaryFile("w", suffix=".batch") as batch:
        for name, test in UCX_TESTS.items():
            batch.write(f"{name} {test.arguments(smoke)}\n")
        batch.flush()
        return run_batch(batch.name, {"UCX_TLS": UCX_TRANSPORTS}, UCX_TESTS)


def run_batch(batch, settings, tests):
    """The tests of a batch file; settings that the caller's environment has stay as they are."""
    for _ in range(2):
        with contextlib.suppress(LostPortError):
            return parse_ucx(run_pair(batch, settings), tests)
    return parse_ucx(run_pair(batch, settings), tests)


def run_pair(batch, settings):
    cores = sorted(os.sched_getaffinity(0))
    port = free_port()
    environment = {**settings, **os.environ}
    common = ["ucx_perftest", "-p", str(port), "-b", batch]
    try:
        server = subprocess.Popen(
            [*common, "-c", str(cores[0])],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
    except FileNotFoundError as error:
        raise BenchmarkError("there is no ucx_perftest (Debian: ucx-utils)") from error
    try:
        await_server(server, port)
        client = [*common, "-c", str(cores[-1]), "-f", "-v", "127.0.0.1"]
        text = run_program(client, environment)
        server.wait(20)
    finally:
        if server.poll() is None:
            server.kill()
        server.wait()
    return text


def await_server(server, port):
    deadline = time.monotonic() + 20
    while not is_listening(port):
        if server.poll() is not None:
            raise LostPortError(f"the server of ucx_perftest ended: exit code {server.returncode}")
        if time.monotonic() > deadline:
            raise BenchmarkError("the server of ucx_perftest did not come up")
        time.sleep(0.02)


# --- Our programs ---------------------------------------------------------------------------------


def program(options, name):
    if options.programs is None:
        raise BenchmarkError("--programs is missing: the folder of the host programs")
    return str(options.programs / name)


def sample_shmem_host(options):
    samples = collections.defaultdict(list)
    for _ in range(1 if options.smoke else options.rounds):
        command = [program(options, "shmem_host"), *(["--smoke"] if options.smoke else [])]
        for name, value in parse_samples(run_program(command)):
            samples[name].append(value)
        for name, value in run_ucx(options.smoke).items():
            samples[f"{name}/ucx"].append(value)
    return samples


# Of the bulk's MAC, by MORI_SHMEM_SECURITY: the default, and what a bare socket compares with.
SECURITIES = {"mac": "_mac", "trusted": ""}


def sample_shmem_net(options):
    samples = collections.defaultdict(list)
    command = [program(options, "shmem_net"), *(["--smoke"] if options.smoke else [])]
    for _ in range(1 if options.smoke else options.rounds):
        for security, ending in SECURITIES.items():
            environment = {**os.environ, "MORI_SHMEM_SECURITY": security}
            for name, value in parse_samples(run_program(command, environment)):
                samples[name + ending].append(value)
    return samples


def sample_ep_host(options):
    rounds = "1" if options.smoke else str(options.rounds)
    command = [program(options, "ep_host"), rounds, *(["--smoke"] if options.smoke else [])]
    samples = collections.defaultdict(list)
    for name, value in parse_samples(run_program(command)):
        samples[name].append(value)
    return samples


# --- Metrics --------------------------------------------------------------------------------------


def resident(library):
    return Metric(
        f"{library}_rss_beyond_heap_MiB",
        "resident_beyond_heap_bytes/ours",
        goal=1.0,
        less_is_better=True,
        unit=MIB,
        limit=64,
    )


SIZES = ("8B", "64KiB", "1MiB")
SHMEM_HOST = (
    *(
        nanoseconds(
            f"put_{size}_latency_ns_vs_ucx",
            f"put_{size}_latency/ours",
            f"put_{size}_latency/ucx",
            goal=1.0,
        )
        for size in SIZES
    ),
    *(
        bandwidth(
            f"put_{size}_GB/s_vs_ucx",
            f"put_{size}_bandwidth/ours_stamped",
            f"put_{size}_bandwidth/ucx",
            goal=1.0,
        )
        for size in SIZES
    ),
    nanoseconds("fetch_add_ns_vs_ucx", "fetch_add/ours_stamped", "fetch_add/ucx", goal=1.0),
    bandwidth(
        "put_1MiB_GB/s_vs_memcpy",
        "put_1MiB_bandwidth/ours",
        "put_1MiB_bandwidth/plain",
        goal=0.95,
    ),
    bandwidth(
        "put_cold_GB/s_vs_memcpy", "put_cold_bandwidth/ours", "put_cold_bandwidth/plain", goal=0.95
    ),
    *(
        nanoseconds(
            f"put_{size}_latency_ns_vs_memcpy",
            f"put_{size}_latency/ours",
            f"put_{size}_latency/plain",
        )
        for size in SIZES
    ),
    *(
        bandwidth(
            f"put_{size}_GB/s_vs_memcpy",
            f"put_{size}_bandwidth/ours",
            f"put_{size}_bandwidth/plain",
        )
        for size in SIZES[:2]
    ),
    bandwidth(
        "put_64KiB_skewed_GB/s_vs_memcpy",
        "put_64KiB_skewed_bandwidth/ours",
        "put_64KiB_skewed_bandwidth/plain",
    ),
    nanoseconds("fetch_add_ns_vs_plain", "fetch_add/ours", "fetch_add/plain"),
    nanoseconds("host_call_put_8B_ns_vs_device", "put_8B_call/host", "put_8B_call/ours"),
    nanoseconds("host_call_fetch_add_ns_vs_device", "fetch_add/host", "fetch_add/ours"),
    resident("shmem"),
)

LATENCY_OF_NET = {"put_8B_quiet": 1 / 1.3, "put_8B_signal": None, "fetch_add": None}
SHMEM_NET = (
    *(
        nanoseconds(
            f"net_{what}_latency_ns_vs_raw_{kind}",
            f"{what}_latency/ours",
            f"{what}_latency/{raw}",
            goal=goal if kind == "blocking" else None,
        )
        for what, goal in LATENCY_OF_NET.items()
        for kind, raw in (("blocking", "raw"), ("spinning", "raw_spin"))
    ),
    nanoseconds(
        "net_put_8B_quiet_call_ns_vs_raw_blocking",
        "put_8B_quiet_latency/host",
        "put_8B_quiet_latency/raw",
        goal=1 / 1.3,
    ),
    bandwidth(
        "net_put_1MiB_GB/s_vs_raw", "put_1MiB_bandwidth/ours", "put_1MiB_bandwidth/raw", goal=0.9
    ),
    bandwidth(
        "net_put_1MiB_with_MAC_GB/s_vs_raw",
        "put_1MiB_bandwidth/ours_mac",
        "put_1MiB_bandwidth/raw_mac",
    ),
    Metric("net_put_8B_M/s", "put_8B_rate/ours", goal=1.0, unit=1e6, limit=1.0),
)

EP_HOST = (
    *(
        bandwidth(
            f"{what}_GB/s_vs_memcpy",
            f"{what}/ours",
            f"{what}/memcpy",
            "dispatch/memcpy_rows",
            goal=0.80,
        )
        for what in ("dispatch", "combine", "combine_external")
    ),
    nanoseconds("dispatch_1_token_2_ranks_ns", "dispatch_1_token/ours"),
    resident("ep"),
)
