#!/usr/bin/env python3
"""Two nodes on one machine: network namespaces joined by a virtual cable. PEs join across it, know
what they cannot reach by shared memory, reach it by the network, and notice when the cable is
cut."""

import sys
import time

import cases
import statuses
from cases import case
from namespaces import NodesCrew, ip, two_namespaces
from processes import CLOSED_S, expect, names_pe

BEAT_MS = 1000


def expect_only_own_node(crew):
    """P2P and mapped within the node; not mapped but reachable across, and it says why."""
    for pe, process in enumerate(crew.members):
        for other in range(4):
            transport, mapping, reason = process.ok("peer", 0, other).split(" ", 2)
            if pe // 2 == other // 2:
                expect((transport, mapping) == ("1", "mapped"), f"PE {pe} to {other}: {reason}")
                expect(process.ok("put", 0, other) == str(1000 + pe), f"put of PE {pe} to {other}")
                continue
            expect(mapping == "unmapped", f"PE {pe} has PE {other} mapped: {reason}")
            expect(transport == "3", f"PE {pe} to {other}: {reason}")
            expect(f"PE {other} is on node {other // 2}" in reason, f"PE {pe}: {reason}")
            expect(process.ok("put", 0, other) == str(1000 + pe), f"put of PE {pe} to {other}")


@case("a group over two network namespaces as two nodes")
def across(_):
    with two_namespaces() as namespaces, NodesCrew(namespaces) as crew:
        crew.join()
        crew.all_ok("malloc", 0, 4096)
        expect_only_own_node(crew)
        for _ in range(20):
            crew.all_ok("barrier", 0)
        crew.send_all("layer", 0, *crew.small, 0)
        for pe, process in enumerate(crew.members):
            reply = process.receive()
            expect(reply.name == "MORI_E_UNAVAILABLE", f"operator of PE {pe}: {reply}")
            expect("mapped memory" in reply.text, f"operator of PE {pe}: {reply}")
        crew.all_ok("barrier", 0)
        since = crew.kill(3)
        for pe in (0, 1, 2):
            crew[pe].send("barrier", 0)
        crew.await_naming(3, since, CLOSED_S, statuses.of("PEER_DEAD"))


@case("the cable between two nodes is cut")
def cut(_):
    with two_namespaces() as namespaces, NodesCrew(namespaces) as crew:
        crew.join(beat_ms=BEAT_MS)
        crew.all_ok("barrier", 0)
        # PE 1 stays away, so the others wait when the cable is cut; it is told by its next call.
        for pe in (0, 2, 3):
            crew[pe].send("barrier", 0)
        ip("-n", namespaces[0], "link", "set", "cable", "down")
        since = time.monotonic()
        slowest = 0.0
        for pe in (0, 2, 3, 1):
            reply = crew[pe].call("barrier", 0) if pe == 1 else crew[pe].receive()
            expect(reply.name == "MORI_E_PEER_DEAD", f"PE {pe}: {reply}")
            away = {0, 1, 2, 3} - {pe // 2 * 2, pe // 2 * 2 + 1}
            expect(any(names_pe(reply.text, other) for other in away), f"PE {pe}: {reply}")
            slowest = max(slowest, reply.at - since)
        expect(slowest <= BEAT_MS / 1000 + CLOSED_S, f"reported after {slowest:.2f} s")
        for process in crew.members:
            reply = process.call("destroy", 0)
            expect(reply.ms <= 1000, f"destroy took {reply.ms} ms")
    return f"heartbeat {BEAT_MS} ms, slowest report {slowest:.2f} s"


@case("two network namespaces of one machine without node ids fall back from shared memory")
def one_boot_id(_):
    with two_namespaces() as namespaces, NodesCrew(namespaces, own_node_ids=False) as crew:
        began = time.monotonic()
        crew.join()
        took_s = time.monotonic() - began
        crew.all_ok("malloc", 0, 4096)
        crew.all_ok("barrier", 0)
        _, mapping, reason = crew[0].ok("peer", 0, 2).split(" ", 2)
        expect(mapping == "unmapped" and len(reason) > 20, f"PE 2 is {mapping} at PE 0: {reason}")
        expect(crew[0].ok("put", 0, 2) == "1000", "put to the other namespace")
        crew.all_ok("destroy", 0)
    return f"joined in {took_s:.1f} s; {reason}"


@case("a group over IPv6 alone")
def ipv6(_):
    with two_namespaces() as namespaces:
        for side, name in enumerate(namespaces):
            ip("-n", name, "addr", "flush", "dev", "cable")
            # nodad: usable at once, without looking for another host that has it.
            address = f"fd13:7::{side + 1}/64"
            ip("-n", name, "-6", "addr", "add", address, "dev", "cable", "nodad")
        with NodesCrew(namespaces) as crew:
            crew.join()
            crew.all_ok("malloc", 0, 4096)
            expect_only_own_node(crew)
            crew.all_ok("barrier", 0)
            crew.all_ok("destroy", 0)


@case("several interfaces: one that leads nowhere delays nobody, MORI_SOCKET_IFNAME chooses")
def interfaces(_):
    with two_namespaces() as namespaces:
        # A cable with both ends here: an address that the other node cannot reach.
        for side, name in enumerate(namespaces):
            ip("-n", name, "link", "add", "aside", "type", "veth", "peer", "name", "aside2")
            ip("-n", name, "addr", "add", f"10.214.{side}.1/24", "dev", "aside")
            for end in ("aside", "aside2"):
                ip("-n", name, "link", "set", end, "up")
        with NodesCrew(namespaces) as crew:
            began = time.monotonic()
            crew.join()
            took_s = time.monotonic() - began
            crew.all_ok("destroy", 0)
            expect(took_s < 5, f"took {took_s:.1f} s")
        with NodesCrew(namespaces, MORI_SOCKET_IFNAME="cable") as crew:
            unique_id = bytes.fromhex(crew[0].ok("id"))
            expect(unique_id[50] == 1, f"{unique_id[50]} addresses in the id, expected the cable's")
            expect(unique_id[53:57] == bytes([10, 213, 7, 1]), f"address {unique_id[53:57].hex()}")
            crew.join()
            crew.all_ok("barrier", 0)
            crew.all_ok("destroy", 0)
        with NodesCrew(namespaces, MORI_SOCKET_IFNAME="nowhere") as crew:
            reply = crew[0].call("id")
            expect(reply.name == "MORI_E_NOT_FOUND", f"{reply}")
            expect("MORI_SOCKET_IFNAME='nowhere'" in reply.text, f"{reply}")
    return f"joined in {took_s:.2f} s"


if __name__ == "__main__":
    sys.exit(cases.main())
