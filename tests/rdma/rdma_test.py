#!/usr/bin/env python3
"""RDMA on a real kernel's software device: starts emulated machines (vm.sh) and runs the test
programs of a build inside them, on one node or on two. README.md says what this shows and what not.

usage: rdma_test.py BUILD_FOLDER [--full] [--only TITLE]      --full: longer, and more of the same
"""

import argparse
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OUT_OF_TIME = 124
NOT_STARTED, STARTS = 123, 3


class CaseError(Exception):
    pass


def expect(condition, text):
    if not condition:
        raise CaseError(text)


@dataclasses.dataclass
class Ran:
    code: int
    out: str
    err: str


def in_guest(command, nodes=1, timeout_s=240, **environment):
    """Runs a command, a list, in `nodes` guests at once."""
    settings = {"RDMA_VM_NODES": str(nodes), "RDMA_VM_TIMEOUT_S": str(timeout_s), **environment}
    for left in reversed(range(STARTS)):
        done = subprocess.run(
            ["bash", str(HERE / "vm.sh"), *map(str, command)],
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s + 60,
        )
        if done.returncode != NOT_STARTED or left == 0:
            break
        print("# a machine did not come up; once more", flush=True)
    return Ran(done.returncode, done.stdout, done.stderr)


# --- The machines themselves.


def machine_gives_back_what_a_command_does(_):
    ran = in_guest(["bash", "-c", "rdma link; echo aside >&2; exit 7"])
    expect(ran.code == 7, f"exit code {ran.code}, not 7\n{ran.out}{ran.err}")
    expect("rxe0/1 state ACTIVE" in ran.out, f"no active RDMA device: {ran.out}{ran.err}")
    expect("aside" in ran.err and "aside" not in ran.out, f"stderr apart: {ran.out!r} {ran.err!r}")


def machine_that_does_not_come_up_is_told_apart(_):
    # No kernel starts in so short a time.
    ran = in_guest(["true"], RDMA_VM_BOOT_S="1")
    expect(ran.code == NOT_STARTED, f"exit code {ran.code}, not {NOT_STARTED}: {ran.err}")
    expect("node 0 did not come up within 1 s" in ran.err, f"it does not say so: {ran.err}")


def machines_of_two_nodes_reach_each_other(_):
    script = (
        'echo "node $RDMA_VM_NODE is $RDMA_VM_IP"; for i in 1 2 3 4 5; do '
        'busybox ping -c 1 -W 2 "$RDMA_VM_PEER_IP" >/dev/null && exit 0; done; exit 1'
    )
    ran = in_guest(["bash", "-c", script], nodes=2)
    expect(ran.code == 0, f"exit code {ran.code}\n{ran.out}{ran.err}")
    for line in ("node 0 is 10.77.0.1", "node 1 is 10.77.0.2"):
        expect(line in ran.out, f"no line '{line}' in: {ran.out}")


def machine_that_does_not_end_is_ended(_):
    since = time.monotonic()
    ran = in_guest(["sleep", "600"], timeout_s=3)
    expect(ran.code == OUT_OF_TIME, f"exit code {ran.code}, not {OUT_OF_TIME}: {ran.err}")
    expect("out of time after 3 s" in ran.err, f"it does not say so: {ran.err}")
    expect(time.monotonic() - since < 30, f"took {time.monotonic() - since:.0f} s")


# --- The link layer: devices, queue pairs, endpoints.

DOCTEST = re.compile(r"test cases: +\d+ \| +(\d+) passed \| +(\d+) failed")
LINK_TESTS = "subprojects/mori-link/tests"


def link_layer_on_one_node(build):
    """Prints doctest's closing lines, which are counted."""
    ran = in_guest([build / LINK_TESTS / "link_endpoint_test", "--no-intro"])
    expect(ran.code == 0 and DOCTEST.search(ran.out), f"exit code {ran.code}\n{ran.out}{ran.err}")
    print("\n".join(line for line in ran.out.splitlines() if line.startswith("[doctest] test")))


def two_nodes(build, scenario, before=""):
    """Runs the program of endpoints on both nodes, after a shell command; returns what it says."""
    program = build / LINK_TESTS / "endpoint_program"
    script = f"{before or ':'} && exec {program} $RDMA_VM_NODE $RDMA_VM_PEER_IP {scenario}"
    ran = in_guest(["bash", "-c", script], nodes=2)
    expect(ran.code == 0, f"exit code {ran.code}\n{ran.out}{ran.err}")
    return ran.out


def link_layer_on_two_nodes(build):
    out = two_nodes(build, "plain")
    expect("160 done, byte-exact, 0 recoveries" in out, out)


def link_layer_on_two_nodes_that_lose_packets_and_begin_anew(build):
    out = two_nodes(build, "break", "tc qdisc add dev eth0 root netem loss 2%")
    found = re.search(r"120 done, byte-exact, (\d+) recoveries", out)
    expect(found and int(found[1]) > 0, out)


def peer_that_dies_in_the_middle(build):
    out = two_nodes(build, "killed")
    expect("node 1: dies" in out, out)
    expect(re.search(r"node 0: \d+ done, [1-9]\d* failed, noticed after", out), out)
    expect("the peer does not answer" in out, out)


def packets_are_lost_and_nothing_else(build):
    out = two_nodes(build, "plain", "tc qdisc add dev eth0 root netem loss 2%")
    expect("160 done, byte-exact" in out, out)


def nodes_begin_anew_ten_times(build):
    for _ in range(10):
        expect("120 done, byte-exact" in two_nodes(build, "break"), "not byte-exact")


CASES = [
    machine_that_does_not_end_is_ended,
    machine_that_does_not_come_up_is_told_apart,
    machine_gives_back_what_a_command_does,
    link_layer_on_one_node,
    link_layer_on_two_nodes,
    link_layer_on_two_nodes_that_lose_packets_and_begin_anew,
    peer_that_dies_in_the_middle,
]
FULL_CASES = [
    machines_of_two_nodes_reach_each_other,
    packets_are_lost_and_nothing_else,
    nodes_begin_anew_ten_times,
]


# --- Running them.


def reason_to_skip():
    """Installs what is missing and fetches the kernel; why there can be no guest, or None."""
    for command in (
        ["bash", "tests/packages.sh", "rdma"],
        ["bash", "tests/rdma/vm.sh", "prepare"],
    ):
        done = subprocess.run(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode != 0:
            lines = (done.stdout + done.stderr).strip().splitlines() or ["it says nothing"]
            return f"`{' '.join(command)}` failed: {lines[-1]}"
    return None


def run_case(case, build):
    title = case.__name__.replace("_", " ")
    since = time.monotonic()
    try:
        case(build)
    except (CaseError, subprocess.TimeoutExpired) as problem:
        print(f"not ok - {title} ({time.monotonic() - since:.1f} s)\n{problem}", flush=True)
        return False
    print(f"ok - {title} ({time.monotonic() - since:.1f} s)", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", metavar="TITLE", help="cases whose title has this in it")
    arguments = parser.parse_args()
    if reason := reason_to_skip():
        print(f"skip - rdma: {reason}")
        return 0
    cases = CASES + (FULL_CASES if arguments.full else [])
    wanted = [c for c in cases if (arguments.only or "") in c.__name__.replace("_", " ")]
    good = [run_case(case, arguments.build.resolve()) for case in wanted]
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
