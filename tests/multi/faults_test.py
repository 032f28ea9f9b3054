#!/usr/bin/env python3
"""A PE is killed, stopped, stalled, or leaves, at each phase of what a group does: the others name
it in time, hold nothing afterwards, and make a new group that works."""

import signal
import sys
import time

import cases
import statuses
from cases import case
from processes import CLOSED_S, Crew, ExpectationError, expect, names_pe

DISPATCH_GATES = ("routing", "first_row", "middle_row", "receiver")
COMBINE_GATES = ("expert_rows", "routing_again", "gather")
GATES = DISPATCH_GATES + COMBINE_GATES
DEAD = statuses.of("PEER_DEAD")
# Who finds first that a PE has left gives up, and the others may hear of it from there.
GONE = statuses.of("PEER_DEAD", "ABORTED")
BEAT_MS = 1000


def into_gate(crew, victim, gate):
    """All loop; the victim stands in the gate, the others wait for it."""
    crew.make_layer(crew.large)
    crew.run_round()  # rows of other PEs are at known addresses then
    crew[victim].ok("gate", 0, gate)
    for _, process in crew.others(victim):
        process.send("loop", 0, 1000)
    crew[victim].send("loop", 0, 1000)
    crew[victim].await_word("gate_reached", 1)


def release(process):
    process.open_gate()
    return process.receive()


def victims(rng, size, count):
    """Each PE at least once if there are that many, PE 0 (which made the id) among them."""
    order = list(range(size))
    rng.shuffle(order)
    return [order[i % size] for i in range(count)]


@case("kill -9 at each place of dispatch and combine")
def kill_in_gates(rng):
    slowest = {}
    with Crew(4) as crew:
        crew.warm_up()
        for gate, victim in zip(GATES, victims(rng, 4, len(GATES)), strict=True):
            crew.join()
            into_gate(crew, victim, gate)
            since = crew.kill(victim)
            slowest[gate] = crew.await_naming(victim, since, CLOSED_S, DEAD)
            crew.prove_clean()
    return f"slowest report {max(slowest.values()):.2f} s"


@case("kill -9 at a random time of dispatch and combine")
def kill_at_random(rng):
    names = {0: "elsewhere", 1: "dispatch", 2: "between", 3: "combine"}
    hit, slowest = dict.fromkeys(names.values(), 0), 0.0
    with Crew(4) as crew:
        crew.warm_up()
        for _ in range(8 * cases.TRIALS):
            victim = rng.randrange(4)
            crew.join()
            crew.make_layer(crew.large)
            crew.send_all("loop", 0, 100000)
            crew[victim].await_word("round_count", crew[victim].word("round_count") + 1)
            time.sleep(rng.random() * 0.05)  # which phase it hits is the point
            phase = names[crew[victim].word("phase")]
            since = crew.kill(victim)
            hit[phase] += 1
            slowest = max(slowest, crew.await_naming(victim, since, CLOSED_S, DEAD))
            crew.prove_clean(rejoin=False)
        crew.warm_up()
    return f"phases {hit}, slowest report {slowest:.2f} s"


@case("kill -9 before dispatch, between dispatch and combine")
def kill_between_calls(rng):
    with Crew(4) as crew:
        crew.warm_up()
        for has_dispatched in (False, True):
            victim = rng.randrange(4)
            crew.join()
            crew.make_layer(crew.large)
            if has_dispatched:
                crew.all_ok("dispatch", 0)
            for _, process in crew.others(victim):
                process.send("combine" if has_dispatched else "dispatch", 0)
                process.await_word("phase", 3 if has_dispatched else 1)
            since = crew.kill(victim)
            crew.await_naming(victim, since, CLOSED_S, DEAD)
            crew.prove_clean()


@case("kill -9 in barrier and malloc")
def kill_in_collectives(rng):
    with Crew(4) as crew:
        crew.warm_up()
        for call in (("barrier", 0), ("malloc", 0, 4096), ("layer", 0, *Crew.small, 0)):
            victim, late = rng.sample(range(4), 2)
            crew.join()
            calls = crew[victim].word("call_count")
            for pe in set(range(4)) - {late}:
                crew[pe].send(*call)
            crew[victim].await_word("call_count", calls + 1)
            since = crew.kill(victim)
            crew.await_naming(victim, since, CLOSED_S, DEAD, among=set(range(4)) - {late})
            # Who was not in a call is told by the next.
            reply = crew[late].call(*call)
            expect(reply.status in DEAD and names_pe(reply.text, victim), f"late PE: {reply}")
            crew.prove_clean()


