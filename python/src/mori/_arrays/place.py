"""Place: where a context's memory is, the host or one GPU, and how array libraries say so.

The numbers of devices are the driver's, as this process sees them; torch and cupy count alike.
Read mori/_arrays/kinds.py next.
"""

from __future__ import annotations

from dataclasses import dataclass

# DLDeviceType of DLPack. "cuda managed" is memory that the GPU and the host reach alike.
DLPACK_CPU, DLPACK_CUDA, DLPACK_ROCM, DLPACK_CUDA_MANAGED = 1, 2, 10, 13
_DLPACK_NAMES = {
    1: "cpu",
    2: "cuda",
    3: "cuda_host",
    4: "opencl",
    7: "vulkan",
    8: "metal",
    10: "hip",
    11: "hip_host",
    13: "cuda_managed",
    14: "oneapi",
}
_NAMES = {"host": "cpu", "nvidia": "cuda", "amd": "hip"}
_DLPACK = {
    "host": (DLPACK_CPU,),
    "nvidia": (DLPACK_CUDA, DLPACK_CUDA_MANAGED),
    "amd": (DLPACK_ROCM,),
}


@dataclass(frozen=True)
class Place:
    """backend: host, nvidia or amd. index: the GPU's ordinal, -1 on the host."""

    backend: str
    index: int

    @property
    def is_host(self) -> bool:
        return self.backend == "host"

    @property
    def name(self) -> str:
        """ "cpu", "cuda:0", "hip:0"."""
        kind = _NAMES[self.backend]
        return kind if self.is_host else f"{kind}:{self.index}"

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """(device type, device id) of arrays that are made here."""
        return _DLPACK[self.backend][0], 0 if self.is_host else self.index

    def holds(self, device: tuple[int, int]) -> bool:
        """Whether memory on this device of DLPack's is here."""
        kind, index = device
        return kind in _DLPACK[self.backend] and (self.is_host or index == self.index)


HOST = Place("host", -1)


def device_name(device: tuple[int, int]) -> str:
    """A device of DLPack's in words: "cuda:1"; "cpu" has no number."""
    kind, index = device
    name = _DLPACK_NAMES.get(kind, f"device type {kind}")
    return name if kind == DLPACK_CPU else f"{name}:{index}"
