"""What the executing tests share: cases that are registered by decorators, seeds, the choice of
objects, the report, and the part of the record that says what ran.
"""

import json
import os
import pathlib
import random
import struct
import sys
import traceback

from code_object import CodeObject
from emulator.loader import LoadedObject
from emulator.machine import FaultError, load_library
from world import Stage, load_host

LONG = os.environ.get("MORI_TEST_LONG") == "1"
LONG_FACTOR = 10


class Cases:
    def __init__(self, usage):
        self.usage, self.found = usage, {}

    def one(self, title):
        def register(function):
            self.found[title] = function
            return function

        return register

    def each(self, title, values):
        def register(function):
            for value in values:
                self.found[f"{title}: {value}"] = lambda stage, v=value: function(stage, v)
            return function

        return register

    @staticmethod
    def seeds(count):
        """So many different schedules, or MORI_TEST_SEED alone."""
        if seed := os.environ.get("MORI_TEST_SEED"):
            return [int(seed)]
        return range(count * (LONG_FACTOR if LONG else 1))

    @staticmethod
    def random(seed):
        return random.Random(seed)

    @staticmethod
    def float_bits(chance):
        """A float of any size, subnormals and signed zeros included, no NaN and no infinity."""
        sign, fraction = chance.getrandbits(1), chance.getrandbits(23)
        exponent = chance.choice((0, 1, *range(100, 150), 253))
        return struct.pack("<I", sign << 31 | exponent << 23 | fraction)

    def main(self):
        """argv: host library, emulator library, where to leave what ran, code objects."""
        if len(sys.argv) < 5:
            print(self.usage)
            return 2
        host, emulator, record, *paths = sys.argv[1:]
        objects = [LoadedObject(CodeObject.read(path)) for path in paths]
        (architecture,) = {each.file.architecture for each in objects}
        stage = Stage(load_host(host), load_library(emulator), objects)
        good = True
        for title, case in self.found.items():
            if os.environ.get("MORI_TEST_CASE", title) != title:
                continue
            good &= run_case(f"{architecture}, {title}", lambda case=case: case(stage))
        pathlib.Path(record).write_text(json.dumps(what_ran(stage, objects)))
        print(f"{stage.instruction_count} instructions of waves were executed")
        return 0 if good else 1


def run_case(title, case):
    try:
        case()
        print(f"ok - executed, {title}", flush=True)
        return True
    except Exception as error:
        print(f"not ok - executed, {title}: {error}", flush=True)
        if not isinstance(error, (AssertionError, FaultError)):
            traceback.print_exc()
        return False


def what_ran(stage, objects):
    """One entry per code object of which a kernel ran."""
    entries = []
    for each in objects:
        kernels = {
            name: stage.executed[name] for name in each.file.kernels if name in stage.executed
        }
        if kernels:
            entries.append(
                {
                    "name": each.file.name,
                    "architecture": each.file.architecture,
                    "sha256": each.file.sha256,
                    "compiler": each.file.compiler,
                    "kernels": {
                        name: {key: sorted(values) for key, values in ran.items()}
                        for name, ran in sorted(kernels.items())
                    },
                }
            )
    return entries
