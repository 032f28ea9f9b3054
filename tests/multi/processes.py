"""PE processes as a driver sees them: commands with deadlines, progress words, what they hold.

A Process runs the program pe (pe.cpp). A Crew is the PEs of one group; it replaces those that were
killed, and knows how to make a group, to see that everybody names the one who failed, and to prove
that afterwards nothing is left behind and a new group works.
"""

import contextlib
import mmap
import os
import pathlib
import queue
import re
import signal
import struct
import subprocess
import tempfile
import threading
import time

import statuses

LIFETIME_S = 170
WORDS = ("call_count", "round_count", "phase", "gate_reached")
HEAP_NAME = "mori-segment"

# What a message must say by: a closed connection is reported within a second. Overridden where a
# machine is known to be slower than its clock.
CLOSED_S = float(os.environ.get("MORI_MULTI_CLOSED_S", "1.0"))
REPLY_S = 30


class ExpectationError(Exception):
    """An expectation that did not hold."""


def expect(good, what):
    if not good:
        raise ExpectationError(what)


class Reply:
    def __init__(self, line, at):
        number, took, text = (*line.rstrip("\n").split(" ", 2), "")[:3]
        self.status, self.ms, self.text, self.at = int(number), float(took), text, at

    @property
    def name(self):
        return statuses.NAMES.get(self.status, str(self.status))

    def __repr__(self):
        return f"{self.name} after {self.ms:.0f} ms: {self.text}"


