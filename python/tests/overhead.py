#!/usr/bin/env python3
"""What a call costs in Python: dispatch and combine over libraries that do nothing.

    python python/tests/overhead.py [--calls N] [--profile]

Compiles two libraries whose functions return at once, runs itself on them, and prints the median
time of a call, for numpy arrays and, if torch is there, torch CPU tensors. A GPU tensor takes the
same steps; what differs is one question for torch's current stream. The bound that test_overhead.py
keeps is a count of steps, since times depend on the machine.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SHMEM = """
#include <mori/shmem.h>
static char memory[1 << 16];
uint32_t mori_shmem_version(void) {
  return MORI_VERSION_PACK(MORI_SHMEM_VERSION_MAJOR, MORI_SHMEM_VERSION_MINOR, 0);
}
uint32_t mori_shmem_abi_level(void) { return 99; }
const char *mori_shmem_status_name(mori_status s) { return "MORI_E_?"; }
mori_status mori_shmem_create(const mori_shmem_unique_id *i, const mori_shmem_options *o,
                              mori_shmem **out, mori_error *e) {
  *out = (mori_shmem *)memory;
  return 0;
}
void mori_shmem_destroy(mori_shmem *s) {}
mori_status mori_shmem_lease_create(const mori_shmem *s, mori_shmem_lease **out, mori_error *e) {
  *out = (mori_shmem_lease *)memory;
  return 0;
}
void mori_shmem_lease_destroy(mori_shmem_lease *l) {}
mori_status mori_shmem_info(const mori_shmem *s, mori_shmem_report *r, mori_error *e) {
  r->backend = MORI_BACKEND_HOST;
  r->gpu_ordinal = -1;
  return 0;
}
"""
EP = """
#include <mori/ep.h>
static char memory[1 << 22];
uint32_t mori_ep_version(void) {
  return MORI_VERSION_PACK(MORI_EP_VERSION_MAJOR, MORI_EP_VERSION_MINOR, 0);
}
uint32_t mori_ep_abi_level(void) { return 99; }
const char *mori_ep_status_name(mori_status s) { return "MORI_E_?"; }
mori_status mori_ep_create(mori_shmem *s, const mori_ep_config *c, mori_ep **out, mori_error *e) {
  *out = (mori_ep *)memory;
  return 0;
}
void mori_ep_destroy(mori_ep *p) {}
mori_status mori_ep_dispatch(mori_ep *p, const mori_ep_dispatch_args *a, mori_ep_dispatch_result *r,
                             mori_error *e) {
  r->out = memory;
  r->weights = a->weights ? (float *)memory : 0;
  r->scales = a->scales ? memory : 0;
  r->indices = r->recv_count = (int32_t *)memory;
  r->recv_token_count = UINT64_MAX;
  return 0;
}
mori_status mori_ep_combine(mori_ep *p, const mori_ep_combine_args *a, mori_ep_combine_result *r,
                            mori_error *e) {
  r->out = memory;
  r->weights = a->weights ? (float *)memory : 0;
  return 0;
}
"""
TOKENS, HIDDEN, TOP_K, SCALES = 64, 512, 8, 4


def build(folder: Path) -> None:
    """Compiles the two libraries into `folder`."""
    for name, text in (("shmem", SHMEM), ("ep", EP)):
        source = folder / f"{name}.c"
        source.write_text(text)
        library = folder / f"libmori-{name}.so.0"
        flags = ["-shared", "-fPIC", "-O1", "-w", "-I", str(ROOT / "capi/include")]
        subprocess.run(["cc", *flags, str(source), "-o", str(library)], check=True, timeout=60)


def operator():
    """An operator over the libraries that do nothing."""
    from mori.ops import EpDispatchCombineConfig, EpDispatchCombineOp
    from mori.shmem import Context

    context = Context(bytes(128), 0, 1, backend="host")
    config = EpDispatchCombineConfig(
        rank=0,
        world_size=1,
        hidden_dim=HIDDEN,
        scale_dim=SCALES,
        scale_type_size=4,
        max_token_type_size=4,
        max_num_inp_token_per_rank=TOKENS,
        num_experts_per_rank=16,
        num_experts_per_token=TOP_K,
    )
    return context, EpDispatchCombineOp(config, context=context)


def arrays(library: str):
    """(tokens, weights, scales, indices) of one library."""
    import numpy as np

    made = (
        np.ones((TOKENS, HIDDEN), np.float32),
        np.ones((TOKENS, TOP_K), np.float32),
        np.ones((TOKENS, SCALES), np.float32),
        np.ones((TOKENS, TOP_K), np.int32),
    )
    if library == "numpy":
        return made
    import torch

    return tuple(map(torch.from_numpy, made))


def calls(op, library: str):
    """The calls that are measured, by name."""
    tokens, weights, scales, indices = arrays(library)
    return {
        "dispatch": lambda: op.dispatch(tokens, weights, None, indices),
        "dispatch with scales": lambda: op.dispatch(tokens, weights, scales, indices),
        "combine": lambda: op.combine(tokens, None, indices),
    }


def median_us(call, count: int) -> float:
    """Median over batches of the time of one call."""
    times = []
    for _ in range(15):
        start = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - start) / count * 1e6)
    return statistics.median(times)


def measure(options: argparse.Namespace) -> None:
    libraries = ["numpy"]
    try:
        import torch

        libraries.append("torch")
        print(f"torch {torch.__version__}")
    except ImportError:
        print("no torch here")
    context, op = operator()
    for library in libraries:
        for name, call in calls(op, library).items():
            call()
            print(f"{library:6s} {name:21s} {median_us(call, options.calls):6.2f} us")
            if options.profile:
                with cProfile.Profile() as profile:
                    for _ in range(options.calls):
                        call()
                pstats.Stats(profile).sort_stats("tottime").print_stats(14)
    op.close()
    context.finalize()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=3000, help="calls in a batch")
    parser.add_argument("--profile", action="store_true", help="also where the time goes")
    options = parser.parse_args()
    if os.environ.get("MORI_OVERHEAD") == "1":
        measure(options)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
        environment = {**os.environ, "MORI_LIBRARY_DIR": folder, "MORI_OVERHEAD": "1"}
        return subprocess.call([sys.executable, *sys.argv], env=environment, timeout=600)


if __name__ == "__main__":
    sys.exit(main())
