"""Cases of the multi suite: registered by decorator, run one after the other, one line each.

A case is a function of a random.Random; it raises processes.ExpectationError, or SkipError with the
reason. Each has a seed of its own, printed with the command that repeats it. MORI_MULTI_TRIALS
multiplies how often the random ones try.
"""

import argparse
import hashlib
import os
import pathlib
import random
import signal
import sys
import time
import traceback

import processes

TRIALS = int(os.environ.get("MORI_MULTI_TRIALS", "1"))
CASE_S = 150
registered = []


class SkipError(Exception):
    """The machine does not have what the case needs."""


def case(title):
    def register(function):
        registered.append((title, function))
        return function

    return register


def on_overrun(*_):
    raise processes.ExpectationError(f"the case did not end within {CASE_S} s")


def run_one(title, function, seed):
    signal.signal(signal.SIGALRM, on_overrun)
    signal.alarm(CASE_S)
    began = time.monotonic()
    try:
        figures = function(random.Random(seed)) or ""
        line, good = f"ok - {title}", True
    except SkipError as why:
        line, figures, good = f"skip - {title}", str(why), True
    except Exception as why:
        line, good = f"not ok - {title}", False
        is_finding = isinstance(why, processes.ExpectationError)
        figures = str(why) if is_finding else "".join(traceback.format_exception(why))
    finally:
        signal.alarm(0)
    print(f"{line} [{time.monotonic() - began:.1f} s] {figures}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("program", help="the built pe")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--only", default="", help="run the cases whose title contains this")
    arguments = parser.parse_args()
    processes.Process.program = arguments.program
    before = set(pathlib.Path("/dev/shm").iterdir())
    good = True
    for title, function in registered:
        if arguments.only not in title:
            continue
        own = hashlib.sha256(f"{arguments.seed} {title}".encode()).digest()
        seed = int.from_bytes(own[:4], "little")
        if not run_one(title, function, seed):
            good = False
            command = f"{sys.argv[0]} {arguments.program}"
            print(f"  repeat: {command} --seed {arguments.seed} --only '{title}'", flush=True)
    left = {
        path for path in set(pathlib.Path("/dev/shm").iterdir()) - before if "mori" in path.name
    }
    if left:
        good = False
        print(f"not ok - nothing is left in /dev/shm: {left}")
    return 0 if good else 1
