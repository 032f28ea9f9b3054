"""Kernels for PEs that are threads of one process: one instance of the module for each context."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from triton.runtime.jit import JITFunction

from mori.shmem import Context, current_context


class PerContext:
    """Launches like the kernel it is made of, each context with an instance of its own."""

    def __init__(self, kernel: Any) -> None:
        if not isinstance(kernel, JITFunction):
            raise TypeError(
                f"per_context goes over a function under @triton.jit, not over a "
                f"{type(kernel).__name__}"
            )
        self.kernel = kernel
        self._instances: weakref.WeakKeyDictionary[Context, Any] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def instance(self, context: Context | None = None) -> Any:
        """The kernel of a context, the calling thread's by itself."""
        context = current_context(context)
        with self._lock:
            if context not in self._instances:
                kernel = self.kernel
                self._instances[context] = JITFunction(
                    kernel.fn,
                    version=kernel.version,
                    do_not_specialize=kernel.do_not_specialize,
                    do_not_specialize_on_alignment=kernel.do_not_specialize_on_alignment,
                    debug=kernel.debug,
                    noinline=kernel.noinline,
                    repr=kernel._repr,
                    launch_metadata=kernel.launch_metadata,
                )
            return self._instances[context]

    def prepare(self, *args: Any, grid: tuple[int, ...], **options: Any) -> None:
        """Compiles and loads the calling thread's instance for a launch with these arguments.
        Loading may wait for kernels that run: PEs that are threads do it, and meet, before the
        first of them launches a kernel that waits for another."""
        compiled = self.instance().warmup(*args, grid=grid, **options)
        compiled._init_handles()

    def __getitem__(self, grid: Any) -> Any:
        return self.instance()[grid]


def per_context(kernel: Any) -> PerContext:
    """A decorator over @triton.jit, for kernels that PEs in several threads launch."""
    return PerContext(kernel)
