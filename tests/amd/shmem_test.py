#!/usr/bin/env python3
"""Every function of shmem's device API, for lanes, waves and blocks, and every kernel of shmem, in
the emulator: results against a model, and every byte of memory against the host's kernels.

usage: shmem_test.py HOST_LIBRARY EMULATOR_LIBRARY RECORD OBJECT ...
"""

import struct
import sys

from execution_case import Cases
from shmem.random_programs import COUNTERS, extended, random_writers
from shmem.steps import (
    AMO_COMPARE_SWAP,
    CMP_EQ,
    CMP_GE,
    CMP_GT,
    CMP_LE,
    CMP_LT,
    CMP_NE,
    MASK64,
    SIGNAL_ADD,
    SIGNAL_SET,
    Programs,
    Step,
)
from world import Task, World, peek, poke

cases = Cases(__doc__)
INVALID, TIMEOUT, PEER_DEAD, ABORTED, UNAVAILABLE = 1, 5, 6, 7, 9
OP_PUT, OP_GET, OP_PUT_SIGNAL, OP_ATOMIC, OP_WAIT, OP_QUIET, OP_BARRIER = range(1, 8)
CLAIMED = 2
# Group -> kernel.
KERNELS = {group: f"mori_amd_{group}_programs" for group in ("lane", "wave", "block")}
GROUPS = tuple(KERNELS)


def tasks_of(world, group, lists_of, grid=1, block=64):
    """(tasks, programs): lists_of[pe] are the programs of that PE's groups."""
    tasks, programs = [], []
    for pe in world.pes:
        made = Programs(pe, lists_of[pe.index])
        programs.append(made)
        count = max(len(lists_of[pe.index]), 1)
        tasks.append(Task(pe, KERNELS[group], made.arguments, grid, block, count))
    return tasks, programs


def run_programs(stage, world, group, lists_of, seed, ignored=(), **geometry):
    """Runs in both places and checks what each step gave."""
    tasks, programs = tasks_of(world, group, lists_of, **geometry)
    stage.run(world, tasks, seed, ignored)
    for pe, made in zip(world.pes, programs, strict=True):
        made.check(peek, f"PE {pe.index}, {group}, seed {seed}")


# --- random one-sided operations ------------------------------------------------------------------

# Group -> launch geometry, groups with a program, bytes of a column, steps of a program.
RANDOM = {
    "lane": ({"grid": 1, "block": 128}, 80, 64, 5),
    "wave": ({"grid": 2, "block": 128}, 4, 512, 30),
    "block": ({"grid": 2, "block": 192}, 2, 1024, 30),
}


@cases.each("random operations", GROUPS)
def random_operations(stage, group):
    geometry, instances, column_bytes, step_count = RANDOM[group]
    for seed in cases.seeds(2):
        pe_count = 2 + seed % 3
        heap = 8192 + pe_count * instances * column_bytes
        with World(stage.host, pe_count, heap, 1 << 18) as world:
            writers, counters = random_writers(
                world.pes, group, instances, column_bytes, step_count, seed
            )
            lists = {pe: [writer.steps for writer in mine] for pe, mine in writers.items()}
            run_programs(stage, world, group, lists, seed, **geometry)
            check_model(world, writers, counters, column_bytes)


def check_model(world, writers, counters, column_bytes):
    sums = [[0] * COUNTERS for _ in world.pes]
    for mine in writers.values():
        for writer in mine:
            for pe in world.pes:
                at = writer.column - writer.pe.heap + pe.heap
                assert peek(at, column_bytes) == bytes(writer.model[pe.index]), f"column at {at:#x}"
                for i, value in enumerate(writer.added[pe.index]):
                    sums[pe.index][i] = sums[pe.index][i] + value & MASK64
            assert peek(writer.sink, column_bytes) == bytes(writer.sunk), "what gets brought"
    for pe in world.pes:
        found = struct.unpack(f"<{COUNTERS}Q", peek(counters[pe.index], 8 * COUNTERS))
        assert list(found) == sums[pe.index], f"counters of PE {pe.index}: {found}"
        assert pe.read_fault()[0] == 0, f"PE {pe.index} has a fault: {pe.read_fault()}"


# --- signals, waits, barriers ---------------------------------------------------------------------


