"""Device bitcode of mori.shmem, for kernels of other compilers: where it is and what is in it.

    from mori.ir import find_bitcode, MORI_DEVICE_FUNCTIONS, SIGNAL_ADD, SIGNAL_SET

find_bitcode            path of the bitcode for a GPU architecture, that of the current device by
                        itself; get_bitcode_path is another name for it
MORI_DEVICE_FUNCTIONS   name -> {"symbol", "args", "ret", ...} of each function in it
SIGNAL_SET, SIGNAL_ADD  what a put with a signal does to the signal
mori.ir.triton          the functions for Triton kernels

A module that is linked with the bitcode needs mori.shmem.shmem_module_init(module) before its
kernels run. docs/device_bitcode.md shows it from the source to the launch.
"""

from __future__ import annotations

from mori.ir._bitcode import find_bitcode, get_bitcode_path
from mori.ir._functions import MORI_DEVICE_FUNCTIONS, SIGNAL_ADD, SIGNAL_SET

__all__ = [
    "MORI_DEVICE_FUNCTIONS",
    "SIGNAL_ADD",
    "SIGNAL_SET",
    "find_bitcode",
    "get_bitcode_path",
]
