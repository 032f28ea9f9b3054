"""Runs launches: every wave of every block of every launch takes turns, in random order and for a
random number of instructions when there is a seed. So kernels that wait for each other make
progress, and each seed shows another interleaving.

    machine = Machine(library, seed=3)
    machine.add(Launch(loaded, "kernel", grid=4, block=256, arguments=[...]))
    machine.add(...)                     # another PE
    machine.run()

Launches that are added with the same `stream` run one after the other.

All blocks count as resident. Memory is sequentially consistent: a missing fence goes unnoticed.
"""

import collections
import ctypes
import random

import emulator.decoder as decoder
from emulator.loader import Memory

WAVE_LANES = 64
TURN_OVER, AT_BARRIER, ENDED, UNKNOWN, YIELDED, BAD_ADDRESS = range(6)
STOPS = {"S_BARRIER": 1, "S_SLEEP": 2}
# tinygrad leaves the hardware id in the place of the inline constant 1 / (2 pi).
CONSTANT_INVERSE_TWO_PI, INVERSE_TWO_PI = 248, 0x3E22F983
INSTRUCTION_LIMIT = 200_000_000
SHOWN_WAVES = 8
PACES = (1, 1, 0.3, 0.02)
SCALAR_REGISTERS, VECTOR_REGISTERS, VCC, M0 = 102, 256, 106, 124


class Entry(ctypes.Structure):
    """As in machine.c."""

    _fields_ = (
        ("run", ctypes.c_void_p),
        ("arguments", ctypes.c_ubyte * decoder.ARRAY_COUNT),
        ("stops", ctypes.c_ubyte),
    )


class FaultError(Exception):
    """What a kernel did that a GPU would not have survived, or that never ends."""


def load_library(path):
    library = ctypes.CDLL(str(path))
    pointer, word = ctypes.c_void_p, ctypes.c_uint64
    library.run.argtypes = [pointer, word, word, pointer, pointer]
    library.last_bad_address.restype = word
    return library


class Code:
    """The instructions of one loaded object, each decoded when it is first met."""

    @classmethod
    def of(cls, library, loaded):
        if loaded.code is None:
            loaded.code = cls(library, loaded)
        return loaded.code

    def __init__(self, library, loaded):
        self.base = loaded.base
        self.count = loaded.memory.size // 4
        self.table = (Entry * self.count)()
        self.decoder = decoder.Decoder(library, loaded.file.architecture)
        self.keep = []

    def decode(self, address):
        index = (address - self.base) // 4
        if not 0 <= index < self.count:
            raise FaultError(f"jumps to {address:#x}, outside the code object")
        step = self.decoder.step_at(address)
        entry = self.table[index]
        entry.run = step.function
        for i, argument in enumerate(step.arguments):
            entry.arguments[i] = argument
        entry.stops = STOPS.get(step.name, 0)
        self.keep.append(step.keep)


class Wave:
    """`rubbish(n)` gives n bytes for what a GPU leaves as it was: registers, scratch."""

    def __init__(self, code, launch, place, first_lane, lds, rubbish):
        self.code, self.launch = code, launch
        self.place, self.index = place, first_lane // WAVE_LANES
        self.state = TURN_OVER
        self.registers = decoder.tinygrad()._init_wave(
            launch.entry,
            first_lane,
            launch.lane_count,
            *launch.block,
            launch.arguments.address,
            launch.resources2,
            launch.scratch_bytes,
            decoder.ARCHITECTURE,
            *place,
            launch.user_registers,
            WAVE_LANES,
        )
        self.registers._write_sgpr(CONSTANT_INVERSE_TWO_PI, INVERSE_TWO_PI)
        self.scratch = Memory(launch.scratch_bytes * WAVE_LANES, guarded=True)
        self.scratch.fill(rubbish(self.scratch.size))
        buffers = self.registers
        self._fill_registers(launch.set_register_count(), rubbish)
        self.arrays = (ctypes.c_uint64 * decoder.ARRAY_COUNT)(
            buffers.sgpr_buf._buf.va_addr,
            buffers.vgpr_buf._buf.va_addr,
            0,
            lds.address,
            self.scratch.address,
            buffers.accvgpr_buf._buf.va_addr,
        )

    def _fill_registers(self, set_count, rubbish):
        """All but those that are set at the start: some scalar ones, and v0."""
        scalar, vector = self.registers.sgpr_buf._buf, self.registers.vgpr_buf._buf
        for begin, end in ((set_count, SCALAR_REGISTERS), (VCC, VCC + 2), (M0, M0 + 1)):
            data = rubbish(4 * (end - begin))
            ctypes.memmove(scalar.va_addr + 4 * begin, data, len(data))
        data = rubbish(4 * WAVE_LANES * (VECTOR_REGISTERS - 1))
        ctypes.memmove(vector.va_addr + 4 * WAVE_LANES, data, len(data))

    def __str__(self):
        at = self.registers.pc - self.code.base
        return f"{self.launch.kernel} block {self.place} wave {self.index} at {at:#x}"