@cases.each("signals in a ring", GROUPS)
def signals_in_a_ring(stage, group):
    """Each round: payload and signal to the right, wait for the left, look, barrier."""
    rounds, size = 4, 300
    for seed in cases.seeds(3):
        pe_count = 2 + seed % 3
        with World(stage.host, pe_count) as world:
            buffers = [pe.symmetric(rounds * size) for pe in world.pes]
            signals = [pe.symmetric(8) for pe in world.pes]
            payloads = [bytes((17 * pe.index + i) % 251 for i in range(size)) for pe in world.pes]
            lists, sinks = {}, []
            for pe in world.pes:
                right, left = (pe.index + 1) % pe_count, (pe.index - 1) % pe_count
                source, sink = pe.private(payloads[pe.index]), pe.private(rounds * size)
                sinks.append(sink)
                steps = []
                for turn in range(rounds):
                    to, signal = buffers[pe.index] + turn * size, signals[pe.index]
                    steps += ring_turn(turn, right, left, to, signal, source, size)
                    steps.append(Step("getmem", pe=pe.index, to=sink + turn * size, source=to))
                    steps[-1].count = size
                    steps.append(Step("barrier_all"))
                lists[pe.index] = [steps]
            block = 64 if group != "block" else 256
            run_programs(stage, world, group, lists, seed, block=block)
            for pe in world.pes:
                wanted = payloads[(pe.index - 1) % pe_count] * rounds
                assert peek(sinks[pe.index], rounds * size) == wanted, f"PE {pe.index}"
                check_barrier_words(world, pe, rounds)


def ring_turn(turn, right, left, to, signal, source, size):
    """Set and add in turns; each of the three waits."""
    put = Step("putmem_signal_nbi", pe=right, to=to, source=source, count=size, compare=signal)
    if turn % 2 == 0:
        put.code, put.value = SIGNAL_SET, turn + 1
    else:
        put.code, put.value = SIGNAL_ADD, 1
    waits = (
        Step("wait_until_equals", to=signal, value=turn + 1),
        Step("wait_until_greater_than", to=signal, value=turn, gives=turn + 1),
        Step("wait_until", pe=left, code=CMP_GE, to=signal, value=turn + 1, gives=turn + 1),
    )
    waits[2].status = 1
    return [put, waits[turn % 3]]


def check_barrier_words(world, pe, epoch):
    """On a GPU up to 32 PEs meet in one round: word 1 of a sender's line."""
    assert peek(pe.device_epoch, 8) == struct.pack("<Q", epoch)
    for other in set(world.pes) - {pe}:
        word = peek(pe.device_barrier + 64 * other.index + 8, 8)
        assert word == struct.pack("<Q", epoch), f"PE {other.index} at PE {pe.index}: {word.hex()}"


WAIT_CASES = [
    # type, stored bits, compare, value, holds
    *(("u64", 4, c, 5, holds) for c, holds in ((CMP_EQ, 0), (CMP_NE, 1), (CMP_GT, 0))),
    *(("u64", 4, c, 5, holds) for c, holds in ((CMP_GE, 0), (CMP_LT, 1), (CMP_LE, 1))),
    *(("u64", 5, c, 5, holds) for c, holds in ((CMP_EQ, 1), (CMP_NE, 0), (CMP_GT, 0))),
    *(("u64", 5, c, 5, holds) for c, holds in ((CMP_GE, 1), (CMP_LT, 0), (CMP_LE, 1))),
    *(("u64", MASK64, c, 5, holds) for c, holds in ((CMP_GT, 1), (CMP_GE, 1), (CMP_LT, 0))),
    *(("i32", MASK64, c, 0, holds) for c, holds in ((CMP_GT, 0), (CMP_GE, 0), (CMP_LT, 1))),
    *(("i32", MASK64, c, -1, holds) for c, holds in ((CMP_EQ, 1), (CMP_LE, 1), (CMP_GT, 0))),
    *(("i64", MASK64, c, 0, holds) for c, holds in ((CMP_GT, 0), (CMP_LT, 1), (CMP_NE, 1))),
    *(("u32", 0x80000000, c, 1, holds) for c, holds in ((CMP_GT, 1), (CMP_LT, 0))),
]


