"""Makes every call of torch.distributed and compares every result with what torch computes on one GPU.

    torchrun --nproc-per-node 2 collectives.py --json collectives.json

Reductions use small integers, whose sums are exact in any order; moved data are random bits. Then the program measures
large calls with normally distributed bfloat16 values, in CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Iterator

import calls
import torch
import torch.distributed as dist
from calls import Calls
from ranks import Job, parser

COUNTS = (1, 1003, 300_001)
TIMED_BYTES = (1 << 20, 16 << 20, 256 << 20)
CALLS_A_GRAPH = 5


def timed(job: Job, size: int) -> Iterator[tuple[str, object]]:
    """Calls whose larger buffer has the given number of bytes."""
    ranks = job.ranks
    count = size // 2 // ranks * ranks
    seeded = torch.Generator(job.device).manual_seed(job.rank)
    whole = torch.randn(count, generator=seeded, device=job.device).to(torch.bfloat16)
    other, part = whole.clone(), whole[: count // ranks]
    rest = part.clone()
    after, before = (job.rank + 1) % ranks, (job.rank - 1) % ranks

    def ring() -> None:
        pair = [dist.P2POp(dist.isend, whole, after), dist.P2POp(dist.irecv, other, before)]
        for work in dist.batch_isend_irecv(pair):
            work.wait()

    # Repeated calls in place: sums would grow.
    mean = dist.ReduceOp.AVG if job.on_gpu else dist.ReduceOp.SUM
    yield "all_reduce", lambda: dist.all_reduce(whole, mean)
    yield "all_gather", lambda: dist.all_gather_into_tensor(other, part)
    yield "reduce_scatter", lambda: dist.reduce_scatter_tensor(rest, other)
    yield "all_to_all", lambda: dist.all_to_all_single(other, whole)
    yield "broadcast", lambda: dist.broadcast(other, 0)
    yield "send and receive", ring


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--times", type=int, default=5, help="timed replays of each graph; 0: none")
    chosen = options.parse_args()
    job = Job(chosen)
    made = Calls(job)
    for count in COUNTS:
        for kind in (*calls.MOVED_TYPES, *(calls.NARROW_TYPES if job.on_gpu else ())):
            made.movement(count, kind)
        for kind in calls.SUMMED_TYPES:
            made.reductions(count, kind)
    made.objects()
    made.streams_and_groups()
    made.coalesced()
    made.graph()
    job.facts["compared"] = made.compared
    if chosen.times:
        for size in TIMED_BYTES if job.on_gpu else TIMED_BYTES[:1]:
            for name, call in timed(job, size):
                graph = job.graph(lambda call=call: [call() for _ in range(CALLS_A_GRAPH)])
                job.seconds[f"{name}, {size >> 20} MiB"] = job.median(graph, chosen.times) / CALLS_A_GRAPH
    job.end()


if __name__ == "__main__":
    main()
