"""Checks what benchmarks say, on known samples and on machines that lack what they need: lines, the
table, the file, and the reasons. Runs no benchmark.

usage: metric_test.py
"""

import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import compare
import gpu_benchmarks
import gpu_programs
import metric
import mps
from metric import Metric

SAMPLES = {"a/ours": [10.0, 20.0, 30.0], "a/x": [30.0], "a/y": [15.0]}
SLOWER = Metric("time", "a/ours", ("a/x", "a/y"), goal=0.9, less_is_better=True)
FASTER = Metric("rate", "a/ours", ("a/x", "a/y"), goal=0.6, unit=10.0)
LONELY = Metric("lonely", "a/ours", ("a/absent",), goal=1.0, optional=True)
SCRIPT = pathlib.Path(compare.__file__)


def refusal(call):
    """What the benchmark error says that the call must raise."""
    try:
        call()
    except metric.BenchmarkError as error:
        return str(error)
    return "nothing was refused"


class Lines(unittest.TestCase):
    def line(self, of):
        return metric.line(metric.judge(of, SAMPLES))

    def test_median_best_peer_and_ratio(self):
        assert self.line(SLOWER) == "metric=time ours=20 peer=15 ratio=0.75 goal=0.90 short"

    def test_rates(self):
        assert self.line(FASTER) == "metric=rate ours=2 peer=3 ratio=0.67 goal=0.60 ok"

    def test_the_goal_itself_is_reached(self):
        exact = dataclasses.replace(SLOWER, goal=0.75)
        assert self.line(exact).endswith("goal=0.75 ok")

    def test_no_peer(self):
        assert (
            self.line(Metric("alone", "a/ours")) == "metric=alone ours=20 peer=- ratio=- goal=- ok"
        )

    def test_a_limit_is_the_peer(self):
        limited = Metric("call", "a/ours", goal=1.0, less_is_better=True, limit=30.0)
        assert self.line(limited) == "metric=call ours=20 peer=30 ratio=1.50 goal=1.00 ok"

    def test_a_goal_without_peer_is_not_judged(self):
        assert self.line(LONELY) == "metric=lonely ours=20 peer=- ratio=- goal=1.00 unknown"

    def test_missing_samples(self):
        needed = dataclasses.replace(LONELY, optional=False)
        said = refusal(lambda: metric.judge(needed, SAMPLES))
        assert said == "lonely: there is no sample a/absent"
        absent = dataclasses.replace(LONELY, ours="b/ours")
        assert metric.judge(absent, SAMPLES) is None

    def test_table_and_record(self):
        outcomes = [metric.judge(of, SAMPLES) for of in (SLOWER, FASTER, LONELY)]
        assert list(metric.table(outcomes)) == [
            "| metric | ours | peer | ratio | goal | met |",
            "| --- | --- | --- | --- | --- | --- |",
            "| time | 20 | 15 | 0.75 | 0.90 | no |",
            "| rate | 2 | 3 | 0.67 | 0.60 | yes |",
            "| lonely | 20 | - | - | 1.00 | - |",
        ]
        assert metric.record(outcomes[0]) == {
            "metric": "time",
            "ours": 20.0,
            "peer": 15.0,
            "ratio": 0.75,
            "goal": 0.9,
            "reached": False,
        }


# --- The GPU benchmarks ---------------------------------------------------------------------------


def printed_names(source):
    """What the programs can print, as a pattern per WHAT that their sources name."""
    text = (gpu_programs.HERE / "gpu" / source).read_text()
    return set(re.findall(r'(?:time|print|measure_bulk|measure_graph)\(\s*"(\w+)"', text))


class GpuMetrics(unittest.TestCase):
    def test_names_are_unique(self):
        names = [of.name for benchmark in compare.BENCHMARKS.values() for of in benchmark.metrics]
        assert len(names) == len(set(names))

    def test_every_operation_is_measured_by_its_program(self):
        wanted = {of.ours.split("_bf16_")[0].split("_f8_")[0] for of in gpu_benchmarks.EP_GPU}
        operations = {name for name in wanted if not name.startswith(("call_", "python_"))}
        assert operations == printed_names("ep_gpu.cu")

    def test_ep_peers_are_compared_at_the_same_shape(self):
        shape = re.compile(r"(bf16|f8)_(\d+)_ep(\d)")
        for of in gpu_benchmarks.EP_GPU:
            for peer in of.peers:
                assert shape.findall(of.ours) == shape.findall(peer), of.name

    def test_shmem_peers_measure_the_same(self):
        for of in gpu_benchmarks.SHMEM_GPU:
            if of.name.endswith("_vs_nvshmem"):
                assert of.peers == (of.ours.replace("/ours", "/nvshmem"),)

    def test_shares_add_up_to_the_whole(self):
        for count in (2, 4, 8):
            share = int(mps.share({}, count)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"])
            assert share * count <= 100
            assert (share + 1) * count > 100


class Reasons(unittest.TestCase):
    """Machines without what a benchmark needs: empty folders instead of programs and packages."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def compare(self, *arguments):
        environment = {"PATH": str(self.folder)}
        command = [sys.executable, "-B", str(SCRIPT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    def fake(self, name, script):
        path = self.folder / name
        path.write_text(f"#!{sys.executable}\n{script}\n")
        path.chmod(0o755)

    def test_no_driver(self):
        done = self.compare("shmem-gpu", "ep-gpu", "--smoke")
        assert (done.returncode, done.stdout) == (1, "")
        for name in ("shmem-gpu", "ep-gpu"):
            assert f"{name}: skipped: there is no NVIDIA driver here" in done.stderr

    def test_no_gpu(self):
        self.fake("nvidia-smi", "print('No devices were found'); raise SystemExit(6)")
        done = self.compare("ep-gpu", "--smoke")
        assert "there is no NVIDIA GPU here (No devices were found)" in done.stderr

    def test_no_mps(self):
        self.fake("nvidia-smi", "print('GPU 0: a GPU')")
        done = self.compare("ep-gpu", "--smoke")
        assert done.returncode == 1
        assert "skipped: there is no nvidia-cuda-mps-control" in done.stderr

    def test_report_of_a_benchmark_that_did_not_run(self):
        target = self.folder / "below/report.json"
        self.compare("ep-gpu", "--smoke", "--json", str(target))
        assert json.loads(target.read_text())["benchmarks"] == {}

    def test_no_libraries(self):
        said = refusal(lambda: gpu_programs.find_library(self.folder, "ep"))
        assert said == f"there is no libmori-ep.so below {self.folder}"

    def test_no_nvshmem(self):
        said = refusal(lambda: gpu_programs.find_nvshmem(self.folder))
        assert said == f"there is no NVSHMEM in {self.folder}"

    def test_version_of_nvshmem(self):
        header = self.folder / "include/non_abi/nvshmem_version.h"
        header.parent.mkdir(parents=True)
        words = zip(("MAJOR", "MINOR", "PATCH"), (3, 4, 5), strict=True)
        header.write_text(
            "".join(f"#define NVSHMEM_VENDOR_{word}_VERSION {number}\n" for word, number in words)
        )
        library = self.folder / "lib/libnvshmem_device.a"
        library.parent.mkdir()
        library.touch()
        assert gpu_programs.find_nvshmem(self.folder).version == "3.4.5"


if __name__ == "__main__":
    unittest.main()