class Block:
    """The waves that share memory and barriers; `pace` is their chance of a turn in a round."""

    def __init__(self, code, launch, place, pace, rubbish):
        self.pace = pace
        self.lds = Memory(-(-launch.lds_bytes // 16) * 16, guarded=True)
        self.lds.fill(rubbish(self.lds.size))
        lanes = range(0, launch.lane_count, WAVE_LANES)
        self.waves = [Wave(code, launch, place, lane, self.lds, rubbish) for lane in lanes]

    def open_barrier(self):
        """Waves at a barrier go on when none of the block still runs."""
        if any(wave.state == TURN_OVER for wave in self.waves):
            return
        for wave in self.waves:
            if wave.state == AT_BARRIER:
                wave.state = TURN_OVER


class Stream:
    """Launches that run one after the other."""

    def __init__(self):
        self.waiting = collections.deque()  # (launch, what to call at its end)
        self.blocks, self.at_end = [], None

    def ended(self):
        return all(wave.state == ENDED for block in self.blocks for wave in block.waves)


class Machine:
    """With a seed, waves come in random order, their turns have random lengths, and some blocks are
    much slower than others. Nothing is zero that a GPU would not have set."""

    def __init__(self, library, seed=None, turn=200, limit=INSTRUCTION_LIMIT):
        self.library, self.turn, self.limit = library, turn, limit
        self.random = random.Random(seed) if seed is not None else None
        self.streams, self.instruction_count = {}, 0

    def add(self, launch, stream=None, at_end=None):
        """Launches of one stream follow each other; without one, they run beside all others."""
        if not launch.keeps_subnormals():
            raise ValueError(f"{launch.kernel} flushes subnormals, which is not emulated")
        key = stream if stream is not None else object()
        self.streams.setdefault(key, Stream()).waiting.append((launch, at_end))

    def run(self):
        """Until every launch has ended."""
        self.library.catch_faults(1)
        try:
            while turns := self._turns():
                self._round(turns)
        finally:
            self.library.catch_faults(0)
        self.streams = {}

    def _turns(self):
        """Starts what can start; (wave, block, stream) of all waves, in the order of this round."""
        turns = []
        for stream in self.streams.values():
            if stream.ended() and stream.waiting:
                self._start(stream)
            turns += [
                (wave, block, stream)
                for block in stream.blocks
                for wave in block.waves
                if wave.state != ENDED
            ]
        if self.random:
            self.random.shuffle(turns)
        return turns

    def _start(self, stream):
        launch, stream.at_end = stream.waiting.popleft()
        code = Code.of(self.library, launch.loaded)
        width, height, depth = launch.grid
        places = (
            (block % width, block // width % height, block // width // height)
            for block in range(width * height * depth)
        )
        pace = self.random.choice(PACES) if self.random else 1
        stream.blocks = [Block(code, launch, place, pace, self._rubbish) for place in places]
        if self.random and self.random.random() < 0.5:
            for block in stream.blocks:
                block.pace = self.random.choice(PACES)

    def _rubbish(self, count):
        return self.random.randbytes(count) if self.random else bytes([0xA5]) * count

    def _round(self, turns):
        """One turn for each wave that is not at a barrier, if its pace allows."""
        for wave, block, stream in turns:
            if wave.state != TURN_OVER or (block.pace < 1 and self.random.random() > block.pace):
                continue
            self._take_turn(wave)
            if wave.state != TURN_OVER:
                block.open_barrier()
            if wave.state == ENDED and stream.at_end and stream.ended():
                stream.at_end()
        if self.instruction_count > self.limit:
            waves = ", ".join(str(wave) for wave, _, _ in turns[:SHOWN_WAVES])
            raise FaultError(f"no end after {self.instruction_count} instructions: {waves}")

    def _take_turn(self, wave):
        length = self.random.randint(1, self.turn) if self.random else self.turn
        left = ctypes.c_long(length)
        outcome = UNKNOWN
        while outcome == UNKNOWN:
            code = wave.code
            outcome = self.library.run(
                code.table, code.base, code.count, wave.arrays, ctypes.byref(left)
            )
            if outcome == UNKNOWN:
                self._decode(wave)
        self.instruction_count += length - left.value
        if outcome == BAD_ADDRESS:
            raise FaultError(f"{wave}: access to {self.library.last_bad_address():#x}")
        wave.state = outcome if outcome in (AT_BARRIER, ENDED) else TURN_OVER

    def _decode(self, wave):
        try:
            wave.code.decode(wave.registers.pc)
        except (FaultError, decoder.UnsupportedError, RuntimeError) as error:
            raise FaultError(f"{wave}: {error}") from error
