"""`mori doctor`: each check of a node over a made-up file system, pairs over loopback, and what a
side says when the other is something else."""

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import threading

import pytest
from mori.doctor import node, pair
from mori.doctor.node import Node

PLENTY = "MemTotal: 99000000 kB\nMemAvailable: 50000000 kB\n"


@pytest.fixture
def made(tmp_path):
    """Makes a node of these files, settings, limits and loadable libraries."""

    def make(files=None, environment=None, limit=resource.RLIM_INFINITY, libraries=()):
        for path, text in (files or {}).items():
            target = tmp_path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        return Node(tmp_path, environment or {}, lambda _: limit, lambda name: name in libraries)

    return make


IB = "sys/class/infiniband/mlx5_0/ports/1/state"
NVIDIA = {"dev/nvidia0": "", "dev/nvidiactl": ""}
SCOPE = "proc/sys/kernel/yama/ptrace_scope"
PAGES = "sys/kernel/mm/transparent_hugepage/shmem_enabled"
CASES = [
    # check, files, what more the node has, state, part of what is found, part of the fix
    (node.memory, {"proc/meminfo": PLENTY}, {}, "ok", "48 GiB free, a heap may take 4096 MiB", ""),
    (
        node.memory,
        {"proc/meminfo": PLENTY},
        {"environment": {"MORI_SHMEM_HEAP_SIZE": "100G"}},
        "warn",
        "may take 100 GiB per PE",
        "MORI_SHMEM_HEAP_SIZE",
    ),
    (
        node.memory,
        {
            "proc/meminfo": PLENTY,
            "sys/fs/cgroup/memory.max": "1073741824\n",
            "sys/fs/cgroup/memory.current": "536870912\n",
        },
        {},
        "warn",
        "512 MiB free",
        "higher memory limit",
    ),
    (
        node.memory,
        {"proc/meminfo": PLENTY, "sys/fs/cgroup/memory.max": "max\n"},
        {"environment": {"MORI_SHMEM_HEAP_SIZE": "lots"}},
        "fail",
        "MORI_SHMEM_HEAP_SIZE is 'lots'",
        "512MiB",
    ),
    (node.memory, {}, {}, "skip", "does not say", ""),
    (node.locked_memory, {}, {}, "ok", "no limit", ""),
    (node.locked_memory, {}, {"limit": 8 << 20}, "ok", "8 MiB", ""),
    (node.locked_memory, {IB: "4: ACTIVE"}, {"limit": 8 << 20}, "fail", "8 MiB", "memlock=-1"),
    (node.locked_memory, {IB: "4: ACTIVE"}, {"limit": 64 << 20}, "ok", "64 MiB", ""),
    (node.descriptors, {}, {"limit": 4096}, "ok", "4096", ""),
    (node.descriptors, {}, {"limit": 4095}, "warn", "4095", "ulimit -n 4096"),
    (node.huge_pages, {PAGES: "always within_size [advise] never"}, {}, "ok", "advise", ""),
    (node.huge_pages, {PAGES: "always advise [never] deny"}, {}, "warn", "never", "echo advise"),
    (node.huge_pages, {}, {}, "skip", "none for shared memory", ""),
    (node.attach, {}, {}, "ok", "0 or absent", ""),
    (node.attach, {SCOPE: "0\n"}, {}, "ok", "0 or absent", ""),
    (node.attach, {SCOPE: "2\n"}, {}, "warn", "ptrace_scope is 2", "SYS_PTRACE"),
    (node.gpu, {"dev/nvidiactl": ""}, {}, "skip", "no GPU", ""),
    (node.gpu, NVIDIA, {"libraries": ("libcuda.so.1",)}, "ok", "NVIDIA driver", ""),
    (node.gpu, {**NVIDIA, "dev/kfd": ""}, {}, "fail", "NVIDIA and AMD", "--gpus all"),
    (node.gpu, {"dev/kfd": ""}, {"libraries": ("libamdhip64.so.6",)}, "ok", "AMD driver", ""),
    (node.mps, {}, {}, "skip", "no NVIDIA GPU", ""),
    (node.mps, NVIDIA, {}, "warn", "not running", "nvidia-cuda-mps-control -d"),
    (node.mps, {**NVIDIA, "tmp/nvidia-mps/control": ""}, {}, "ok", "/tmp/nvidia-mps", ""),
    (
        node.mps,
        {**NVIDIA, "run/mps/control": ""},
        {"environment": {"CUDA_MPS_PIPE_DIRECTORY": "/run/mps"}},
        "ok",
        "/run/mps",
        "",
    ),
    (node.rdma, {}, {}, "skip", "over TCP", ""),
    (node.rdma, {IB: "4: ACTIVE"}, {}, "fail", "mlx5_0, no libibverbs", "libibverbs1"),
    (
        node.rdma,
        {IB: "4: ACTIVE"},
        {"libraries": ("libibverbs.so.1",)},
        "ok",
        "mlx5_0/1 ACTIVE",
        "",
    ),
    (node.rdma, {IB: "1: DOWN"}, {"libraries": ("libibverbs.so.1",)}, "warn", "1 DOWN", "no port"),
    (node.interface, {"sys/class/net/lo/operstate": "unknown"}, {}, "warn", "loopback alone", ""),
    (node.interface, {"sys/class/net/eth0/operstate": "up"}, {}, "ok", "eth0 up", ""),
    (node.interface, {"sys/class/net/eth1/operstate": "down"}, {}, "ok", "eth0 up, eth1 down", ""),
    (
        node.interface,
        {},
        {"environment": {"MORI_SOCKET_IFNAME": "ib0"}},
        "fail",
        "'ib0', no such interface",
        "one of eth0, eth1",
    ),
    (
        node.settings,
        {},
        {"environment": {"MORI_LOGLEVEL": "info", "MORI_TEST_LONG": "1", "HOME": "x"}},
        "warn",
        "MORI_LOGLEVEL",
        "perhaps MORI_LOG_LEVEL",
    ),
    (node.settings, {}, {"environment": {"MORI_NODE_ID": "1"}}, "ok", "MORI_NODE_ID", ""),
]


