#!/usr/bin/env python3
"""What a submission costs in Python: batches over a library whose functions return at once.

    python python/tests/io_overhead.py [--calls N]

Compiles the library, runs itself on it, and prints nanoseconds per operation. test_io_overhead.py
holds the number of steps, since times depend on the machine; tests/bench measures the real thing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Every handle is the same memory; a transfer is done when it is made.
LIBRARY = """
#include <mori/io.h>
#include <string.h>
static char memory[64];
uint32_t mori_io_version(void) {
  return MORI_VERSION_PACK(MORI_IO_VERSION_MAJOR, MORI_IO_VERSION_MINOR, 0);
}
uint32_t mori_io_abi_level(void) { return 99; }
const char *mori_io_status_name(mori_status s) { return "MORI_E_?"; }
mori_status mori_io_create(const mori_io_options *o, mori_io **out, mori_error *e) {
  *out = (mori_io *)memory;
  return 0;
}
void mori_io_destroy(mori_io *io) {}
mori_status mori_io_event_fd(mori_io *io, int32_t *fd, mori_error *e) { *fd = 0; return 0; }
mori_status mori_io_memory_register(mori_io *io, void *m, uint64_t n, int32_t l, int32_t d,
                                    int32_t a, uint32_t *id, mori_error *e) {
  *id = 1;
  return 0;
}
mori_status mori_io_memory_desc(const mori_io *io, uint32_t id, void *out, uint64_t *n,
                                mori_error *e) {
  *n = 8;
  if (out) memset(out, 1, 8);
  return 0;
}
mori_status mori_io_memory_inspect(const void *d, uint64_t n, mori_io_memory_report *r,
                                   mori_error *e) {
  strcpy(r->engine_key, "a");
  r->id = 1;
  r->location = MORI_IO_LOCATION_CPU;
  return 0;
}
mori_status mori_io_session_create(mori_io *io, uint32_t id, const void *d, uint64_t n,
                                   const mori_io_session_options *o, mori_io_session **out,
                                   mori_error *e) {
  *out = (mori_io_session *)memory;
  return 0;
}
void mori_io_session_destroy(mori_io_session *s) {}
uint64_t mori_io_allocate_uid(mori_io *io) { return 1; }
mori_status mori_io_submit(mori_io_session *s, const mori_io_request *r, mori_io_transfer **out,
                           mori_error *e) {
  *out = (mori_io_transfer *)memory;
  return 0;
}
mori_status mori_io_transfer_info(const mori_io_transfer *t, mori_io_transfer_report *r,
                                  mori_error *e) {
  r->is_done = 1;
  return 0;
}
mori_status mori_io_transfer_wait(const mori_io_transfer *const *t, uint64_t n, uint64_t ns,
                                  mori_error *e) { return 0; }
void mori_io_transfer_release(mori_io_transfer *t) {}
"""


def build(folder: Path) -> None:
    """Compiles the library into `folder`."""
    source = folder / "io.c"
    source.write_text(LIBRARY)
    library = folder / "libmori-io.so.0"
    flags = ["-shared", "-fPIC", "-O1", "-w", "-I", str(ROOT / "capi/include")]
    subprocess.run(["cc", *flags, str(source), "-o", str(library)], check=True, timeout=60)


def calls():
    """(calls by name, operations in each); the first of them has a batch of arrays."""
    import numpy as np
    from mori.io import IOEngine

    engine = IOEngine("a")
    memory = engine.register_memory(4096, 4096)
    session = engine.create_session(memory, memory)
    array = np.arange(128, dtype=np.uint64)
    numbers = array.tolist()
    return {
        "batch of 128, arrays": (lambda: session.batch_write(array, array, array, 1), 128),
        "batch of 128, lists": (lambda: session.batch_write(numbers, numbers, numbers, 1), 128),
        "batch of 128 by engine": (
            lambda: engine.batch_write(memory, array, memory, array, array, 1),
            128,
        ),
        "single": (lambda: session.write(0, 0, 8, 1), 1),
        "single, submitted and waited": (lambda: session.write(0, 0, 8, 1).Wait(), 1),
    }


def median_ns(call, count: int) -> float:
    """Median over batches of the time of one call."""
    times = []
    for _ in range(15):
        start = time.perf_counter_ns()
        for _ in range(count):
            call()
        times.append((time.perf_counter_ns() - start) / count)
    return statistics.median(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=3000, help="calls in a batch")
    options = parser.parse_args()
    if os.environ.get("MORI_OVERHEAD") == "1":
        for name, (call, operations) in calls().items():
            print(f"{name:30s} {median_ns(call, options.calls) / operations:8.1f} ns per operation")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
        environment = {**os.environ, "MORI_LIBRARY_DIR": folder, "MORI_OVERHEAD": "1"}
        return subprocess.call([sys.executable, *sys.argv], env=environment, timeout=600)


if __name__ == "__main__":
    sys.exit(main())
