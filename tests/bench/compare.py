"""Runs the benchmarks and prints how the libraries compare with their peers, one line a metric:

    metric=put_8B_latency_ns_vs_ucx ours=123 peer=140 ratio=1.14 goal=1.00 ok

`ratio` is the speed of ours over that of the peer, whatever the unit; `goal` is the ratio to reach,
or `-` where a line only informs; the last word is `short` where the goal is not reached, which is
no failure, and `unknown` where there was nothing to compare with. Values are medians over rounds in
which ours and the peer take turns. A table of all metrics follows, as docs/performance.md has it.

compare.sh sets up what this needs.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import typing

import gpu_benchmarks
import gpu_programs
import host_benchmarks
import io_benchmarks
from metric import BenchmarkError, UnavailableError, judge, line, record, table


@dataclasses.dataclass(frozen=True)
class Benchmark:
    sample: typing.Callable  # options -> samples: values by name
    metrics: tuple
    programs: tuple = ()  # GPU programs that it is made of


BENCHMARKS = {
    "shmem-host": Benchmark(host_benchmarks.sample_shmem_host, host_benchmarks.SHMEM_HOST),
    "shmem-net": Benchmark(host_benchmarks.sample_shmem_net, host_benchmarks.SHMEM_NET),
    "ep-host": Benchmark(host_benchmarks.sample_ep_host, host_benchmarks.EP_HOST),
    "io-shm": Benchmark(io_benchmarks.sample_io_shm, io_benchmarks.IO_SHM),
    "io-tcp": Benchmark(io_benchmarks.sample_io_tcp, io_benchmarks.IO_TCP),
    "io-peers": Benchmark(io_benchmarks.sample_io_peers, io_benchmarks.IO_PEERS),
    "shmem-gpu": Benchmark(
        gpu_benchmarks.sample_shmem_gpu, gpu_benchmarks.SHMEM_GPU, ("shmem_ours", "shmem_nvshmem")
    ),
    "ep-gpu": Benchmark(gpu_benchmarks.sample_ep_gpu, gpu_benchmarks.EP_GPU, ("ep_gpu",)),
    "ir-gpu": Benchmark(gpu_benchmarks.sample_ir_gpu, gpu_benchmarks.IR_GPU, ("ir_native",)),
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", metavar="NAME", help=f"all, {', '.join(BENCHMARKS)}")
    parser.add_argument("--json", type=pathlib.Path, help="file for outcomes and all samples")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: does it still run?")
    host = parser.add_argument_group("host benchmarks")
    host.add_argument("--programs", type=pathlib.Path, help="folder of the host programs")
    host.add_argument("--rounds", type=int, default=9)
    gpu = parser.add_argument_group("GPU benchmarks")
    gpu.add_argument("--quick", action="store_true", help="fewer samples: all in three minutes")
    gpu.add_argument("--build", type=pathlib.Path, help="folder below which our libraries are")
    gpu.add_argument("--nvshmem", type=pathlib.Path, help="NVSHMEM's folder (include, lib)")
    gpu.add_argument("--arch", default="", help="as nvcc -arch; default: the GPU's")
    gpu.add_argument("--compile-only", action="store_true", help="build the GPU programs and stop")
    tuning = parser.add_argument_group("ep-gpu, for tuning")
    tuning.add_argument("--ranks", type=int, action="append", choices=(2, 4, 8))
    tuning.add_argument("--tokens", type=int)
    tuning.add_argument("--blocks", type=int)
    tuning.add_argument("--warps", type=int)
    tuning.add_argument("--only", help="time only what has this text in its name")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in (*BENCHMARKS, "all")]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    for name in ("build", "nvshmem"):
        if (folder := getattr(options, name)) is not None:
            setattr(options, name, folder.resolve())
    return options


def warn_of_load(options):
    load = os.getloadavg()[0]
    if load > 0.5 and not options.smoke:
        print(f"the machine is not quiet (load {load:.1f}): ratios will be rough", file=sys.stderr)


def machine():
    """What the figures were taken on, as far as it is easily told."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        gpus = subprocess.run(query, capture_output=True, text=True, timeout=20).stdout.split("\n")
    except (OSError, subprocess.TimeoutExpired):
        gpus = []
    return {
        "cores": os.cpu_count(),
        "gpus": [name for name in gpus if name],
        "load": os.getloadavg(),
    }


# --- The commands ---------------------------------------------------------------------------------


def compile_programs(names, options):
    """Builds what the GPU benchmarks among the names need; NVSHMEM may be missing."""
    builder = gpu_programs.Builder(options.build, options.nvshmem, arch=options.arch)
    failed = False
    for program in dict.fromkeys(word for name in names for word in BENCHMARKS[name].programs):
        try:
            print(builder.make([program])[program], flush=True)
        except UnavailableError as reason:
            print(f"{program}: not built: {reason}", file=sys.stderr)
        except BenchmarkError as error:
            print(f"{program}: {error}", file=sys.stderr)
            failed = True
    return 1 if failed else 0


def measure(name, options):
    """Outcomes of one benchmark, each printed as soon as all are known, and its samples."""
    samples = BENCHMARKS[name].sample(options)
    outcomes = [judge(metric, samples) for metric in BENCHMARKS[name].metrics]
    outcomes = [outcome for outcome in outcomes if outcome is not None]
    for outcome in outcomes:
        print(line(outcome), flush=True)
    return outcomes, samples


def run(names, options):
    failed, all_outcomes, report = False, [], {}
    for name in names:
        try:
            outcomes, samples = measure(name, options)
        except UnavailableError as reason:
            # Who names it wants it; of `all`, a machine has what it has.
            print(f"{name}: skipped: {reason}", file=sys.stderr)
            failed |= name in options.names
            continue
        except BenchmarkError as error:
            print(f"{name}: could not run: {error}", file=sys.stderr)
            failed = True
            continue
        all_outcomes += outcomes
        report[name] = {"metrics": [record(outcome) for outcome in outcomes], "samples": samples}
    if all_outcomes and not options.smoke:
        print("", *table(all_outcomes), sep="\n", flush=True)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        written = {"machine": machine(), "benchmarks": report}
        options.json.write_text(json.dumps(written, indent=1) + "\n")
    return 1 if failed else 0


def main():
    options = parse_arguments()
    names = list(BENCHMARKS) if "all" in options.names else options.names
    if options.compile_only:
        return compile_programs(names, options)
    warn_of_load(options)
    return run(names, options)


if __name__ == "__main__":
    sys.exit(main())
