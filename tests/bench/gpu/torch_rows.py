"""What torch makes of dispatch and combine when one process holds the tokens of all ranks: rows
gathered by index_select, and added back by index_add_. No peers, no counts, no weights; the whole
GPU. Prints "NAME VALUE" lines in bytes per second of routed rows, named as gpu/ep_gpu.cu does.

usage: torch_rows.py RANKS [--quick]
"""

import sys

import torch

EXPERTS, TOP_K, HIDDEN = 256, 8, 7168
TOKENS = (4096, 128)


def draw_rows(tokens, ranks):
    """Source token of every routed row, in the order in which receivers have them: by destination
    rank, then by source."""
    generator = torch.Generator().manual_seed(2024)
    noise = torch.rand(tokens * ranks, EXPERTS, generator=generator)
    ranks_of_experts = noise.topk(TOP_K, dim=1).indices // (EXPERTS // ranks)
    goes = torch.zeros(tokens * ranks, ranks, dtype=torch.bool)
    goes.scatter_(1, ranks_of_experts, True)
    return goes.t().nonzero()[:, 1].cuda()


def median_ns(call, count, samples):
    """Median over samples of the time of one call; by events, warm."""
    taken = []
    for _ in range(samples + 1):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            call()
        stop.record()
        stop.synchronize()
        taken.append(start.elapsed_time(stop) * 1e6 / count)
    return sorted(taken[1:])[samples // 2]


def measure(tokens, ranks, quick):
    rows = draw_rows(tokens, ranks)
    source = torch.randint(0, 4, (tokens * ranks, HIDDEN), device="cuda").to(torch.bfloat16)
    narrow = source.to(torch.float8_e4m3fn).view(torch.uint8)
    gathered = source.index_select(0, rows)
    gathered_narrow = narrow.index_select(0, rows)
    out = torch.empty_like(source)
    if not torch.equal(gathered[-1], source[rows[-1]]):
        sys.exit("index_select gave a wrong row")

    def combine():
        out.zero_()
        out.index_add_(0, rows, gathered)

    calls = {
        "dispatch_bf16": (lambda: torch.index_select(source, 0, rows, out=gathered), 2),
        "dispatch_f8": (lambda: torch.index_select(narrow, 0, rows, out=gathered_narrow), 1),
        "combine_bf16": (combine, 2),
    }
    count = (6 if quick else 20) if tokens > 512 else 100
    for name, (call, element_bytes) in calls.items():
        spent_ns = median_ns(call, count, 5 if quick else 9)
        rate = rows.numel() * HIDDEN * element_bytes * 1e9 / spent_ns
        print(f"{name}_{tokens}_ep{ranks}/torch {rate:.0f}", flush=True)


def main():
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU")
    for tokens in TOKENS:
        measure(tokens, int(sys.argv[1]), "--quick" in sys.argv)


if __name__ == "__main__":
    main()
