"""The device functions of mori.shmem for Triton kernels, on AMD and NVIDIA GPUs.

    import triton, triton.language as tl
    from mori.ir import triton as shmem

    shmem.install_hook()

    @triton.jit
    def push(symmetric, signal, count: tl.constexpr):
        right = (shmem.my_pe() + 1) % shmem.n_pes()
        shmem.putmem_nbi_signal_block(symmetric, symmetric, count * 4, signal, 1,
                                      shmem.SIGNAL_SET, right)
        shmem.uint64_wait_until_equals(signal, 1)

    push[(1,)](array, words, 1024, extern_libs=shmem.get_extern_libs())

A Triton program is one caller. Each call acts once for the program, whatever its number of warps:
_block functions by all its lanes together, _warp functions by those of its first warp, _thread
functions by one lane. What the program did before the call comes before it, what it does after it
comes later, and the result is a scalar that holds for the program. Arguments are scalars: pointers
or integers for addresses. my_pe, n_pes, ptr and ptr_p2p only look something up and take tensors
too. Results and meanings are those of docs/device_functions.md.

Loads and stores of Triton itself through a peer's address (ptr) work; to order them for a peer, end
with a signal or a barrier of this module, and wait with one of its waits before reading.
"""

from __future__ import annotations

import triton
from triton.language import constexpr

from mori.ir import _functions
from mori.ir._bitcode import content_path, find_bitcode
from mori.ir._functions import MORI_DEVICE_FUNCTIONS
from mori.ir.triton import _versions

_versions.check(triton.__version__)

from mori.ir.triton import _wrappers  # noqa: E402
from mori.ir.triton._call import LIBRARY  # noqa: E402
from mori.ir.triton._instances import PerContext, per_context  # noqa: E402
from mori.ir.triton._modules import install_hook, remove_hook  # noqa: E402
from mori.ir.triton._wrappers import *  # noqa: E402, F403

# For use in kernels, which may refer to constants of this kind alone.
SIGNAL_SET = constexpr(_functions.SIGNAL_SET)
SIGNAL_ADD = constexpr(_functions.SIGNAL_ADD)

for _name, _entry in MORI_DEVICE_FUNCTIONS.items():
    getattr(_wrappers, _name).__doc__ = _entry["doc"]

__all__ = [
    "SIGNAL_ADD",
    "SIGNAL_SET",
    "PerContext",
    "get_extern_libs",
    "install_hook",
    "per_context",
    "remove_hook",
    *MORI_DEVICE_FUNCTIONS,
]


def _current_target() -> str:
    """The architecture that Triton compiles for now."""
    target = triton.runtime.driver.active.get_current_target()
    return f"sm_{target.arch}" if target.backend == "cuda" else str(target.arch)


def get_extern_libs(arch: str | None = None) -> dict[str, str]:
    """What a launch passes as extern_libs=: the device bitcode for `arch`, by itself that of the
    GPU that Triton compiles for. Raises what mori.ir.find_bitcode does."""
    path = find_bitcode(arch or _current_target())
    # Triton's compilation cache knows a library of the AMD back end by its path.
    return {LIBRARY: content_path(path)}