@pytest.mark.parametrize(("check", "files", "more", "state", "found", "fix"), CASES)
def test_node(made, check, files, more, state, found, fix):
    if check is node.interface and "lo" not in "".join(files):
        files = {"sys/class/net/eth0/operstate": "up", **files}
        files = {"sys/class/net/eth1/operstate": "down", **files} if fix else files
    answer = check(made(files, **more))
    assert (answer.state, found in answer.found, fix in answer.fix) == (state, True, True), answer
    # Whoever reads that something is wrong is told what to do.
    assert (state in ("ok", "skip")) != bool(answer.fix)


def test_shared_memory(made, monkeypatch):
    def of(blocks):
        facts = os.statvfs_result((4096, 4096, blocks, blocks, blocks, 0, 0, 0, 0, 255))
        monkeypatch.setattr(node.os, "statvfs", lambda path: facts)

    of((256 << 20) // 4096)
    assert node.shared_memory(made()).state == "ok"
    of((64 << 20) // 4096)
    answer = node.shared_memory(made())
    assert (answer.name, answer.state, answer.found) == ("/dev/shm", "warn", "64 MiB, 64 MiB free")
    chosen = {"MORI_SHMEM_HEAP_DIR": "/mnt/heap"}
    answer = node.shared_memory(made(environment=chosen))
    assert (answer.name, answer.state) == ("/mnt/heap", "fail")
    monkeypatch.undo()
    answer = node.shared_memory(made(environment=chosen))
    assert (answer.state, answer.found) == ("fail", "No such file or directory")


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("4G", 4 << 30), ("512MiB", 512 << 20), ("64m", 64 << 20), ("7", 7), ("G", None), ("", None)],
)
def test_heap_sizes(text, bytes_):
    assert node.heap_bytes(text) == bytes_


