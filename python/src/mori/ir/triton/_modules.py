"""Gives the modules that Triton loads to the PE that launches them.

Triton loads a kernel's module once per process and device, at its first launch, and tells the hooks
of its `knobs`. When the kernel is linked with the device bitcode, its module is initialised with
the context of the thread that launches it; before each later launch it is made sure that this is
the same context still: one that was finalized is replaced by the thread's new one, and a second
living one, a PE that is another thread, is refused (see PerContext).
"""

from __future__ import annotations

import json
import threading
import weakref
from typing import Any

from triton import knobs

from mori.errors import NotFoundError, StateError
from mori.ir.triton._call import LIBRARY
from mori.shmem import Context, current_context


class _Loaded:
    """A module that is linked with the bitcode, and whose it is."""

    def __init__(self, name: str, module: int) -> None:
        self.name, self.module = name, module
        self.owner: weakref.ref[Context] | None = None
        self.lock = threading.Lock()

    def give_to(self, context: Context) -> bool:
        """False when the module has no state: it uses nothing of the library."""
        with self.lock:
            owner = self.owner() if self.owner is not None else None
            if owner is context:
                return True
            if owner is not None and not owner.finalized:
                raise StateError(
                    f"{self.name} was loaded for PE {owner.pe} of {owner.pe_count}, which lives in "
                    f"this process too, and is launched by PE {context.pe}: PEs that are threads "
                    "need an instance of the kernel each; put mori.ir.triton.per_context over it"
                )
            try:
                context.module_init(self.module)
            except NotFoundError:
                return False
            self.owner = weakref.ref(context)
            return True


_by_function: dict[int, _Loaded] = {}


def _is_linked(name: str, metadata_group: dict[str, Any]) -> bool:
    """Whether the kernel was compiled with the library among its extern_libs."""
    path = metadata_group.get(f"{name}.json") or next(
        (path for file, path in metadata_group.items() if file.endswith(".json")), None
    )
    if path is None:
        return True  # not known: the module itself answers
    with open(path, encoding="utf-8") as file:
        libraries = json.load(file).get("extern_libs") or []
    return any(one[0] == LIBRARY for one in libraries)


def _loaded(module: Any, function: Any, name: str, metadata_group: Any, _hash: Any) -> None:
    if not _is_linked(name, metadata_group):
        return
    one = _Loaded(name, int(module))
    try:
        context = current_context()
    except StateError:
        _by_function[int(function)] = one  # the launch needs one
        return
    if one.give_to(context):
        _by_function[int(function)] = one


def _launched(metadata: Any) -> None:
    function = metadata.data.get("function")
    one = _by_function.get(function)
    if one is None:
        return
    context, owner = current_context(), one.owner
    if (owner is None or owner() is not context) and not one.give_to(context):
        del _by_function[function]


def install_hook() -> None:
    """From now on each module that Triton loads and that is linked with the device bitcode is
    initialised with the launching thread's context (mori.shmem.set_default_context). Calling it
    again does nothing. Launches without a context raise StateError."""
    knobs.runtime.kernel_load_end_hook.add(_loaded)
    knobs.runtime.launch_enter_hook.add(_launched)


def remove_hook() -> None:
    """Undoes install_hook; modules that are loaded keep what they have."""
    knobs.runtime.kernel_load_end_hook.remove(_loaded)
    knobs.runtime.launch_enter_hook.remove(_launched)
