"""Nodes on one machine: network namespaces that a virtual cable joins, and PEs in them."""

import contextlib
import os
import shutil
import subprocess

from cases import SkipError
from processes import Crew, Process


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=20)
    if done.returncode != 0:
        raise SkipError(f"ip {' '.join(words)}: {done.stderr.strip()}")


@contextlib.contextmanager
def two_namespaces():
    """Names of two network namespaces with an address each; the cable is `cable` in both."""
    if os.geteuid() != 0:
        raise SkipError("needs root to make network namespaces")
    if shutil.which("ip") is None:
        raise SkipError("there is no ip command (iproute2)")
    names = [f"mori-{os.getpid()}-{side}" for side in "ab"]
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        pair = ["type", "veth", "peer", "name", "cable", "netns", names[1]]
        ip("-n", names[0], "link", "add", "cable", *pair)
        for side, name in enumerate(names):
            ip("-n", name, "addr", "add", f"10.213.7.{side + 1}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=20)


class NodesCrew(Crew):
    """PEs 0 and 1 in one namespace, 2 and 3 in the other. Without a prefix `ip` in between, so that
    a process is the PE itself."""

    def __init__(self, namespaces, own_node_ids=True, **environment):
        self.environment = None
        self.members = []
        for pe in range(4):
            side = pe // 2
            node = {"MORI_NODE_ID": f"node-{side}"} if own_node_ids else {}
            prefix = ("ip", "netns", "exec", namespaces[side])
            self.members.append(Process({**node, **environment}, prefix))
