"""Random programs of puts, gets, signals and atomics with a model of what they leave behind. Each
writer (a group of one PE) has a column of its own on every PE, so that all results are known; what
several writers add to together are counters whose values before are not asked for.
"""

import random
import struct

from shmem.steps import (
    AMO_ADD,
    AMO_AND,
    AMO_COMPARE_SWAP,
    AMO_FETCH,
    AMO_FETCH_ADD,
    AMO_FETCH_AND,
    AMO_FETCH_INC,
    AMO_FETCH_OR,
    AMO_FETCH_XOR,
    AMO_INC,
    AMO_OR,
    AMO_SET,
    AMO_SWAP,
    AMO_XOR,
    MASK64,
    SIGNAL_ADD,
    SIZES,
    Step,
)

COUNTERS = 4
FETCHING = {
    AMO_FETCH: lambda old, value, compare: old,
    AMO_FETCH_INC: lambda old, value, compare: old + 1,
    AMO_FETCH_ADD: lambda old, value, compare: old + value,
    AMO_FETCH_AND: lambda old, value, compare: old & value,
    AMO_FETCH_OR: lambda old, value, compare: old | value,
    AMO_FETCH_XOR: lambda old, value, compare: old ^ value,
    AMO_SWAP: lambda old, value, compare: value,
    AMO_COMPARE_SWAP: lambda old, value, compare: value if old == compare else old,
    AMO_INC: lambda old, value, compare: old + 1,
    AMO_SET: lambda old, value, compare: value,
    AMO_ADD: lambda old, value, compare: old + value,
    AMO_AND: lambda old, value, compare: old & value,
    AMO_OR: lambda old, value, compare: old | value,
    AMO_XOR: lambda old, value, compare: old ^ value,
}
# What a group's typed operations know; see for_type and for_word in program.hpp.
TYPES = {"lane": ("u8", "u16", "u32", "u64", "f32", "f64"), "other": ("u32", "f64")}
WORDS = {"lane": ("u32", "u64", "i32", "i64"), "other": ("u64", "i32")}


def extended(value, kind):
    """An integer of the type as a result word: sign or zero extended to 64 bits."""
    bits = 8 * SIZES[kind]
    value &= (1 << bits) - 1
    if kind[0] == "i" and value >> (bits - 1):
        value -= 1 << bits
    return value & MASK64


