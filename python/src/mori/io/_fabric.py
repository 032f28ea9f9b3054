"""MORI's names for memory of the FABRIC backend, which this implementation does not have."""

from __future__ import annotations

from typing import Any, NoReturn

from mori.errors import UnsupportedError


def _refusal(name: str) -> Any:
    def refuse(*_arguments: Any, **_options: Any) -> NoReturn:
        raise UnsupportedError(
            f"{name}: there is no FABRIC backend, so no fabric memory either; register ordinary "
            "memory, or what IOEngine.alloc gives, with BackendType.XGMI, RDMA or TCP"
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Raises UnsupportedError: there is no FABRIC backend."
    return refuse


fabric_alloc = _refusal("fabric_alloc")
fabric_free = _refusal("fabric_free")
fabric_torch_allocator = _refusal("fabric_torch_allocator")
use_fabric_torch_allocator = _refusal("use_fabric_torch_allocator")
fabric_mem_pool = _refusal("fabric_mem_pool")
make_fabric_mem_pool = _refusal("make_fabric_mem_pool")
