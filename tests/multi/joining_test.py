#!/usr/bin/env python3
"""Joining and agreeing between real processes: strangers at the door, ids of no use, PEs that
disagree, groups side by side, a receive cap that only one rank exceeds, fork."""

import contextlib
import os
import pathlib
import resource
import socket
import sys
import time

import cases
import statuses
from cases import case
from processes import Crew, Process, expect, names_pe


def listening_ports(pid):
    """TCP ports that a process listens at."""
    inodes = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            target = str(entry.readlink())
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                ports.add(int(fields[1].rsplit(":", 1)[1], 16))
    return ports


class Strangers:
    """Connections that know no secret: silent ones, and ones that talk nonsense."""

    def __init__(self, rng, ports):
        self.rng, self.ports, self.sockets = rng, sorted(ports), []

    def come(self, count, talk):
        for i in range(count):
            made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            made.settimeout(2)
            with contextlib.suppress(OSError):
                made.connect(("127.0.0.1", self.ports[i % len(self.ports)]))
                if talk:
                    made.sendall(self.rng.randbytes(self.rng.choice((1, 64, 300, 5000))))
            self.sockets.append(made)

    def go(self):
        for made in self.sockets:
            made.close()


@case("strangers connect while a group joins, and after")
def strangers(rng):
    with Crew(3) as crew:
        crew.warm_up()
        unique_id = crew.send_create(pes=[0, 1])
        ports = listening_ports(crew[0].pid)
        expect(ports, "nobody listens while joining")
        crowd = Strangers(rng, ports)
        crowd.come(150, talk=False)
        crowd.come(50, talk=True)
        began = time.monotonic()
        crew.send_create(pes=[2], unique_id=unique_id)
        for pe in range(3):
            reply = crew[pe].receive()
            expect(reply.status == 0, f"create on PE {pe} among strangers: {reply}")
        took_s = time.monotonic() - began
        expect(took_s < 5, f"joining among strangers took {took_s:.1f} s")
        crew.make_layer(crew.small)
        crew.run_round()
        for process in crew.members:
            expect(not listening_ports(process.pid), "listens to the network once it has joined")
        crowd.go()
        crew.prove_clean()
    return f"200 strangers, joined in {took_s:.2f} s"


@case("strangers connect to the sockets that pass descriptors")
def local_strangers(rng):
    with Crew(2) as crew:
        crew.warm_up()
        before = set(abstract_sockets())
        crew.join()
        names = set(abstract_sockets()) - before
        visitors = []
        for name in names:
            for talk in (False, True):
                made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                made.settimeout(2)
                with contextlib.suppress(OSError):
                    made.connect(name)
                    if talk:
                        made.sendall(rng.randbytes(400))
                visitors.append(made)
        crew.make_layer(crew.small)
        crew.run_round()
        for made in visitors:
            made.close()
        crew.prove_clean()
    return f"{len(names)} sockets visited"


def abstract_sockets():
    """Abstract unix sockets of this machine that somebody listens at; 00010000 says so."""
    for line in pathlib.Path("/proc/net/unix").read_text(errors="replace").splitlines()[1:]:
        fields = line.split(None, 7)
        if len(fields) == 8 and fields[3] == "00010000" and fields[7].startswith("@"):
            yield "\0" + fields[7][1:]


def create_alone(process, unique_id, pe=1, size=2, **options):
    settings = {**Crew.options, **options}
    words = [f"{key}={value}" for key, value in settings.items()]
    return process.call("create", 0, unique_id, pe, size, *words)


def expect_refusal(reply, names, text, within_ms):
    expect(reply.status in statuses.of(*names), f"{reply}; expected {names}")
    expect(text in reply.text, f"{reply}; the message lacks '{text}'")
    expect(reply.ms <= within_ms, f"{reply}; the limit is {within_ms} ms")


