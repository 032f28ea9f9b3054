"""Programs for the kernels of program.hpp: lists of shmem operations, one per group of a launch,
and what each must give back. The numbers are those of mori/shmem.h and program.hpp.
"""

import dataclasses
import struct

OPERATIONS = (
    *("putmem_nbi", "put_nbi", "putmem_signal_nbi", "p", "put_size_imm_nbi"),
    *("getmem_nbi", "getmem", "get_nbi", "get"),
    *("atomic_fetch", "atomic_nonfetch", "atomic_fetch_add", "atomic_add"),
    *("wait_until", "wait_until_equals", "wait_until_greater_than"),
    *("quiet", "fence", "quiet_pe", "fence_pe", "barrier_all"),
    *("my_pe", "n_pes", "ptr", "ptr_p2p", "ended_status"),
)
ELEMENTS = ("u8", "u16", "u32", "u64", "i32", "i64", "f32", "f64")
SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i32": 4, "i64": 8, "f32": 4, "f64": 8}
STEP, OUTCOME, PROGRAM = struct.Struct("<IIiiQQQQQ"), struct.Struct("<QiI"), struct.Struct("<QQ")
MASK64 = (1 << 64) - 1

SIGNAL_SET, SIGNAL_ADD = 9, 10
AMO_INC, AMO_SET, AMO_ADD, AMO_AND, AMO_OR, AMO_XOR = range(2, 8)
AMO_FETCH, AMO_FETCH_INC, AMO_FETCH_ADD, AMO_FETCH_AND = range(12, 16)
AMO_FETCH_OR, AMO_FETCH_XOR, AMO_SWAP, AMO_COMPARE_SWAP = range(16, 20)
CMP_EQ, CMP_NE, CMP_GT, CMP_GE, CMP_LT, CMP_LE = range(1, 7)

OK = 0


@dataclasses.dataclass
class Step:
    what: str
    type: str = "u64"
    pe: int = 0
    code: int = 0
    to: int = 0
    source: int = 0
    count: int = 0
    value: int = 0
    compare: int = 0
    # What must come back; None: not known beforehand.
    gives: int = 0
    status: int = OK

    def pack(self):
        return STEP.pack(
            OPERATIONS.index(self.what),
            ELEMENTS.index(self.type),
            self.pe,
            self.code,
            *(x & MASK64 for x in (self.to, self.source, self.count, self.value, self.compare)),
        )


class Programs:
    """The programs of one launch of one PE, placed in its private memory."""

    def __init__(self, pe, lists):
        self.steps = [step for each in lists for step in each]
        steps = pe.private(b"".join(step.pack() for step in self.steps) or bytes(8))
        self.outcomes = pe.private(OUTCOME.size * max(len(self.steps), 1))
        spans, begin = [], 0
        for each in lists:
            spans.append(PROGRAM.pack(begin, begin + len(each)))
            begin += len(each)
        programs = pe.private(b"".join(spans))
        words = struct.pack("<QQQQ", steps, self.outcomes, programs, len(lists))
        self.arguments = pe.state_words() + words

    def check(self, peek, what):
        """Compares what came back with what each step must give."""
        data = peek(self.outcomes, OUTCOME.size * len(self.steps))
        for i, step in enumerate(self.steps):
            value, status, strangers = OUTCOME.unpack_from(data, OUTCOME.size * i)
            assert strangers == 0, f"{what}: step {i}, {step}: {strangers} lanes got something else"
            assert status == step.status, f"{what}: step {i}, {step}: status {status}"
            if step.gives is not None:
                given = step.gives & MASK64
                assert value == given, f"{what}: step {i}, {step}: gave {value:#x}, not {given:#x}"