@cases.each("comparisons of waits", GROUPS)
def comparisons(stage, group):
    """Each with the signedness of its word; a budget of the call's own is no fault."""
    with World(stage.host, 1) as world:
        (pe,) = world.pes
        steps = []
        for kind, stored, compare, value, holds in WAIT_CASES:
            if group != "lane" and kind in ("u32", "i64"):
                continue
            word = pe.symmetric(8)
            poke(word, struct.pack("<Q", stored))
            steps.append(Step("wait_until", kind, -1, compare, word, count=1, value=value))
            steps[-1].gives, steps[-1].status = extended(stored, kind), holds
        run_programs(stage, world, group, {0: [steps]}, seed=1)
        assert pe.read_fault()[0] == 0


# --- faults ---------------------------------------------------------------------------------------


def bad_calls(pe, peer_count):
    """(step, fault's status, operation, pe, awaited, seen) of calls that must be refused."""
    end, user = pe.heap + pe.heap_bytes, pe.user
    for what, operation in (("putmem_nbi", OP_PUT), ("getmem", OP_GET), ("getmem_nbi", OP_GET)):
        for address, size, awaited, seen in (
            (pe.heap - 1, 1, pe.heap - 1, end),
            (end + 1, 0, end + 1, end),
            (end - 8, 9, 9, 8),
            (user, MASK64, MASK64, end - user),
        ):
            step = Step(what, pe=1, to=address, source=pe.private_memory, count=size)
            if operation == OP_GET:
                step.to, step.source = step.source, step.to
            yield step, INVALID, operation, 1, awaited, seen
        for other in (-1, peer_count, -(1 << 31)):
            step = Step(what, pe=other, to=user, source=user, count=8)
            yield step, INVALID, operation, other, other, peer_count
    too_many = Step("put_nbi", "f64", 1, to=user, source=pe.private_memory, count=1 << 61)
    yield too_many, INVALID, OP_PUT, 1, MASK64, end - user
    for size in (0, 3, 17):
        step = Step("put_size_imm_nbi", pe=1, to=user, source=pe.private_memory, count=size)
        yield step, INVALID, OP_PUT, 1, size, 16
    yield Step("p", "u64", 1, to=user + 4), INVALID, OP_PUT, 1, user + 4, 8
    signal = Step("putmem_signal_nbi", pe=1, to=user, source=pe.private_memory, count=8)
    for code, word, awaited, seen in (
        (8, user, 8, SIGNAL_ADD),
        (SIGNAL_SET, user + 33, user + 33, 8),
        (SIGNAL_SET, end, 8, 0),
    ):
        step = Step(**{**signal.__dict__, "code": code, "compare": word})
        yield step, INVALID, OP_PUT_SIGNAL, 1, awaited, seen
    for code in (-1, 0, 1, 8, 11, 20):
        step = Step("atomic_nonfetch", "u64", 1, code, user)
        yield step, INVALID, OP_ATOMIC, 1, code, AMO_COMPARE_SWAP
    yield Step("atomic_add", "u64", 1, to=user + 4), INVALID, OP_ATOMIC, 1, user + 4, 8
    for what in ("quiet_pe", "fence_pe"):
        yield Step(what, pe=5), INVALID, OP_QUIET, 5, 5, peer_count
    # PE 2 is not mapped.
    step = Step("atomic_add", "u64", 2, to=user, value=1)
    yield step, UNAVAILABLE, OP_ATOMIC, 2, user, 3
    outside = Step("wait_until", pe=1, code=CMP_EQ, to=pe.private_memory, status=0)
    yield outside, 0, OP_WAIT, 0, pe.private_memory, end
    yield Step("wait_until", pe=1, code=7, to=user), 0, OP_WAIT, 1, 7, CMP_LE


@cases.each("refused calls", GROUPS)
def refused_calls(stage, group):
    """The first fault is recorded as on the host, nothing is touched, quiet() tells of it."""
    with World(stage.host, 3) as probe:
        count = len(list(bad_calls(probe.pes[0], 3)))
    for index in range(count):
        with World(stage.host, 3) as world:
            pe = world.pes[0]
            for other in world.pes:  # nobody reaches PE 2
                poke(other.peer_bases + 16, bytes(8))
                poke(other.transports + 8, struct.pack("<i", 3))
            step, status, operation, whom, awaited, seen = list(bad_calls(pe, 3))[index]
            kind = INVALID if operation == OP_WAIT else status
            step.status = status
            later = Step("quiet", status=kind)
            run_programs(stage, world, group, {0: [[step, later]], 1: [[]], 2: [[]]}, seed=index)
            wanted = (CLAIMED, kind, operation, whom, 0, awaited & MASK64, seen)
            assert pe.read_fault() == wanted, f"{step}: {pe.read_fault()}, not {wanted}"
            assert peek(world.pes[1].user, 64) == bytes(64), f"{step} touched PE 1"