@case("kill -9 while joining: an incomplete group")
def kill_in_join(rng):
    with Crew(4) as crew:
        crew.warm_up()
        for victim in (0, 1, 2):
            absent = 3
            crew.send_create(pes=[0, 1, 2])
            time.sleep(0.3)  # they have enrolled; nothing tells when from outside
            since = crew.kill(victim)
            for pe in {0, 1, 2} - {victim}:
                reply = crew[pe].receive()
                expect(reply.status in DEAD, f"PE {pe}: {reply}")
                # Guests know who made the id by that, and not by its number.
                named = names_pe(reply.text, victim) or (
                    victim == 0 and "the process that made the unique id" in reply.text
                )
                expect(named, f"PE {pe} does not name PE {victim}: {reply}")
                expect(reply.at - since <= CLOSED_S + 1.2, f"PE {pe} after {reply.at - since} s")
            expect(crew[absent].is_alive(), "the absent PE is gone")
            crew.prove_clean()


@case("kill -9 at a random time of create, of destroy")
def kill_in_create_and_destroy(rng):
    joined = refused = 0
    with Crew(4) as crew:
        crew.warm_up()
        for trial in range(8 * cases.TRIALS):
            victim = rng.randrange(4)
            in_destroy = trial % 2 == 1
            if in_destroy:
                crew.join()
                crew[victim].send("destroy", 0)
                for _, process in crew.others(victim):
                    process.send("barrier", 0)
                time.sleep(rng.random() * 0.005)
                since = crew.kill(victim)
                crew.await_naming(victim, since, CLOSED_S, GONE)
            else:
                crew.send_create(boot_ms=2500)
                time.sleep(rng.random() * 0.012)
                since = crew.kill(victim)
                for other, process in crew.others(victim):
                    reply = process.receive()
                    # Of one that died before it had enrolled only its absence is known.
                    limit_s = CLOSED_S + (2.7 if reply.name == "MORI_E_TIMEOUT" else 2.2)
                    late_s = reply.at - since
                    expect(late_s <= limit_s, f"PE {other} after {late_s:.2f} s: {reply}")
                    if reply.status == 0:
                        joined += 1
                        reply = process.call("barrier", 0)
                        expect(names_pe(reply.text, victim), f"PE {other} in barrier: {reply}")
                    else:
                        refused += 1
                    expect(reply.status != 0, f"PE {other}: no failure without PE {victim}")
            crew.prove_clean(rejoin=False)
        crew.warm_up()
    return f"create: {refused} failed, {joined} joined and failed in the next call"


@case("SIGSTOP at each place of dispatch and combine, SIGCONT later")
def stop_in_gates(rng):
    slowest = 0.0
    with Crew(3) as crew:
        crew.warm_up()
        for gate, victim in zip(GATES, victims(rng, 3, len(GATES)), strict=True):
            crew.join(beat_ms=BEAT_MS)
            into_gate(crew, victim, gate)
            since = crew[victim].signal(signal.SIGSTOP)
            slowest = max(
                slowest, crew.await_naming(victim, since, BEAT_MS / 1000 + CLOSED_S, DEAD)
            )
            crew[victim].signal(signal.SIGCONT)
            reply = release(crew[victim])
            expect(reply.status in DEAD, f"the stopped PE at {gate}: {reply}")
            expect("declared dead" in reply.text, f"the stopped PE at {gate}: {reply}")
            # It had told nobody its counts, so it cannot have received anything.
            right_call = gate != "routing" or reply.text.startswith("dispatch")
            expect(right_call, f"the stopped PE at {gate}: {reply}")
            crew.prove_clean()
    return f"heartbeat {BEAT_MS} ms, slowest report {slowest:.2f} s"