# Two nodes


def both(monkeypatch=None):
    """What the listener and the connector of one pair find."""
    port, found = threading.Event(), {}

    def ready(number):
        found["port"] = number
        port.set()

    def listener():
        found["listener"] = pair.listen("127.0.0.1:0", 20, ready)

    thread = threading.Thread(target=listener)
    thread.start()
    assert port.wait(10)
    found["connector"] = pair.connect(f"127.0.0.1:{found['port']}")
    thread.join(20)
    return found["listener"], found["connector"]


def by_name(answers):
    return {one.name: one for one in answers}


def test_pair():
    listener, connector = map(by_name, both())
    assert list(connector) == ["peer", "versions", "clocks", "ports there", "ports here"]
    assert list(listener) == ["peer", "versions", "clocks", "ports there"]
    assert {one.state for one in (*listener.values(), *connector.values())} == {"ok"}
    assert "3 of 3" in connector["ports here"].found


def test_what_differs():
    own = {"machine": "x86_64", "versions": {"shmem": "0.3.0", "io": "0.2.0"}}
    other = {
        "machine": "aarch64",
        "host": "a\x1b[2J",
        "versions": {"shmem": "0.2.0", "io": "0.2.0"},
    }
    answers = by_name(pair._judge(own, other, 1e-4, -2.5))
    assert answers["peer"].found == "a?[2J, round trip 100 us"
    assert answers["versions"].state == "fail"
    assert answers["versions"].found == "shmem 0.3.0 and 0.2.0"
    assert answers["machine"].state == "fail"
    assert answers["clocks"].state == "warn"
    assert answers["clocks"].found == "the other is 2500.0 ms behind"
    blocked = pair._ports_answer("ports there", [40001, 40002])
    assert blocked.state == "fail"
    assert "2 of 3 ports not reached: [40001, 40002]" in blocked.found
    assert "ip_local_port_range" in blocked.fix


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (b"SSH-2.0-OpenSSH\n", "is no `mori doctor`"),
        (b'{"doctor": 99}\n', "is no `mori doctor` of this release"),
        (b"[1]\n", "is no `mori doctor`"),
        (b"", "has closed the connection"),
        (b"x" * 100000, "lines that are too long"),
        (b'{"doctor": 1}\n{"clock_s": "noon"}\n', "says what no `mori doctor` says"),
        (b'{"doctor": 1}\n{"clock_s": null}\n', "says what no `mori doctor` says"),
    ],
)
def test_something_else_listens(said, message):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection, contextlib.suppress(ConnectionError):
                connection.sendall(said)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    """Until the other side has closed."""

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(pair.PairError, match=message):
            pair.connect(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join(20)


def doctor(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "mori", "doctor", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_command():
    done = doctor("--json")
    report = json.loads(done.stdout)
    assert report["node"][0]["name"] == "memory"
    assert len(report["node"]) == len(node.CHECKS)
    failed = any(one["state"] == "fail" for one in report["node"])
    assert report["ok"] is not failed
    assert done.returncode == int(failed)
    assert "this node\n" in doctor().stdout


def test_nobody_there():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    done = doctor("--connect", f"127.0.0.1:{port}")
    assert done.returncode == 1
    assert f"refused; run `mori doctor --listen {port}` there" in done.stderr
    done = doctor("--listen", "127.0.0.1:0", "--wait", "0.2")
    assert done.returncode == 1
    assert "nobody has connected within 0.2 s" in done.stderr


@pytest.mark.parametrize("arguments", [["--listen"], ["--listen", "1", "--connect", "a:1"]])
def test_wrong_use(arguments):
    done = doctor(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_an_address_that_is_none():
    done = doctor("--connect", "nowhere")
    assert done.returncode == 1
    assert "'nowhere' is not HOST:PORT" in done.stderr