@cases.each("waits that end", GROUPS)
def waits_that_end(stage, group):
    """The budget passes, the peer has left, the context is aborted."""
    for why in ("timeout", "left", "aborted"):
        with World(stage.host, 2) as world:
            world.set_wait_budget(3_000_000 if why == "timeout" else 60_000_000_000)
            pe = world.pes[0]
            poke(pe.user, struct.pack("<i", -4))
            status = {"timeout": TIMEOUT, "left": PEER_DEAD, "aborted": ABORTED}[why]
            if why == "left":
                poke(pe.left + 4, struct.pack("<I", 1))
            if why == "aborted":
                poke(pe.abort_word, struct.pack("<Q", 1))
            wait = Step("wait_until", "i32", 1, CMP_GT, pe.user, value=-3)
            wait.gives = -4
            after = [
                Step("wait_until_equals", "i32", to=pe.user, value=0, status=status),
                Step("ended_status", status=status),
                Step("quiet", status=status),
                Step("barrier_all", status=status),
            ]
            # A GPU counts its barriers also when the context has ended.
            ignored = [(pe.device_epoch, 8)]
            run_programs(stage, world, group, {0: [[wait, *after]], 1: [[]]}, 2, ignored)
            if why == "aborted":
                assert pe.read_fault()[0] == 0
                continue
            awaited, seen = -3 & MASK64, -4 & MASK64
            assert pe.read_fault() == (CLAIMED, status, OP_WAIT, 1, 0, awaited, seen), why


# --- the kernels of shmem and of the device layer -------------------------------------------------


@cases.one("the barrier kernel")
def barrier_kernel(stage):
    """In one round, and over more PEs than that in several; each barrier sees all before it."""
    for pe_count, block, seed in ((1, 64, 1), (2, 256, 2), (4, 64, 3), (4, 1024, 4), (33, 64, 5)):
        with World(stage.host, pe_count) as world:
            for epoch in range(1, 4):
                tasks = [
                    Task(pe, "mori_shmem_barrier", pe.state_words(), block=block)
                    for pe in world.pes
                ]
                stage.run(world, tasks, seed)
                for pe in world.pes:
                    if pe_count <= 32 and pe_count > 1:
                        check_barrier_words(world, pe, epoch)
                    assert pe.read_fault()[0] == 0


@cases.one("host calls on a GPU's heap")
def host_call_kernel(stage):
    """host_call_args: the state, then 5 words, word_bytes, is_signal, operation, pe."""
    for width, operation, is_signal, before, after in (
        (8, AMO_COMPARE_SWAP, 0, 40, 7),
        (4, AMO_COMPARE_SWAP, 0, 40, 7),
        (8, SIGNAL_ADD, 1, 40, 47),
        (8, SIGNAL_SET, 1, 40, 7),
    ):
        with World(stage.host, 2) as world:
            pe, peer = world.pes
            poke(peer.user, struct.pack("<Q", 40))
            result = pe.private(16)
            words = struct.pack("<QQQQ", pe.user, 7, 40, result)
            words += struct.pack("<IIii", width, is_signal, operation, 1)
            task = Task(pe, "mori_shmem_host_call", pe.state_words() + words)
            stage.run(world, [task], seed=1)
            assert struct.unpack("<Q", peek(peer.user, 8)) == (after,)
            given = struct.unpack("<Qii", peek(result, 16))
            assert given == (0 if is_signal else before, 0, 0), given


