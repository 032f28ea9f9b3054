"""A call of a device function in a Triton kernel: arguments become the function's types, and the
function is the one that acts once for a program.

Triton executes a scalar call in every lane of a program. What only looks something up may be called
so, on tensors too, element by element. All else is called under its program_symbol, which all lanes
call and which acts once; called on a tensor it would act an unknown number of times, for Triton
keeps elements in several lanes, and is refused.
"""

from __future__ import annotations

from typing import Any

from triton.language import core

from mori.ir._functions import MORI_DEVICE_FUNCTIONS

# Triton's AMD back end links a library when this is part of the name of a function that it lacks.
LIBRARY = "mori_shmem"
_TYPES = {
    name: getattr(core, name)
    for name in (
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float32", "float64"),
    )
}


def _argument(function: str, name: str, value: Any, kind: str, pure: bool, semantic: Any) -> Any:
    wanted = _TYPES[kind]
    value = semantic.to_tensor(value)
    if value.type.is_block() and not pure:
        raise TypeError(
            f"{function}: {name} is a tensor of shape {list(value.type.shape)}; a call acts once "
            "for the program, so its arguments are scalars"
        )
    given = value.type.scalar
    if given == wanted:
        return value
    if given.is_ptr() and kind != "uint64":
        raise TypeError(f"{function}: {name} is a pointer, expected {kind}")
    if given.is_floating() != wanted.is_floating():
        raise TypeError(f"{function}: {name} is {given}, expected {kind}")
    return semantic.cast(value, wanted)


def call(function: str, arguments: tuple[Any, ...], semantic: Any) -> Any:
    """What a wrapper does: adds the call to the kernel that is being compiled."""
    entry = MORI_DEVICE_FUNCTIONS[function]
    pure = entry.get("pure", False)
    if semantic is None:
        raise ValueError(f"{function} can be called in functions under @triton.jit alone")
    values = [
        _argument(function, name, value, kind, pure, semantic)
        for name, value, kind in zip(entry["arg_names"], arguments, entry["args"], strict=True)
    ]
    types = tuple(_TYPES[kind] for kind in entry["args"])
    target = {types: (entry["program_symbol"], _TYPES[entry["ret"]])}
    return core.extern_elementwise(LIBRARY, "", values, target, is_pure=pure, _semantic=semantic)
