"""Runs matrix products concurrently with collectives, as in training, and measures how they slow each other down.

    torchrun --nproc-per-node 2 overlap.py --json overlap.json

One stream has products, another one consecutive calls. Each is measured alone, and then both concurrently. Without
competition for resources, both together would take as long as the longer of the two. Times are those of the GPU alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from ranks import Job, parser

REPEATS = 7


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument(
        "--mebibytes", type=int, help="size of a call, for all ranks together; 25 is the size of DDP's buckets"
    )
    options.add_argument("--calls", type=int, default=24)
    options.add_argument("--products", type=int, default=40)
    options.add_argument("--width", type=int, help="number of rows and columns of the matrices")
    chosen = options.parse_args()
    job = Job(chosen)
    width = chosen.width or (4096 if job.on_gpu else 128)
    mebibytes = chosen.mebibytes or (25 if job.on_gpu else 1)
    elems = (mebibytes << 20) // 2 // job.ranks * job.ranks
    part = elems // job.ranks

    seeded = torch.Generator().manual_seed(job.rank)
    left, right = (torch.randn(width, width, generator=seeded).to(job.device, torch.bfloat16) for _ in range(2))
    product = torch.empty_like(left)
    # Distributed like gradients, with sums that are exact in any order.
    whole = torch.randint(-8, 9, (elems,), generator=seeded).to(job.device, torch.bfloat16)
    gathered, scattered, summed = torch.empty_like(whole), torch.empty_like(whole[:part]), torch.empty_like(whole)

    def multiply() -> None:
        for _ in range(chosen.products):
            torch.mm(left, right, out=product)

    def all_reduce() -> None:
        summed.copy_(whole)
        dist.all_reduce(summed)

    calls: dict[str, Callable[[], object]] = {
        "all_reduce": all_reduce,
        "all_gather": lambda: dist.all_gather_into_tensor(gathered, whole[:part]),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(scattered, whole),
    }
    multiply()
    expected_product = product.clone()
    job.seconds["products"] = job.median(multiply, REPEATS, held=True)
    side = torch.cuda.Stream() if job.on_gpu else None
    for name, call in calls.items():

        def repeat(call: Callable[[], object] = call) -> None:
            for _ in range(chosen.calls):
                call()

        def both(repeat: Callable[[], object] = repeat) -> None:
            if side is None:
                repeat()
                return multiply()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                repeat()
            multiply()
            torch.cuda.current_stream().wait_stream(side)

        job.seconds[name] = job.median(repeat, REPEATS, held=True)
        product.zero_()
        job.seconds[f"{name} beside products"] = job.median(both, REPEATS, held=True)
        job.same(product, expected_product, f"products beside {name}")

    every = torch.empty(job.ranks * elems, dtype=torch.bfloat16, device=job.device)
    dist.all_gather_into_tensor(every, whole)
    inputs = every.view(job.ranks, elems)
    sums = inputs.sum(0)
    job.same(summed, sums, "all_reduce")
    job.same(scattered, sums[job.rank * part :][:part], "reduce_scatter")
    job.same(gathered.view(job.ranks, part), inputs[:, :part].contiguous(), "all_gather")
    job.moved("all_gather", gathered)
    job.end()


if __name__ == "__main__":
    main()
