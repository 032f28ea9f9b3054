#!/usr/bin/env python3
"""Runs the kernels' AMD code objects on this machine's processor, by an emulator over a source tree
of tinygrad that TINYGRAD_TREE names, both architectures side by side. README.md says how to get a
tree and what a pass is worth. When all passed, record.json says what ran; commit it.

usage: execution.py BUILD_FOLDER        in the environment, all optional:
    MORI_TEST_LONG=1    ten times as many random schedules
    MORI_TEST_SEED=N    that schedule alone        MORI_TEST_CASE=TITLE    that case alone
"""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

import record
from code_object import CodeObject
from emulator.decoder import TREE

HERE = pathlib.Path(__file__).resolve().parent
TESTS = ("shmem_test.py", "ep_test.py", "io_test.py")
ARCHITECTURES = ("gfx942", "gfx950")


def reason_to_skip(build):
    tree = os.environ.get(TREE)
    if not tree:
        return f"{TREE} names no source tree of tinygrad; see tests/amd/README.md"
    if not pathlib.Path(tree, "test/mockgpu/amd/emu.py").exists():
        return f"{TREE}={tree} is no source tree of tinygrad: it has no test/mockgpu/amd/emu.py"
    if not record.objects_of(build):
        return "no code objects for AMD GPUs were compiled"
    return None


def library(build, name):
    (path,) = (p for p in record.outputs(build) if p.name == f"lib{name}.so")
    return str(path)


class Runner:
    """All tests of one architecture, one after the other."""

    def __init__(self, build, architecture):
        self.build, self.architecture = build, architecture
        self.environment = dict(os.environ)
        self.environment.setdefault("CACHEDB", str(build / f"tinygrad-{architecture}.db"))
        self.output, self.good, self.ran = "", True, []

    def run(self, script, *arguments):
        command = [sys.executable, "-B", str(HERE / script), *map(str, arguments)]
        done = subprocess.run(
            command,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.output += done.stdout
        if done.returncode != 0:
            self.output += f"not ok - {script}, {self.architecture}: exit code {done.returncode}\n"
            self.good = False

    def run_all(self):
        emulator = library(self.build, "amd-emulator")
        host = library(self.build, "amd-host")
        probes = [p for p in record.outputs(self.build) if p.name.startswith("probe_kernels-")]
        self.run("emulator/probe_test.py", emulator, *self.mine(probes))
        bitcode = [path for path in record.outputs(self.build) if path.suffix == ".bc"]
        bitcode = self.mine([path for path in bitcode if path.exists()])
        if bitcode:
            self.run("bitcode_test.py", emulator, *bitcode)
        for script in TESTS:
            ran = self.build / f"{script.removesuffix('.py')}-{self.architecture}.json"
            ran.unlink(missing_ok=True)
            objects = self.mine(record.objects_of(self.build))
            self.run(script, host, emulator, ran, *objects)
            if ran.exists():
                self.ran += json.loads(ran.read_text())
        return self

    def mine(self, paths):
        return [path for path in paths if self.architecture in path.name]


def is_whole():
    """Whether everything ran that belongs into the record."""
    return not {"MORI_TEST_SEED", "MORI_TEST_CASE"} & set(os.environ)


def update_record(build, runners):
    ran = [entry for runner in runners for entry in runner.ran]
    objects = [CodeObject.read(path) for path in record.objects_of(build)]
    missing = list(record.kernels_not_run(objects, ran))
    for name in missing:
        print(f"not ok - {name} was not executed")
    if missing or not is_whole():
        return not missing
    record.write(ran, os.environ[TREE])
    return True


def main(build):
    if reason := reason_to_skip(build):
        print(f"skip - AMD code objects are not executed: {reason}")
        return 0
    subprocess.run(["ninja", "-C", str(build), "-j2", "amd-host"], check=True)
    runners = [Runner(build, architecture) for architecture in ARCHITECTURES]
    with concurrent.futures.ThreadPoolExecutor(len(runners)) as pool:
        for runner in pool.map(Runner.run_all, runners):
            print(runner.output, end="", flush=True)
    good = all(runner.good for runner in runners)
    return 0 if good and update_record(build, runners) else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
