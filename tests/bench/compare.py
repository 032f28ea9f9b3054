"""Runs the benchmarks and prints how the libraries compare with their peers, one line a metric:

    metric=put_8B_latency_ns_vs_ucx ours=123 peer=140 ratio=1.14 goal=1.00 ok

`ratio` is the speed of ours over that of the peer, whatever the unit; `goal` is the ratio to reach,
or `-` where a line only informs; the last word is `short` where the goal is not reached, which is
no failure. Values are medians over rounds in which ours and the peer take turns. What is measured,
and which bytes count, is said in shmem_host.cpp and ep_host.cpp.

compare.sh sets up what this needs.
"""

import argparse
import collections
import dataclasses
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

LIMIT_S = 200  # of one program
MIB = 1 << 20


class BenchmarkError(Exception):
    """A benchmark could not run."""


@dataclasses.dataclass(frozen=True)
class Metric:
    name: str
    ours: str  # name of a sample
    peers: tuple = ()  # names of samples; the fastest of them is the peer
    goal: float | None = None
    less_is_better: bool = False
    unit: float = 1.0  # samples are divided by it
    limit: float | None = None  # peer is this number instead


def nanoseconds(name, ours, *peers, goal=None):
    return Metric(name, ours, peers, goal, less_is_better=True)


def bandwidth(name, ours, *peers, goal=None):
    return Metric(name, ours, peers, goal, unit=1e9)


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


def parse_ucx(text):
    """Samples of one batch's CSV, whose first column is headed by the batch file's name."""
    lines = [line for line in text.splitlines() if "," in line]
    columns = lines[0].split(",")[1:] if lines else []
    rows = {}
    for line in lines[1:]:
        name, *values = (value.strip() for value in line.split(","))
        rows[name] = dict(zip(columns, values, strict=True))
    missing = [name for name in UCX_TESTS if name not in rows]
    if missing:
        raise BenchmarkError(f"ucx_perftest gave no {', '.join(missing)}:\n{text}")
    return {name: test.sample(rows[name]) for name, test in UCX_TESTS.items()}


def run_ucx(smoke):
    """All tests by one pair of processes on two cores."""
    cores = sorted(os.sched_getaffinity(0))
    port = free_port()
    environment = {"UCX_TLS": UCX_TRANSPORTS, **os.environ}
    with tempfile.NamedTemporaryFile("w", suffix=".batch") as batch:
        for name, test in UCX_TESTS.items():
            batch.write(f"{name} {test.arguments(smoke)}\n")
        batch.flush()
        common = ["ucx_perftest", "-p", str(port), "-b", batch.name]
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
            deadline = time.monotonic() + 20
            while not is_listening(port):
                if time.monotonic() > deadline or server.poll() is not None:
                    raise BenchmarkError("the server of ucx_perftest did not come up")
                time.sleep(0.02)
            client = [*common, "-c", str(cores[-1]), "-f", "-v", "127.0.0.1"]
            text = run_program(client, environment)
            server.wait(20)
        finally:
            if server.poll() is None:
                server.kill()
            server.wait()
    return parse_ucx(text)


# --- Our programs ---------------------------------------------------------------------------------


def run_program(command, environment=None):
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchmarkError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        raise BenchmarkError(f"{command[0]}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def parse_samples(text):
    """NAME VALUE lines; pairs, as a name may come once a round."""
    for line in text.splitlines():
        name, value = line.split()
        yield name, float(value)


def sample_shmem_host(programs, rounds, smoke):
    samples = collections.defaultdict(list)
    for _ in range(rounds):
        command = [str(programs / "shmem_host"), *(["--smoke"] if smoke else [])]
        for name, value in parse_samples(run_program(command)):
            samples[name].append(value)
        for name, value in run_ucx(smoke).items():
            samples[f"{name}/ucx"].append(value)
    return samples


def sample_ep_host(programs, rounds, smoke):
    command = [str(programs / "ep_host"), str(rounds), *(["--smoke"] if smoke else [])]
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

BENCHMARKS = {"shmem-host": (sample_shmem_host, SHMEM_HOST), "ep-host": (sample_ep_host, EP_HOST)}


def line(metric, samples):
    """The metric's line; the peer is the one whose median is best."""

    def median(name):
        if name not in samples:
            raise BenchmarkError(f"{metric.name}: there is no sample {name}")
        return statistics.median(samples[name]) / metric.unit

    ours = median(metric.ours)
    best = min if metric.less_is_better else max
    peer = metric.limit
    if metric.peers:
        peer = best(median(name) for name in metric.peers)
    ratio = None
    if peer is not None:
        ratio = peer / ours if metric.less_is_better else ours / peer
    show = {"ours": ours, "peer": peer}
    words = [f"metric={metric.name}"]
    words += [f"{key}={'-' if value is None else f'{value:.4g}'}" for key, value in show.items()]
    words.append("ratio=-" if ratio is None else f"ratio={ratio:.2f}")
    words.append("goal=-" if metric.goal is None else f"goal={metric.goal:.2f}")
    reached = metric.goal is None or ratio >= metric.goal
    return " ".join([*words, "ok" if reached else "short"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", metavar="NAME", help=f"all, {', '.join(BENCHMARKS)}")
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="folder of the builds")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: does it still run?")
    options = parser.parse_args()
    names = list(BENCHMARKS) if "all" in options.names else options.names
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    load = os.getloadavg()[0]
    if load > 0.5 and not options.smoke:
        print(f"the machine is not quiet (load {load:.1f}): ratios will be rough", file=sys.stderr)
    failed = False
    for name in names:
        sample, metrics = BENCHMARKS[name]
        try:
            samples = sample(
                options.programs, 1 if options.smoke else options.rounds, options.smoke
            )
            for metric in metrics:
                print(line(metric, samples), flush=True)
        except BenchmarkError as error:
            print(f"{name}: could not run: {error}", file=sys.stderr)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