@case("SIGSTOP in barrier, malloc, between calls")
def stop_in_collectives(rng):
    with Crew(3) as crew:
        crew.warm_up()
        for call in (("barrier", 0), ("malloc", 0, 4096), None):
            victim, late = rng.sample(range(3), 2)
            crew.join(beat_ms=BEAT_MS)
            calls = crew[victim].word("call_count")
            waiting = {0, 1, 2} - ({late} if call else {victim})
            for pe in waiting:
                crew[pe].send(*(call or ("barrier", 0)))
            if call:
                crew[victim].await_word("call_count", calls + 1)
            since = crew[victim].signal(signal.SIGSTOP)
            limit_s = BEAT_MS / 1000 + CLOSED_S
            crew.await_naming(victim, since, limit_s, DEAD, among=waiting - {victim})
            crew[victim].signal(signal.SIGCONT)
            reply = crew[victim].receive() if call else None
            # Between calls nobody may have told it yet: it is told by one that waits.
            reply = reply or crew[victim].call("barrier", 0)
            expect(reply.status in DEAD and "declared dead" in reply.text, f"stopped PE: {reply}")
            crew.prove_clean()


@case("SIGSTOP while joining")
def stop_in_join(_):
    boot_ms, victim = 2000, 1
    with Crew(3) as crew:
        crew.warm_up()
        unique_id = crew.send_create(pes=[0, victim], boot_ms=boot_ms)
        time.sleep(0.3)  # it has enrolled
        crew[victim].signal(signal.SIGSTOP)
        since = time.monotonic()
        crew.send_create(pes=[2], unique_id=unique_id, boot_ms=boot_ms)
        limit_s = boot_ms / 1000 + CLOSED_S
        crew.await_naming(victim, since, limit_s, statuses.of("TIMEOUT"))
        crew[victim].signal(signal.SIGCONT)
        reply = crew[victim].receive()
        expect(reply.status in statuses.of("TIMEOUT", "PEER_DEAD"), f"the stopped PE: {reply}")
        crew.prove_clean()
    return f"join timeout {boot_ms} ms"


@case("a stalled PE is reported when the deadline passes")
def stall(rng):
    wait_ms = 700
    with Crew(3) as crew:
        crew.warm_up()
        for gate in ("routing", "middle_row", "expert_rows", None):
            victim = rng.randrange(3)
            crew.join(wait_ms=wait_ms)
            if gate:
                into_gate(crew, victim, gate)
            else:
                for _, process in crew.others(victim):
                    process.send("barrier", 0)
            since = time.monotonic()
            allowed = statuses.of("TIMEOUT", "ABORTED")
            crew.await_naming(victim, since, wait_ms / 1000 + CLOSED_S, allowed)
            # It lives, and learns of it from its own call.
            reply = release(crew[victim]) if gate else crew[victim].call("barrier", 0)
            expect(reply.status in allowed, f"the stalled PE at {gate}: {reply}")
            right_call = gate != "routing" or reply.text.startswith("dispatch")
            expect(right_call, f"the stalled PE at {gate}: {reply}")
            crew.prove_clean()
    return f"deadline {wait_ms} ms"


@case("a PE leaves in order while others wait for it")
def leave(rng):
    with Crew(3) as crew:
        crew.warm_up()
        for call in ("barrier", "malloc", "dispatch", "combine"):
            victim = rng.randrange(3)
            crew.join()
            if call in ("dispatch", "combine"):
                crew.make_layer(crew.small)
            if call == "combine":
                crew.all_ok("dispatch", 0)
            for _, process in crew.others(victim):
                process.send(call, 0, 4096)
            since = time.monotonic()
            crew[victim].ok("destroy", 0)
            crew.await_naming(victim, since, CLOSED_S, GONE)
            crew.prove_clean()


@case("nobody is blamed: a group at work under heartbeats of 1 s")
def healthy(_):
    with Crew(4) as crew:
        crew.warm_up()
        crew.join(beat_ms=BEAT_MS)
        crew.make_layer(crew.large)
        for reply in crew.all_ok("loop", 0, 20):
            if not reply.text.endswith("wrong=0"):
                raise ExpectationError(f"wrong values: {reply}")
        crew.all_ok("destroy", 0)


if __name__ == "__main__":
    sys.exit(cases.main())