@case("a unique id of another run, of a complete group, damaged, of nobody")
def useless_ids(rng):
    with Crew(2) as crew:
        crew.warm_up()
        gone = Process()
        unique_id = gone.ok("id")
        gone.end()
        expect_refusal(create_alone(crew[1], unique_id), ("NOT_FOUND",), "id of another run", 6000)

        complete = crew[0].ok("id")
        crew.send_create(unique_id=complete)
        for process in crew.members:
            reply = process.receive()
            expect(reply.status == 0, f"create: {reply}")
        third = Process()
        try:
            expect_refusal(create_alone(third, complete), ("NOT_FOUND",), "another run", 6000)
        finally:
            third.end()
        crew.all_ok("barrier", 0)  # unharmed
        crew.all_ok("destroy", 0)

        position = rng.randrange(16, 240)
        flipped = "0" if complete[position] != "0" else "1"
        damaged = complete[:position] + flipped + complete[position + 1 :]
        expect_refusal(create_alone(crew[1], damaged), ("INVALID",), "damaged", 100)
        expect_refusal(create_alone(crew[1], "00" * 128), ("INVALID",), "all zero", 100)
        no_id = rng.randbytes(128).hex()
        expect_refusal(create_alone(crew[1], no_id), ("INVALID",), "no unique id", 100)

        waits = crew[0].ok("id")  # its maker lives, but does not join
        reply = create_alone(crew[1], waits, boot_ms=800)
        expect_refusal(reply, ("TIMEOUT",), "no rendezvous", 2000)
        reply = create_alone(crew[0], waits, pe=0, boot_ms=300)
        expect_refusal(reply, ("TIMEOUT",), "PE 1 of 2 did not join", 2000)
        crew.prove_clean()


@case("PEs that disagree on who they are, on the size, on the heap")
def disagreement(_):
    with Crew(3) as crew:
        crew.warm_up()
        settings = [f"{key}={value}" for key, value in Crew.options.items()]
        for what, numbers, text in (
            ("twice the same PE", ((0, 3), (1, 3), (1, 3)), "PE 1"),
            ("another size", ((0, 3), (1, 3), (2, 4)), "4"),
        ):
            unique_id = crew[0].ok("id")
            for process, (pe, size) in zip(crew.members, numbers, strict=True):
                process.send("create", 0, unique_id, pe, size, *settings)
            for process in crew.members:
                reply = process.receive()
                expect(reply.status in statuses.of("MISMATCH", "INVALID"), f"{what}: {reply}")
                expect(text in reply.text, f"{what}: {reply}")
        unique_id = crew.send_create(pes=[0, 1])
        crew.send_create(pes=[2], unique_id=unique_id, heap_mib=32)
        for process in crew.members:
            reply = process.receive()
            expect(reply.name == "MORI_E_MISMATCH", f"heap: {reply}")
            expect(str(64 << 20) in reply.text and str(32 << 20) in reply.text, f"heap: {reply}")
        crew.prove_clean()


@case("malloc of different sizes on two PEs")
def malloc_mismatch(_):
    with Crew(3) as crew:
        crew.warm_up()
        crew.join()
        for pe, size in enumerate((4096, 8192, 4096)):
            crew[pe].send("malloc", 0, size)
        for process in crew.members:
            reply = process.receive()
            expect(reply.name == "MORI_E_MISMATCH", f"{reply}")
            expect("4096" in reply.text and "8192" in reply.text, f"{reply}")
            expect(names_pe(reply.text, 1), f"{reply} does not name PE 1")
        crew.all_ok("malloc", 0, 4096)  # not a fault of the group
        crew.all_ok("put", 0, 2)
        crew.prove_clean()


