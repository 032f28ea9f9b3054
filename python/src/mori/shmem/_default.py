"""The default context of each thread, which the functions that mirror MORI's global ones use.

MORI keeps one group per process; here each thread may be a PE of its own. A thread that never
initialised (a data loader, autograd's workers) uses the process's only context, if there is
exactly one, so that code written for one group per process runs as it is.
"""

from __future__ import annotations

import os
import threading

from mori.errors import StateError
from mori.shmem._context import Context, living_contexts


class _ThreadDefault(threading.local):
    context: Context | None = None


_thread = _ThreadDefault()


def own_context() -> Context | None:
    """The living default of this thread, made in this process."""
    context = _thread.context
    if context is None or context.finalized or context.process != os.getpid():
        return None
    return context


def set_default_context(context: Context | None) -> None:
    """Makes `context` the default of the calling thread; None: it has none any more."""
    _thread.context = context


def current_context(context: Context | None = None) -> Context:
    """`context` if given, else the calling thread's default.

    StateError says what to do when there is none: not initialised, finalized, made before a
    fork, or several contexts to choose from.
    """
    chosen = context if context is not None else _thread.context
    if chosen is not None:
        chosen.refuse_dead()
        return chosen
    living = living_contexts()
    if len(living) == 1:
        return living[0]
    if living:
        raise StateError(
            f"this thread has no default shmem context and the process has {len(living)}: call "
            "mori.shmem.set_default_context(...) in this thread, or pass context="
        )
    raise StateError(
        "mori.shmem is not initialised: call shmem_torch_process_group_init, shmem_init_attr, or "
        "make a mori.shmem.Context and pass it as context="
    )
