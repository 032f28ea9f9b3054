"""What a call costs a Python program: host time of op.dispatch and op.combine on torch's tensors of
the GPU, with one PE and few small tokens, so that the GPU is never what is waited for. Prints "NAME
VALUE" lines in nanoseconds of one call, one of each name a sample.

usage: ep_call.py [--quick]
"""

import sys
import time

import torch
from mori.ops import EpDispatchCombineConfig, EpDispatchCombineOp
from mori.shmem import Context

TOKENS, HIDDEN, EXPERTS, TOP_K = 4, 256, 8, 2
CALLS = 200  # of each kind between two waits for the GPU


def make_operator(context):
    config = EpDispatchCombineConfig(
        rank=0,
        world_size=1,
        hidden_dim=HIDDEN,
        scale_dim=0,
        scale_type_size=0,
        max_token_type_size=2,
        max_num_inp_token_per_rank=TOKENS,
        num_experts_per_rank=EXPERTS,
        num_experts_per_token=TOP_K,
    )
    return EpDispatchCombineOp(config, context=context)


def sample(op, tokens, weights, experts):
    """Nanoseconds of one dispatch and of one combine."""
    dispatch_ns = combine_ns = 0
    torch.cuda.synchronize()
    for _ in range(CALLS):
        start = time.perf_counter_ns()
        out, out_weights, _, _, _ = op.dispatch(tokens, weights, None, experts)
        middle = time.perf_counter_ns()
        combined, _ = op.combine(out, out_weights, experts)
        combine_ns += time.perf_counter_ns() - middle
        dispatch_ns += middle - start
    torch.cuda.synchronize()
    # One rank: every token comes back once.
    if not torch.equal(combined[:TOKENS], tokens):
        sys.exit("combine gave other tokens than were dispatched")
    return dispatch_ns / CALLS, combine_ns / CALLS


def main():
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU")
    torch.zeros(1, device="cuda")
    with Context(Context.unique_id(), 0, 1, heap_bytes=64 << 20, backend="nvidia") as context:
        op = make_operator(context)
        tokens = torch.randn(TOKENS, HIDDEN, device="cuda").to(torch.bfloat16)
        weights = torch.rand(TOKENS, TOP_K, device="cuda")
        experts = torch.tensor([[1, 5]] * TOKENS, dtype=torch.int32, device="cuda")
        for number in range(-1, 5 if "--quick" in sys.argv else 9):
            dispatch_ns, combine_ns = sample(op, tokens, weights, experts)
            if number >= 0:
                print(f"python_dispatch_call/ours {dispatch_ns:.1f}")
                print(f"python_combine_call/ours {combine_ns:.1f}", flush=True)
        op.close()


if __name__ == "__main__":
    main()
