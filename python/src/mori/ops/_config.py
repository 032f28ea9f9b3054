"""EpDispatchCombineConfig: MORI's description of a dispatch/combine operator.

Names, order and defaults of the fields are MORI's. Letters in comments: W = world_size,
M = max_num_inp_token_per_rank, K = num_experts_per_token, H = hidden_dim, S = scale_dim,
E = num_experts_per_rank, R = max_num_tokens_to_recv.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from mori._enums import EpDispatchCombineKernelType, EpDispatchCombineQuantType
from mori._ffi import constant
from mori._raw import number
from mori._values import timeout_ns
from mori.errors import InvalidError
from mori.shmem._context import Context

_QUANTISATIONS = {
    "none": EpDispatchCombineQuantType.None_,
    "fp8_direct_cast": EpDispatchCombineQuantType.Fp8DirectCast,
    "fp8_blockwise": EpDispatchCombineQuantType.Fp8BlockwiseQuant,
    "fp4_blockwise": EpDispatchCombineQuantType.Fp4BlockwiseQuant,
}

# Element types of tokens by their names in torch and ml_dtypes: value in C, size in bytes.
TOKEN_TYPES = {
    "float32": (constant("MORI_EP_F32"), 4),
    "bfloat16": (constant("MORI_EP_BF16"), 2),
    "float16": (constant("MORI_EP_F16"), 2),
    "float8_e4m3fn": (constant("MORI_EP_F8_E4M3FN"), 1),
    "float8_e4m3fnuz": (constant("MORI_EP_F8_E4M3FNUZ"), 1),
    "float8_e5m2": (constant("MORI_EP_F8_E5M2"), 1),
    "float4_e2m1fn_x2": (constant("MORI_EP_F4_E2M1X2"), 1),
}


class _Required:
    """Default of the fields that have none, since data_type before them may be left out."""

    def __repr__(self) -> str:
        return "<required>"


_REQUIRED: Any = _Required()


def token_type_name(dtype: Any) -> str:
    """Name of an element type given as torch or numpy dtype, scalar type or text."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    if name is None:
        name = getattr(dtype, "__name__", None) or str(dtype)
    name = str(name).removeprefix("torch.")
    if name not in TOKEN_TYPES:
        raise InvalidError(f"data_type is {dtype!r}, expected one of {', '.join(TOKEN_TYPES)}")
    return name


