#!/usr/bin/env python3
"""PEs that are not mapped: commands over TCP, alone and mixed with mapped peers, on one host and
over a cable between network namespaces; PEs that die, stop, leave or are cut off meanwhile."""

import shutil
import signal
import subprocess
import sys
import time

import cases
import statuses
from cases import SkipError, case
from namespaces import NodesCrew, ip, two_namespaces
from processes import CLOSED_S, Crew, Process, expect, names_pe

BEAT_MS = 1000
DEAD = statuses.of("PEER_DEAD", "ABORTED")


class NetworkCrew(Crew):
    """PEs of one host: node_of(pe) names the node of each, None is all on one without P2P."""

    def __init__(self, size, node_of=None, queues=1):
        self.environment = None
        self.members = []
        for pe in range(size):
            own = {"MORI_NUM_QP_PER_PE": str(queues)}
            if node_of is None:
                own["MORI_DISABLE_P2P"] = "1"
            else:
                own["MORI_NODE_ID"] = f"node-{node_of(pe)}"
            self.members.append(Process(own))


def expect_right(crew, *words):
    """All run it, and nothing is wrong."""
    replies = crew.all_ok("traffic", 0, *words)
    for pe, reply in enumerate(replies):
        expect("wrong=0" in reply.text.split(), f"{words} on PE {pe}: {reply}")
    return replies


