"""Expert-parallel dispatch and combine for mixture-of-experts layers.

dispatch sends each token once to each rank that owns one of its experts; combine brings what the
experts made of it back and sums it. On the host, arguments are torch CPU tensors or numpy arrays,
and results are of the kind of the input. On a GPU they are torch tensors or arrays of any other
library there, results are torch tensors, else DeviceArrays, and calls return at once: their work is
on a stream. Importing this module loads libmori-shmem and libmori-ep.

    from mori.ops import EpDispatchCombineConfig, EpDispatchCombineOp

    config = EpDispatchCombineConfig(
        rank=rank, world_size=8, hidden_dim=7168, scale_dim=0, scale_type_size=0,
        max_token_type_size=2, max_num_inp_token_per_rank=1024, num_experts_per_rank=32,
        num_experts_per_token=8)
    op = EpDispatchCombineOp(config)
    out, weights, _, experts, count = op.dispatch(tokens, router_weights, None, expert_ids)
    n = int(count[0])                                  # rows beyond n are unspecified
    outputs = run_experts(out[:n], weights[:n], experts[:n])
    combined, _ = op.combine(outputs, None, expert_ids)
    result = combined[: len(tokens)]
"""

from __future__ import annotations

from mori._enums import EpDispatchCombineKernelType, EpDispatchCombineQuantType
from mori.ops._config import EpDispatchCombineConfig
from mori.ops._op import EpDispatchCombineOp, OpMemory

__all__ = [
    "EpDispatchCombineConfig",
    "EpDispatchCombineKernelType",
    "EpDispatchCombineOp",
    "EpDispatchCombineQuantType",
    "OpMemory",
]