@dataclass
class EpDispatchCombineConfig:
    """What an operator is built for; the same on all ranks, `rank` and `context` aside.

    data_type                   optional: element types come from the arrays of each call. Name
                                it to pass bfloat16, float16 or 8-bit floats as numpy arrays of
                                uint16 or uint8 that hold their bits, and for
                                get_registered_combine_input_buffer(None)
    rank, world_size            must be the context's PE and number of PEs
    hidden_dim                  largest H in elements
    scale_dim, scale_type_size  scales per token and bytes of one; 0: no scales travel
    max_token_type_size         bytes of the largest element type; H times it is a multiple of 16
    max_num_inp_token_per_rank  M, most tokens that one rank passes to dispatch
    num_experts_per_rank        E; the rank of an expert is expert // E
    num_experts_per_token       K, 1 .. 32
    warp_num_per_block          launch request
    block_num                   launch request
    max_total_recv_tokens       cap on received tokens, 0: none beyond W * M; see
                                max_num_tokens_to_recv
    use_external_inp_buf        False: combine reads the registered buffer instead of its input
    kernel_type                 EpDispatchCombineKernelType
    gpu_per_node                ranks per node; at most W are taken
    rdma_block_num              launch request, less than block_num
    num_qp_per_pe               queue pairs per PE
    quant_type                  "none", "fp8_direct_cast", "fp8_blockwise", "fp4_blockwise", or an
                                EpDispatchCombineQuantType

    Beyond MORI's, by keyword:
    deterministic               receive order by (source rank, token); the host is always so
    drop_invalid_experts        True: expert ids >= W * E are not routed; else they are an error
    timeout_s                   longest wait of one call; None: the context's
    context                     the mori.shmem.Context; None: the calling thread's
    """

    data_type: Any = None
    rank: int = _REQUIRED
    world_size: int = _REQUIRED
    hidden_dim: int = _REQUIRED
    scale_dim: int = _REQUIRED
    scale_type_size: int = _REQUIRED
    max_token_type_size: int = _REQUIRED
    max_num_inp_token_per_rank: int = _REQUIRED
    num_experts_per_rank: int = _REQUIRED
    num_experts_per_token: int = _REQUIRED
    warp_num_per_block: int = 8
    block_num: int = 80
    max_total_recv_tokens: int = 0
    use_external_inp_buf: bool = True
    kernel_type: EpDispatchCombineKernelType = EpDispatchCombineKernelType.IntraNode
    gpu_per_node: int = 8
    rdma_block_num: int = 0
    num_qp_per_pe: int = 1
    quant_type: str | EpDispatchCombineQuantType = "none"
    deterministic: bool = field(default=False, kw_only=True)
    drop_invalid_experts: bool = field(default=False, kw_only=True)
    timeout_s: float | None = field(default=None, kw_only=True)
    context: Context | None = field(default=None, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        missing = [f.name for f in dataclasses.fields(self) if getattr(self, f.name) is _REQUIRED]
        if missing:
            raise TypeError(f"EpDispatchCombineConfig needs {', '.join(missing)}")
        if self.data_type is not None:
            token_type_name(self.data_type)
        for name, least in _LEAST.items():
            value = number(getattr(self, name), name)
            if value < least:
                raise InvalidError(f"{name} is {value}, expected at least {least}")
            # Kept as int: an array of one element could change later.
            setattr(self, name, value)
        if self.rank >= self.world_size:
            raise InvalidError(f"rank is {self.rank}, expected 0 .. {self.world_size - 1}")
        self.kernel_type = _kernel_type(self.kernel_type)
        quantisation(self.quant_type)

    @property
    def max_num_tokens_to_send_per_rank(self) -> int:
        """M."""
        return self.max_num_inp_token_per_rank

    @property
    def max_num_tokens_to_send(self) -> int:
        """W * M."""
        return self.world_size * self.max_num_inp_token_per_rank

    @property
    def max_num_tokens_to_recv_per_rank(self) -> int:
        """Most tokens taken from one rank: M, or ceil(max_total_recv_tokens / W) if less."""
        per_rank = self.max_num_inp_token_per_rank
        if self.max_total_recv_tokens > 0:
            per_rank = min(per_rank, -(-self.max_total_recv_tokens // self.world_size))
        return per_rank

    @property
    def max_num_tokens_to_recv(self) -> int:
        """R, the rows of dispatch's outputs: W * max_num_tokens_to_recv_per_rank."""
        return self.world_size * self.max_num_tokens_to_recv_per_rank

    def c_fields(self) -> dict[str, int]:
        """The fields of C's mori_ep_config."""
        return {
            "kernel_type": int(self.kernel_type),
            "quant_type": int(quantisation(self.quant_type)),
            "hidden_dim": self.hidden_dim,
            "max_token_elem_bytes": self.max_token_type_size,
            "scale_dim": self.scale_dim,
            "scale_elem_bytes": self.scale_type_size,
            "max_input_token_count": self.max_num_inp_token_per_rank,
            "expert_per_rank_count": self.num_experts_per_rank,
            "expert_per_token_count": self.num_experts_per_token,
            "max_total_recv_token_count": self.max_total_recv_tokens,
            "registered_input": int(not self.use_external_inp_buf),
            "drop_invalid_experts": int(bool(self.drop_invalid_experts)),
            "gpu_per_node_count": min(self.gpu_per_node, self.world_size),
            "block_count": self.block_num,
            "warp_per_block_count": self.warp_num_per_block,
            "rdma_block_count": self.rdma_block_num,
            "queue_pair_per_pe_count": self.num_qp_per_pe,
            "deterministic": int(bool(self.deterministic)),
            "timeout_ns": timeout_ns(self.timeout_s, "timeout_s"),
        }


# Zero means "default" in C, so it must not slip through where MORI has no such meaning.
_LEAST = {
    "rank": 0,
    "world_size": 1,
    "hidden_dim": 1,
    "scale_dim": 0,
    "scale_type_size": 0,
    "max_token_type_size": 1,
    "max_num_inp_token_per_rank": 1,
    "num_experts_per_rank": 1,
    "num_experts_per_token": 1,
    "warp_num_per_block": 1,
    "block_num": 1,
    "max_total_recv_tokens": 0,
    "gpu_per_node": 1,
    "rdma_block_num": 0,
    "num_qp_per_pe": 1,
}


def _kernel_type(value: Any) -> EpDispatchCombineKernelType:
    try:
        return EpDispatchCombineKernelType(value)
    except ValueError:
        known = ", ".join(f"{kind.name} ({kind.value})" for kind in EpDispatchCombineKernelType)
        raise InvalidError(f"kernel_type is {value!r}, expected one of {known}") from None


def quantisation(value: Any) -> EpDispatchCombineQuantType:
    """quant_type as an enumerator; InvalidError for an unknown name or value."""
    if isinstance(value, str):
        if value not in _QUANTISATIONS:
            raise InvalidError(
                f"quant_type is {value!r}, expected one of {', '.join(_QUANTISATIONS)}"
            )
        return _QUANTISATIONS[value]
    try:
        return EpDispatchCombineQuantType(value)
    except ValueError:
        raise InvalidError(
            f"quant_type is {value!r}, expected one of {', '.join(_QUANTISATIONS)}"
        ) from None