def expect_hammered(crew, target, count):
    """Every change of every PE happened once: fetch-adds saw 0 .. n - 1 between them."""
    replies = expect_right(crew, "hammer", target, count)
    total = len(crew) * count
    before = sum(int(reply.text.split()[0].removeprefix("before=")) for reply in replies)
    expect(before == total * (total - 1) // 2, f"sum before {before} of {total} fetch-adds")
    last = [int(word) for word in replies[0].text.split()[2:]]
    bits = sum(1 << pe for pe in range(len(crew))) if count % 2 else 0
    expect(last == [total, total, 3 * total, bits], f"last values {last} of {total} changes")


def run_everything(crew, rng, operations):
    crew.all_ok("traffic", 0, "open")
    expect_right(crew, "sizes")
    expect_right(crew, "random", rng.randrange(1 << 30), 3, operations)
    for target in {0, len(crew) - 1}:
        expect_hammered(crew, target, 61)
    expect_right(crew, "burst", rng.randrange(len(crew)), 5000)
    for _ in range(30):
        crew.all_ok("barrier", 0)


@case("1, 2, 3, 5 and 8 PEs without P2P: every operation, values compared")
def no_p2p(rng):
    for size in (1, 2, 3, 5, 8):
        with NetworkCrew(size) as crew:
            crew.join()
            for other in range(1, size):
                transport, mapping, reason = crew[0].ok("peer", 0, other).split(" ", 2)
                expect((transport, mapping) == ("3", "unmapped"), f"PE {other}: {reason}")
                expect(reason.startswith("TCP: 1 data connection; P2P:"), reason)
            run_everything(crew, rng, 300)
            crew.all_ok("destroy", 0)


@case("2, 3, 5 and 8 PEs, every other one on another node: mapped and network peers in one job")
def mixed(rng):
    for size, queues in ((2, 1), (3, 2), (5, 1), (8, 3)):
        with NetworkCrew(size, node_of=lambda pe: pe % 2, queues=queues) as crew:
            crew.join()
            for other in range(1, size):
                transport = crew[0].ok("peer", 0, other).split(" ", 1)[0]
                expect(transport == ("3" if other % 2 else "1"), f"PE {other}: {transport}")
            run_everything(crew, rng, 300)
            crew.all_ok("destroy", 0)


def impair(namespaces, *words):
    if shutil.which("tc") is None:
        raise SkipError("there is no tc command (iproute2)")
    for name in namespaces:
        done = subprocess.run(
            [
                *("ip", "netns", "exec", name, "tc", "qdisc", "replace"),
                *("dev", "cable", "root", "netem", *words),
            ],
            capture_output=True,
            text=True,
            timeout=20,
        )
        if done.returncode != 0:
            raise SkipError(f"tc netem {' '.join(words)}: {done.stderr.strip()}")


@case("two nodes over a cable: every operation")
def over_cable(rng):
    with two_namespaces() as namespaces, NodesCrew(namespaces) as crew:
        crew.join()
        run_everything(crew, rng, 200)
        crew.all_ok("destroy", 0)


@case("two nodes over a cable with delay, loss and reordering: every operation")
def over_bad_cable(rng):
    with two_namespaces() as namespaces, NodesCrew(namespaces) as crew:
        impair(namespaces, "delay", "1ms", "1ms", "loss", "1%", "reorder", "25%")
        crew.join()
        crew.all_ok("traffic", 0, "open")
        expect_right(crew, "random", rng.randrange(1 << 30), 1, 100)
        expect_hammered(crew, 3, 21)
        crew.all_ok("destroy", 0)


def expect_naming(crew, victim, since, within_s):
    """Everybody else's pending call fails in time, and somebody's text names the victim."""
    latest, named = 0.0, False
    for pe, process in crew.others(victim):
        reply = process.receive()
        expect(reply.status in DEAD, f"PE {pe}: {reply}")
        expect(reply.at - since <= within_s, f"PE {pe} after {reply.at - since:.2f} s: {reply}")
        expect(names_pe(reply.text, victim), f"PE {pe}: {reply}; it does not name PE {victim}")
        named = True
        latest = max(latest, reply.at - since)
    expect(named, "nobody was there")
    return latest


def expect_fresh_start(crew):
    """The survivors can leave quickly and a new group of new processes works."""
    for process in crew.members:
        if process.is_alive():
            reply = process.call("destroy", 0)
            expect(reply.ms <= 1000, f"destroy took {reply.ms} ms")


@case("kill -9 of each PE in the middle of traffic, mapped and network peers")
def killed(rng):
    slowest = 0.0
    for victim in range(4):
        with NetworkCrew(4, node_of=lambda pe: pe // 2) as crew:
            crew.join(beat_ms=10 * BEAT_MS)
            crew.all_ok("traffic", 0, "open")
            crew.send_all("traffic", 0, "random", rng.randrange(1 << 30), 100000, 500)
            time.sleep(0.2 + rng.random() * 0.2)  # where it hits is the point
            since = crew.kill(victim)
            slowest = max(slowest, expect_naming(crew, victim, since, CLOSED_S))
            expect_fresh_start(crew)
    return f"slowest report {slowest:.2f} s"


@case("SIGSTOP in the middle of traffic: named after the heartbeat's time")
def stopped(rng):
    with NetworkCrew(3) as crew:
        crew.join(beat_ms=BEAT_MS)
        crew.all_ok("traffic", 0, "open")
        crew.send_all("traffic", 0, "random", rng.randrange(1 << 30), 100000, 500)
        time.sleep(0.2)
        since = crew[1].signal(signal.SIGSTOP)
        slowest = expect_naming(crew, 1, since, BEAT_MS / 1000 + 2 * CLOSED_S)
        crew[1].signal(signal.SIGCONT)
        reply = crew[1].receive()
        expect(reply.status in DEAD, f"the stopped one: {reply}")
        expect_fresh_start(crew)
    return f"slowest report {slowest:.2f} s"


@case("a ring that fills up, since its target stands still: nobody waits for ever")
def full_ring(_):
    with NetworkCrew(2) as crew:
        crew.join(beat_ms=BEAT_MS)
        crew.all_ok("traffic", 0, "open")
        crew.all_ok("barrier", 0)
        since = crew[1].signal(signal.SIGSTOP)
        crew[0].send("traffic", 0, "burst", 1, 100000)
        slowest = expect_naming(crew, 1, since, BEAT_MS / 1000 + 2 * CLOSED_S)
        crew[1].signal(signal.SIGCONT)
        expect_fresh_start(crew)
    return f"report {slowest:.2f} s"


@case("the cable is cut in the middle of traffic: both sides know")
def cut(rng):
    with two_namespaces() as namespaces, NodesCrew(namespaces) as crew:
        crew.join(beat_ms=BEAT_MS)
        crew.all_ok("traffic", 0, "open")
        crew.send_all("traffic", 0, "random", rng.randrange(1 << 30), 100000, 500)
        time.sleep(0.2)
        ip("-n", namespaces[0], "link", "set", "cable", "down")
        since = time.monotonic()
        slowest = 0.0
        for pe, process in enumerate(crew.members):
            reply = process.receive()
            expect(reply.status in DEAD, f"PE {pe}: {reply}")
            away = {0, 1, 2, 3} - {pe // 2 * 2, pe // 2 * 2 + 1}
            expect(any(names_pe(reply.text, other) for other in away), f"PE {pe}: {reply}")
            slowest = max(slowest, reply.at - since)
        expect(slowest <= BEAT_MS / 1000 + 2 * CLOSED_S, f"reported after {slowest:.2f} s")
        expect_fresh_start(crew)
    return f"heartbeat {BEAT_MS} ms, slowest report {slowest:.2f} s"


@case("a PE that leaves harms nobody until somebody needs it")
def left(_):
    with NetworkCrew(3) as crew:
        crew.join()
        crew.all_ok("malloc", 0, 4096)
        crew.all_ok("barrier", 0)
        crew[2].ok("destroy", 0)
        time.sleep(0.3)
        for _ in range(5):
            expect(crew[0].ok("put", 0, 1) == "1000", "put to the one that stayed")
            expect(crew[1].ok("put", 0, 0) == "1001", "put to the one that stayed")
        crew[0].ok("check", 0)
        reply = crew[0].call("put", 0, 2)
        expect(reply.name == "MORI_E_PEER_DEAD", f"{reply}")
        expect("PE 2 has left the group" in reply.text, f"{reply}")
        expect(reply.ms <= 1000, f"it took {reply.ms} ms")


@case("an abort ends waits on the network")
def aborted(_):
    with NetworkCrew(3) as crew:
        crew.join()
        for pe in (0, 1):
            crew[pe].send("barrier", 0)
        time.sleep(0.2)
        since = time.monotonic()
        crew[2].ok("abort", 0)
        for pe in (0, 1):
            reply = crew[pe].receive()
            expect(reply.name == "MORI_E_ABORTED", f"PE {pe}: {reply}")
            expect(names_pe(reply.text, 2), f"PE {pe}: {reply}")
            expect(reply.at - since <= CLOSED_S, f"PE {pe} after {reply.at - since:.2f} s")


@case("joining and leaving again and again holds nothing")
def cycles(_):
    with NetworkCrew(3, queues=2) as crew:
        crew.join()
        crew.all_ok("destroy", 0)
        before = [process.holds() for process in crew.members]
        for _ in range(20 * cases.TRIALS):
            crew.join()
            crew.all_ok("malloc", 0, 4096)
            crew.all_ok("barrier", 0)
            expect(crew[0].ok("put", 0, 1) == "1000", "put")
            crew.all_ok("destroy", 0)
        after = [process.holds() for process in crew.members]
        expect(after == before, f"before {before}, after {after}")


if __name__ == "__main__":
    sys.exit(cases.main())