@cases.one("changes that peers ask for over a network")
def apply_kernel(stage):
    """apply_args: where entries are, how many; an entry: address, value, compare, before, width,
    operation."""
    # Operation, value, compare, width, before it, after it.
    changes = (
        (SIGNAL_SET, 5, 0, 8, 40, 5),
        (SIGNAL_ADD, 6, 0, 8, 5, 11),
        (AMO_COMPARE_SWAP, 9, 11, 8, 11, 9),
        (AMO_COMPARE_SWAP, 1, 11, 8, 9, 9),
        (SIGNAL_ADD, 2**32 - 1, 0, 4, 9, 8),
    )
    for count in (0, len(changes)):
        with World(stage.host, 1) as world:
            (pe,) = world.pes
            poke(pe.user, struct.pack("<Q", 40))
            entries = b"".join(
                struct.pack("<QQQQIi", pe.user, value, compare, 0, width, operation)
                for operation, value, compare, width, _, _ in changes
            )
            at = pe.private(entries)
            task = Task(pe, "mori_shmem_apply", struct.pack("<QQ", at, count))
            stage.run(world, [task], seed=1)
            befores = [one[0] for one in struct.iter_unpack("<24xQ8x", peek(at, len(entries)))]
            assert befores == [one[4] if count else 0 for one in changes], befores
            last = changes[-1][5] if count else 40
            assert struct.unpack("<Q", peek(pe.user, 8)) == (last,)


@cases.one("all operations on one PE")
def all_operations(stage):
    """The compile check of the device API runs as well; blocks of several sizes."""
    for block in (64, 256):
        with World(stage.host, 1) as world:
            (pe,) = world.pes
            target = pe.symmetric(256)
            source, sink = pe.private(bytes(range(1, 65))), pe.private(64)
            words = struct.pack("<QQQiiii", target, source, sink, 0, AMO_COMPARE_SWAP + 1, 7, 0)
            task = Task(pe, "mori_shmem_all_operations", pe.state_words() + words, block=block)
            stage.run(world, [task], seed=block)
            assert pe.read_fault()[0] == 0
            assert peek(sink, 64) == bytes(range(1, 65))
            assert struct.unpack("<Q", peek(target + 128, 8)) == (2,)
            assert struct.unpack("<Q", peek(pe.device_epoch, 8)) == (3,)


@cases.one("meetings of a grid, collectives, rows")
def device_layer(stage):
    for seed, (grid, block) in enumerate(((1, 64), (4, 128), (7, 64), (3, 1024))):
        with World(stage.host, 1) as world:
            (pe,) = world.pes
            cells, wrong = pe.private(8 * grid), pe.private(8)
            words = struct.pack("<QQQ", cells, 5, wrong)
            task = Task(pe, "mori_test_lockstep", words, grid, block, host_blocks=grid)
            stage.run(world, [task], seed)
            assert peek(cells, 8 * grid) == struct.pack("<Q", 5) * grid
            assert peek(wrong, 8) == bytes(8)
            words = struct.pack("<Q", wrong)
            task = Task(pe, "mori_test_collectives", words, grid, block, host_blocks=grid)
            stage.run(world, [task], seed)
            assert peek(wrong, 8) == bytes(8), "collectives"


@cases.one("a block that does not come")
def deserter(stage):
    """The others give up when the budget has passed; the fault names this PE."""
    with World(stage.host, 1) as world:
        world.set_wait_budget(1_000_000)
        (pe,) = world.pes
        met = pe.private(8)
        words = struct.pack("<Q", met)
        stage.run(world, [Task(pe, "mori_test_deserter", words, 3, 128, host_blocks=3)], seed=1)
        assert peek(met, 8) == bytes(8)
        assert pe.read_fault() == (CLAIMED, TIMEOUT, OP_BARRIER, 0, 0, 1, 0), pe.read_fault()


@cases.one("conversions of rows")
def rows(stage):
    """All kinds of floats through all formats, the same bits as the host gives."""
    count, elements = 6, 1000
    for seed in cases.seeds(1):
        with World(stage.host, 1, private_bytes=1 << 18) as world:
            (pe,) = world.pes
            chance = cases.random(seed)
            x, y = (
                pe.private(b"".join(cases.float_bits(chance) for _ in range(count * elements)))
                for _ in range(2)
            )
            out, streamed = pe.private(2 * count * elements), pe.private(2 * count * elements)
            words = struct.pack("<QQQQQQfI", x, y, out, streamed, count, elements, 1.0, 0)
            task = Task(pe, "mori_test_rows", words, 2, 128, host_blocks=2)
            stage.run(world, [task], seed)
            data = peek(out, 2 * count * elements)
            assert data == peek(streamed, 2 * count * elements)
            assert len(set(data)) > 200


if __name__ == "__main__":
    sys.exit(cases.main())
