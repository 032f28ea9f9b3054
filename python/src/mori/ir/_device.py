"""Which architecture the current GPU has: "gfx942", "sm_90".

Asked of torch when it is in the process, else of the driver, whose library is opened here for that
one question. MORI_GPU_ARCH answers it without either.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from mori._ffi import ffi
from mori.errors import UnavailableError

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
# Where hipDeviceProp_t of 6.0 and later has gcnArchName; the symbol's name carries the layout.
_ARCHITECTURE_OFFSET, _ARCHITECTURE_BYTES, _PROPERTIES_BYTES = 1160, 256, 4096
_CALLS = """
int cuInit(unsigned);
int cuCtxGetDevice(int *);
int cuDeviceGetAttribute(int *, int, int);
int hipGetDevice(int *);
int hipGetDevicePropertiesR0600(void *, int);
"""


def _calls_of(names: tuple[str, ...]) -> tuple[Any, str]:
    """The first of the libraries that can be opened; ("", why) if none can."""
    from cffi import FFI

    declared = FFI()
    declared.cdef(_CALLS)
    problems = []
    for name in names:
        try:
            return declared.dlopen(name), ""
        except OSError as error:
            problems.append(str(error))
    return None, "; ".join(problems)


def _nvidia() -> tuple[str, str]:
    cuda, problem = _calls_of(("libcuda.so.1",))
    if cuda is None:
        return "", problem
    device, numbers = ffi.new("int *"), [ffi.new("int *"), ffi.new("int *")]
    outcome = cuda.cuInit(0)
    # The thread's current device, else the first.
    if outcome == 0 and cuda.cuCtxGetDevice(device) != 0:
        device[0] = 0
    for number, which in zip(numbers, (_MAJOR, _MINOR), strict=True):
        if outcome == 0:
            outcome = cuda.cuDeviceGetAttribute(number, which, device[0])
    if outcome != 0:
        return "", f"libcuda.so.1 sees no device ({outcome})"
    return f"sm_{numbers[0][0]}{numbers[1][0]}", ""


def _amd() -> tuple[str, str]:
    hip, problem = _calls_of(("libamdhip64.so.7", "libamdhip64.so.6"))
    if hip is None:
        return "", problem
    device, properties = ffi.new("int *"), ffi.new("char[]", _PROPERTIES_BYTES)
    outcome = hip.hipGetDevice(device)
    if outcome == 0:
        outcome = hip.hipGetDevicePropertiesR0600(properties, device[0])
    if outcome != 0:
        return "", f"libamdhip64 sees no device ({outcome})"
    name = ffi.string(properties + _ARCHITECTURE_OFFSET, _ARCHITECTURE_BYTES).decode()
    return name.split(":")[0], ""


def _torch() -> str:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return ""
    facts = torch.cuda.get_device_properties(torch.cuda.current_device())
    if torch.version.hip:
        return str(facts.gcnArchName).split(":")[0]
    return f"sm_{facts.major}{facts.minor}"


def current_architecture() -> str:
    """Of the calling thread's current device. UnavailableError says what was tried."""
    named = os.environ.get("MORI_GPU_ARCH", "") or _torch()
    if named:
        return named
    nvidia, no_nvidia = _nvidia()
    if nvidia:
        return nvidia
    amd, no_amd = _amd()
    if amd:
        return amd
    raise UnavailableError(
        f"there is no GPU whose architecture could be asked for ({no_nvidia}; {no_amd}): name one, "
        'find_bitcode(arch="gfx942"), or set MORI_GPU_ARCH'
    )