class Process:
    program = None  # set by cases.main

    def __init__(self, environment=None, prefix=()):
        self.control = tempfile.NamedTemporaryFile(prefix="mori-multi-")  # noqa: SIM115
        self.control.truncate(4096)
        self.line = mmap.mmap(self.control.fileno(), 4096)
        gate, self.gate = os.pipe()
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.replies = queue.Queue()
        self.popen = subprocess.Popen(
            [*prefix, self.program, self.control.name, str(gate), str(LIFETIME_S)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            pass_fds=[gate],
            env={**os.environ, "MORI_LOG_LEVEL": "error", **(environment or {})},
        )
        os.close(gate)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.idle_state = None

    def _read(self):
        for line in self.popen.stdout:
            self.replies.put(Reply(line, time.monotonic()))
        self.replies.put(None)

    @property
    def pid(self):
        return self.popen.pid

    def send(self, *words):
        self.popen.stdin.write(" ".join(map(str, words)) + "\n")
        self.popen.stdin.flush()

    def receive(self, timeout_s=REPLY_S):
        try:
            reply = self.replies.get(timeout=timeout_s)
        except queue.Empty:
            raise ExpectationError(f"pid {self.pid} did not answer within {timeout_s} s") from None
        if reply is None:
            code = self.popen.wait(5)
            self.errors.seek(0)
            raise ExpectationError(f"pid {self.pid} ended with {code}: {self.errors.read()[-500:]}")
        return reply

    def call(self, *words, timeout_s=REPLY_S):
        self.send(*words)
        return self.receive(timeout_s)

    def ok(self, *words, timeout_s=REPLY_S):
        reply = self.call(*words, timeout_s=timeout_s)
        expect(reply.status == 0, f"{words[0]}: {reply}")
        return reply.text

    def word(self, name):
        return struct.unpack_from("<Q", self.line, 8 * WORDS.index(name))[0]

    def open_gate(self):
        os.write(self.gate, b"o")

    def await_word(self, name, value, timeout_s=REPLY_S):
        """Until the word is at least value. Polls: the word is memory that both map."""
        deadline = time.monotonic() + timeout_s
        while self.word(name) < value:
            expect(time.monotonic() < deadline, f"pid {self.pid}: {name} stayed below {value}")
            expect(self.popen.poll() is None, f"pid {self.pid} ended before {name} was {value}")
            time.sleep(0.0005)

    def signal(self, number):
        """Sends it, and says when."""
        now = time.monotonic()
        os.kill(self.pid, number)
        return now

    def end(self):
        """At once and without asking; collects the process."""
        with contextlib.suppress(ProcessLookupError):
            self.popen.kill()
        self.popen.wait(10)
        self.reader.join(10)
        for file in (self.popen.stdin, self.popen.stdout, self.errors):
            with contextlib.suppress(BrokenPipeError):
                file.close()
        os.close(self.gate)
        self.line.close()
        self.control.close()

    def is_alive(self):
        return self.popen.poll() is None

    def holds(self):
        """Descriptors, threads, and mappings and descriptors of heaps."""
        folder = pathlib.Path("/proc") / str(self.pid)
        targets = []
        for entry in (folder / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                targets.append(str(entry.readlink()))
        heaps = sum(HEAP_NAME in line for line in (folder / "maps").read_text().splitlines())
        return {
            "descriptors": len(targets),
            "threads": len(list((folder / "task").iterdir())),
            "heap mappings": heaps,
            "heap descriptors": sum(HEAP_NAME in target for target in targets),
        }

    def resident_kib(self, leave_out=(HEAP_NAME, "test-arrays")):
        """Resident memory but for mappings whose name contains one of leave_out."""
        total, counted = 0, True
        for line in pathlib.Path(f"/proc/{self.pid}/smaps").read_text().splitlines():
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                counted = not any(name in line for name in leave_out)
            elif counted and line.startswith("Rss:"):
                total += int(line.split()[1])
        return total


def names_pe(text, pe):
    return re.search(rf"\bPE {pe}\b", text) is not None


class Crew:
    """The PEs 0 .. size - 1. Every group they make lies in the same slot of each process."""

    options = {"heap_mib": 64, "boot_ms": 20000, "wait_ms": 20000, "beat_ms": 10000}  # noqa: RUF012
    large = (4096, 128)  # hidden size, tokens: some megabytes for each PE
    small = (256, 16)

    def __init__(self, size, environment=None):
        self.environment = environment
        self.members = [Process(environment) for _ in range(size)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.members:
            process.end()

    def __getitem__(self, pe):
        return self.members[pe]

    def __len__(self):
        return len(self.members)

    def others(self, pe):
        return [(other, process) for other, process in enumerate(self.members) if other != pe]

    def send_all(self, *words):
        for process in self.members:
            process.send(*words)

    def all_ok(self, *words):
        self.send_all(*words)
        replies = [process.receive() for process in self.members]
        for pe, reply in enumerate(replies):
            expect(reply.status == 0, f"{words[0]} on PE {pe}: {reply}")
        return replies

    def send_create(self, pes=None, unique_id=None, **options):
        unique_id = unique_id or self.members[0].ok("id")
        settings = [f"{key}={value}" for key, value in {**self.options, **options}.items()]
        for pe in range(len(self)) if pes is None else pes:
            self.members[pe].send("create", 0, unique_id, pe, len(self), *settings)
        return unique_id

    def join(self, **options):
        self.send_create(**options)
        for pe, process in enumerate(self.members):
            reply = process.receive()
            expect(reply.status == 0, f"create on PE {pe}: {reply}")

    def make_layer(self, shape, cap=0):
        self.all_ok("layer", 0, *shape, cap)

    def run_round(self):
        """One dispatch and combine; all values as they must be."""
        for reply in self.all_ok("loop", 0, 1):
            expect(reply.text.endswith("wrong=0"), f"wrong values: {reply}")

    def warm_up(self):
        """Makes whatever the library makes once, and notes what each process holds when idle."""
        self.join()
        self.make_layer(self.small)
        self.run_round()
        self.all_ok("destroy", 0)
        for process in self.members:
            process.idle_state = process.holds()
            expect(process.idle_state["heap mappings"] == 0, f"{process.idle_state} after destroy")

    def replace(self, pe):
        """A fresh process for a PE that was ended, past its start."""
        self.members[pe].end()
        self.members[pe] = Process(self.environment)
        self.members[pe].ok("gate", 0, "none")

    def await_naming(self, pe, since, within_s, statuses_allowed, among=None):
        """Everybody else's pending call fails in time, and the text names that PE."""
        latest = 0.0
        for other, process in self.others(pe):
            if among is not None and other not in among:
                continue
            reply = process.receive()
            where = f"PE {other}: {reply}"
            expect(reply.status in statuses_allowed, f"{where}; expected {statuses_allowed}")
            expect(names_pe(reply.text, pe), f"{where}; it does not name PE {pe}")
            # "dispatch received=12 wrong=0: ..." of a loop.
            expect("wrong=" not in reply.text or " wrong=0" in reply.text, f"wrong values, {where}")
            late_s = reply.at - since
            expect(late_s <= within_s, f"{where}; after {late_s:.2f} s, the limit is {within_s} s")
            latest = max(latest, late_s)
        return latest

    def prove_clean(self, rejoin=True):
        """After a fault: all can leave, hold what they held before, and make a new group (which the
        caller does where rejoin is False)."""
        for pe, process in enumerate(self.members):
            if not process.is_alive():  # collects it, too
                self.replace(pe)
        survivors = [process for process in self.members if process.idle_state]
        for process in survivors:
            process.send("destroy", 0)
        for process in survivors:
            reply = process.receive()
            expect(reply.ms <= 2000, f"destroy took {reply.ms} ms")
            now = process.holds()
            expect(now == process.idle_state, f"holds {now}, before it was {process.idle_state}")
        for process in self.members:
            process.idle_state = process.idle_state or process.holds()
        if rejoin:
            self.warm_up()

    def kill(self, pe):
        """Says when it was gone: a connection closes when the kernel has taken a process apart."""
        self.members[pe].signal(signal.SIGKILL)
        os.waitid(os.P_PID, self.members[pe].pid, os.WEXITED | os.WNOWAIT)
        return time.monotonic()