@case("the receive cap hit exactly, and exceeded by one on one rank")
def receive_cap(rng):
    size, cap, target = 4, 100, rng.randrange(4)
    with Crew(size) as crew:
        crew.warm_up()
        crew.join()
        crew.make_layer((256, 64), cap)
        exact = [25, 25, 25, 25]
        crew.all_ok("tokens", 0, target + 1, *exact)
        for reply in crew.all_ok("dispatch", 0):
            expect("wrong=0" in reply.text, f"{reply}")
        crew.all_ok("combine", 0)
        over = list(exact)
        over[rng.randrange(size)] += 1
        crew.all_ok("tokens", 0, target + 1, *over)
        crew.send_all("dispatch", 0)
        for pe, process in enumerate(crew.members):
            reply = process.receive()
            expect(reply.name == "MORI_E_OVERFLOW", f"PE {pe}: {reply}")
            wanted = f"rank {target} would receive 101 tokens, the capacity is 100"
            expect(wanted in reply.text, f"PE {pe}: {reply}")
        crew.all_ok("tokens", 0, target + 1, *exact)
        crew.run_round()
        crew.prove_clean()


@case("fork after init: the child is refused, may join anew, and harms nobody")
def fork_after_init(_):
    with Crew(2) as crew:
        crew.warm_up()
        crew.join()
        crew.make_layer(crew.small)
        expect(crew[0].ok("fork", 0) == "0", "the child was not refused everything, see pe.cpp")
        crew.run_round()
        crew.all_ok("barrier", 0)
        crew.prove_clean()


@case("two groups at once, and a call before init and after finalize")
def two_groups(rng):
    with Crew(3) as crew:
        crew.warm_up()
        for slot in (0, 1):
            reply = crew[0].call("barrier", slot)
            expect(reply.name == "MORI_E_STATE", f"before init: {reply}")
        crew.join()
        unique_id = crew[1].ok("id")
        settings = [f"{key}={value}" for key, value in Crew.options.items()]
        # The other way round, and without process 0.
        for pe, process in enumerate((crew[2], crew[1])):
            process.send("create", 1, unique_id, pe, 2, *settings)
        for process in (crew[2], crew[1]):
            reply = process.receive()
            expect(reply.status == 0, f"second group: {reply}")
        crew.make_layer(crew.small)
        for process in (crew[2], crew[1]):
            process.send("layer", 1, *crew.small, 0)
        for process in (crew[2], crew[1]):
            expect(process.receive().status == 0, "layer of the second group")
        for _ in range(3):
            crew.run_round()
            for process in (crew[2], crew[1]):
                process.send("loop", 1, 1)
            for process in (crew[2], crew[1]):
                reply = process.receive()
                expect(reply.status == 0 and "wrong=0" in reply.text, f"second group: {reply}")
        # The first group loses a PE; the second does not notice.
        for pe in (1, 2):
            crew[pe].send("barrier", 0)
        since = crew.kill(0)
        crew.await_naming(0, since, 1.0, statuses.of("PEER_DEAD"))
        for process in (crew[2], crew[1]):
            process.send("loop", 1, 1)
        for process in (crew[2], crew[1]):
            reply = process.receive()
            expect(reply.status == 0 and "wrong=0" in reply.text, f"second group: {reply}")
        for pe in (1, 2):
            crew[pe].ok("destroy", 1)
            reply = crew[pe].call("barrier", 1)
            expect(reply.name == "MORI_E_STATE", f"after finalize: {reply}")
        crew.prove_clean()


@case("16 processes join within seconds")
def many(_):
    with Crew(16) as crew:
        began = time.monotonic()
        crew.join(heap_mib=16)
        took_s = time.monotonic() - began
        expect(took_s < 5, f"took {took_s:.1f} s")
        crew.make_layer(crew.small)
        crew.run_round()
        crew.all_ok("destroy", 0)
    return f"joined in {took_s:.2f} s on {len(os.sched_getaffinity(0))} cores"


@case("256 processes join in less than five seconds")
def very_many(_):
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit < 4096:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most), most))
    with Crew(256) as crew:
        for process in crew.members:
            process.call("check", 0)  # it runs; without a context this is a refusal
        began = time.monotonic()
        crew.join(heap_mib=1)
        took_s = time.monotonic() - began
        expect(took_s < 5, f"took {took_s:.1f} s")
        crew.all_ok("barrier", 0)
        crew.all_ok("destroy", 0)
    return f"joined in {took_s:.2f} s on {len(os.sched_getaffinity(0))} cores"


if __name__ == "__main__":
    sys.exit(cases.main())