class Writer:
    """Makes the program of one group and keeps the model. `column(pe)` is the address of its column
    as a symmetric address of the own PE, `counters` that of the shared words."""

    def __init__(self, pe, pe_count, group, places, chance):
        self.pe, self.pe_count, self.random = pe, pe_count, chance
        kind = "lane" if group == "lane" else "other"
        self.types, self.words = TYPES[kind], WORDS[kind]
        self.column, self.column_bytes, self.counters = places
        content = self.random.randbytes(self.column_bytes)
        self.source, self.given = pe.private(content), content
        self.sink = pe.private(self.column_bytes)
        self.sunk = bytearray(self.column_bytes)
        self.model = [bytearray(self.column_bytes) for _ in range(pe_count)]
        self.added = [[0] * COUNTERS for _ in range(pe_count)]
        self.steps, self.touched = [], set()

    def settle(self, *things):
        """Accesses of different lanes to one place need a meeting between them."""
        if self.touched & set(things):
            what = self.random.choice(("quiet", "fence", "quiet_pe", "fence_pe"))
            self.steps.append(Step(what, pe=self.random.randrange(self.pe_count)))
            self.touched = set()
        self.touched |= set(things)

    def span(self, unit=1):
        """(offset, size) within the column, multiples of the unit, possibly empty."""
        units = self.column_bytes // unit
        begin = self.random.randrange(units + 1)
        count = self.random.randrange(min(units - begin, 40) + 1)
        return begin * unit, count * unit

    def store(self, target, at, data):
        self.model[target][at : at + len(data)] = data

    def put(self, target):
        typed = self.random.random() < 0.5
        kind = self.random.choice(self.types)
        unit = SIZES[kind] if typed else 1
        at, size = self.span(unit)
        start = self.random.randrange((self.column_bytes - size) // unit + 1) * unit
        self.settle(("column", target))
        step = Step("put_nbi" if typed else "putmem_nbi", kind, target, to=self.column + at)
        step.source, step.count = self.source + start, size // unit
        self.steps.append(step)
        self.store(target, at, self.given[start : start + size])

    def put_with_signal(self, target):
        at, size = self.span()
        counter, value = self.random.randrange(COUNTERS), self.random.getrandbits(64)
        self.settle(("column", target))
        self.steps.append(
            Step(
                "putmem_signal_nbi",
                pe=target,
                code=SIGNAL_ADD,
                to=self.column + at,
                source=self.source,
                count=size,
                value=value,
                compare=self.counters + 8 * counter,
            )
        )
        self.store(target, at, self.given[:size])
        self.added[target][counter] += value

    def put_one(self, target):
        kind = self.random.choice((*self.words, "f32", "f64"))
        size = SIZES[kind]
        at = self.random.randrange(self.column_bytes // size) * size
        value = self.random.getrandbits(8 * size)
        if kind in ("f32", "f64"):  # bits of a plain number: a NaN would change on its way
            value = int.from_bytes(
                struct.pack("<f" if kind == "f32" else "<d", self.random.uniform(-9, 9)), "little"
            )
        self.settle(("column", target))
        self.steps.append(Step("p", kind, target, to=self.column + at, value=value))
        self.store(target, at, value.to_bytes(size, "little"))

    def put_immediate(self, target):
        size = self.random.choice((1, 2, 4, 8, 16))
        at = self.random.randrange(self.column_bytes - size + 1)
        self.settle(("column", target))
        step = Step("put_size_imm_nbi", pe=target, to=self.column + at, source=self.source)
        step.count = size
        self.steps.append(step)
        self.store(target, at, self.given[:size])

    def get(self, target):
        what = self.random.choice(("getmem_nbi", "getmem", "get_nbi", "get"))
        kind = self.random.choice(self.types)
        unit = SIZES[kind] if what.startswith("get_") or what == "get" else 1
        at, size = self.span(unit)
        self.settle(("column", target), "sink")
        self.steps.append(
            Step(
                what,
                kind,
                target,
                to=self.sink + at,
                source=self.column + at,
                count=size // unit,
            )
        )
        self.sunk[at : at + size] = self.model[target][at : at + size]

    def atomic(self, target):
        kind = self.random.choice(self.words)
        size = SIZES[kind]
        at = self.random.randrange(self.column_bytes // size) * size
        old = int.from_bytes(self.model[target][at : at + size], "little")
        value = self.random.getrandbits(8 * size)
        compare = self.random.choice((old, self.random.getrandbits(8 * size)))
        what = self.random.choice(
            ("atomic_fetch", "atomic_nonfetch", "atomic_fetch_add", "atomic_add")
        )
        code = self.random.choice(list(FETCHING))
        new = FETCHING[AMO_ADD if what.endswith("add") else code](old, value, compare)
        self.settle(("column", target))
        self.steps.append(
            Step(what, kind, target, code, self.column + at, value=value, compare=compare)
        )
        self.steps[-1].gives = extended(old, kind) if "_fetch" in what else 0
        self.store(target, at, (new & (1 << 8 * size) - 1).to_bytes(size, "little"))

    def add_together(self, target):
        counter, value = self.random.randrange(COUNTERS), self.random.getrandbits(64)
        to = self.counters + 8 * counter
        if self.random.random() < 0.5:
            self.steps.append(Step("atomic_add", "u64", target, to=to, value=value))
        else:
            self.steps.append(Step("atomic_nonfetch", "u64", target, AMO_ADD, to, value=value))
        self.added[target][counter] += value

    def ask(self, target, bases):
        """Questions that touch no memory of peers."""
        offset = self.column - self.pe.heap
        other = self.random.randrange(self.pe_count)
        self.steps.append(
            self.random.choice(
                (
                    Step("my_pe", gives=self.pe.index),
                    Step("n_pes", gives=self.pe_count),
                    Step("ended_status"),
                    Step("ptr", pe=target, to=self.column, gives=bases[target] + offset),
                    Step("ptr", pe=self.pe_count, to=self.column),
                    Step("ptr", pe=target, to=self.pe.heap - 1),
                    Step(
                        "ptr_p2p",
                        pe=other,
                        code=target,
                        to=bases[other] + offset,
                        gives=bases[target] + offset,
                    ),
                )
            )
        )

    def write(self, count, bases):
        choices = (self.put, self.put_with_signal, self.put_one, self.put_immediate, self.get)
        choices += (self.atomic, self.add_together)
        for _ in range(count):
            target = self.random.randrange(self.pe_count)
            if self.random.random() < 0.1:
                self.ask(target, bases)
            else:
                self.random.choice(choices)(target)


def random_writers(pes, group, instances, column_bytes, step_count, seed):
    """A writer for each group of each PE: {pe index: [writers]}, and where the counters lie."""
    chance = random.Random(seed)
    columns = [pe.symmetric(len(pes) * instances * column_bytes) for pe in pes]
    counters = [pe.symmetric(8 * COUNTERS) for pe in pes]
    bases = [pe.heap for pe in pes]
    found = {}
    for pe in pes:
        for instance in range(instances):
            at = (pe.index * instances + instance) * column_bytes
            places = (columns[pe.index] + at, column_bytes, counters[pe.index])
            writer = Writer(pe, len(pes), group, places, chance)
            writer.write(step_count, bases)
            found.setdefault(pe.index, []).append(writer)
    return found, counters
