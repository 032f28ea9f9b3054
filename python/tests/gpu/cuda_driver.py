"""A handful of calls of NVIDIA's driver: loads a cubin and launches its kernels on torch's stream,
as a program does that has a compiler of its own."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch


class Module:
    """A cubin that is loaded in the current context."""

    def __init__(self, path: Path) -> None:
        torch.cuda.current_stream().synchronize()  # torch makes its context when it is needed
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._handle = ctypes.c_void_p()
        self._call("cuModuleLoad", ctypes.byref(self._handle), str(path).encode())

    def _call(self, name: str, *arguments: Any) -> None:
        outcome = getattr(self._cuda, name)(*arguments)
        if outcome != 0:
            raise RuntimeError(f"{name}: CUDA error {outcome}")

    @property
    def handle(self) -> int:
        return int(self._handle.value or 0)

    def unload(self) -> None:
        self._call("cuModuleUnload", self._handle)

    def function(self, name: str) -> ctypes.c_void_p:
        found = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(found), self._handle, name.encode())
        return found

    def launch(self, function: Any, grid: int, block: int, arguments: list[Any]) -> None:
        """Arguments are ctypes values, in the kernel's order."""
        pointers = (ctypes.c_void_p * len(arguments))(*[ctypes.addressof(one) for one in arguments])
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        shape = [*(grid, 1, 1), *(block, 1, 1), 0]
        self._call("cuLaunchKernel", function, *shape, stream, pointers, None)
