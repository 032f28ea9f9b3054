#!/usr/bin/env python3
"""The kernel of io, copies of many pieces, in the emulator: pieces of all sizes and alignments
between random places, compared with a model, byte for byte, what lies between them included.

usage: io_test.py HOST_LIBRARY EMULATOR_LIBRARY RECORD OBJECT ...
"""

import struct
import sys

from execution_case import Cases
from world import Task, World, peek, poke

cases = Cases(__doc__)
HEAP_BYTES = 1 << 16
SIZES = (0, 1, 3, 8, 15, 16, 17, 63, 64, 65, 255, 1024, 1040, 2049)


def random_pieces(chance, count):
    """(to, from, bytes): sources in the lower half, targets apart from each other in the upper."""
    at, pieces = HEAP_BYTES // 2, []
    for _ in range(count):
        size = chance.choice(SIZES)
        at += chance.choice((0, 1, 8, 16))
        if at + size > HEAP_BYTES:
            break
        pieces.append((at, chance.randrange(4096, HEAP_BYTES // 2 - size), size))
        at += size
    chance.shuffle(pieces)
    return pieces


@cases.each("pieces of all sizes, seed", Cases.seeds(6))
def copy_pieces(stage, seed):
    chance = Cases.random(seed)
    for count in (0, 1, 2, 60):
        with World(stage.host, 1, HEAP_BYTES) as world:
            (pe,) = world.pes
            before = chance.randbytes(HEAP_BYTES)
            poke(pe.heap, before)
            pieces = random_pieces(chance, count)
            expected = bytearray(before)
            for to, begin, size in pieces:
                expected[to : to + size] = before[begin : begin + size]
            listed = [(pe.heap + to, pe.heap + begin, size) for to, begin, size in pieces]
            poke(pe.private_memory, b"".join(struct.pack("<QQQ", *one) for one in listed))
            arguments = struct.pack("<QQ", pe.private_memory, len(pieces))
            task = Task(pe, "mori_io_copy_pieces", arguments, chance.choice((1, 3)), 256)
            stage.in_emulator(world, [[task]], seed)
            found = peek(pe.heap, HEAP_BYTES)
            wrong = [i for i in range(HEAP_BYTES) if found[i] != expected[i]]
            assert not wrong, (
                f"{len(pieces)} pieces: {len(wrong)} bytes differ, first {wrong[0]:#x}"
            )


if __name__ == "__main__":
    sys.exit(cases.main())
