"""Runs the layers of a Llama as a pipeline, forwards and backwards, with the schedule 1F1B.

    torchrun --nproc-per-node 2 pipeline.py --json pipeline.json

Every rank has a stage of the layers, sends activations to the next rank and their gradients to the previous one, and
alternates between the forward pass of a micro-batch and the backward pass of an earlier one. Each message is exchanged
in one batch with the one that comes back. The gradients must have the bits of those that a rank computes alone.
"""

from __future__ import annotations

from collections import deque

import torch
import torch.distributed as dist
from llama import Block, Rotary, Shape, fill
from ranks import Job, parser
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

LARGE = Shape(vocabulary=0, width=4096, layers=2, heads=32, kv_heads=8, head_dim=128, hidden=11008)
SMALL = Shape(vocabulary=0, width=64, layers=2, heads=4, kv_heads=2, head_dim=16, hidden=160)


def stage_of(rank: int, shape: Shape, device: torch.device) -> nn.ModuleList:
    with torch.device(device):
        stage = nn.ModuleList(Block(shape) for _ in range(shape.layers)).to(torch.bfloat16)
    for number, block in enumerate(stage):
        fill(block, rank * shape.layers + number)
    return stage


class Pipeline:
    """The stage of this rank, and the micro-batches of a step."""

    def __init__(self, job: Job, shape: Shape, batches: int, sequences: int, length: int) -> None:
        self.job, self.shape, self.batches = job, shape, batches
        self.stage = stage_of(job.rank, shape, job.device)
        self.turn = Rotary(shape.head_dim)(torch.arange(length, device=job.device), torch.bfloat16)
        seeded = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(batches, sequences, length, shape.width, generator=seeded)
        self.inputs = self.inputs.to(job.device, torch.bfloat16)
        self.before = job.rank - 1 if job.rank else None
        self.after = job.rank + 1 if job.rank + 1 < job.ranks else None

    def forward(self, stage: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
        # The backward passes of the fused kernels sum in the order in which their CTAs run.
        with sdpa_kernel(SDPBackend.MATH):
            for block in stage:
                x = block(x, self.turn)
        return x

    def exchange(self, peer: int | None, sent: torch.Tensor | None, receives: bool) -> torch.Tensor | None:
        """Sends to a neighbour and receives from it, in one batch. Returns what arrived."""
        if peer is None:
            return None
        received = torch.empty_like(self.inputs[0]) if receives else None
        calls = [dist.P2POp(dist.isend, sent.contiguous(), peer)] if sent is not None else []
        if received is not None:
            calls.append(dist.P2POp(dist.irecv, received, peer))
        for work in dist.batch_isend_irecv(calls) if calls else []:
            work.wait()
        return received

    def step(self) -> None:
        """One forward and one backward pass of every micro-batch."""
        for weight in self.stage.parameters():
            weight.grad = None
        pending: deque[tuple[torch.Tensor, torch.Tensor]] = deque()
        started = 0

        def begin(x: torch.Tensor | None) -> torch.Tensor:
            nonlocal started
            x = (self.inputs[started] if x is None else x).requires_grad_()
            started += 1
            y = self.forward(self.stage, x)
            pending.append((x, y))
            return y.detach()

        def finish(gradient: torch.Tensor | None) -> torch.Tensor:
            x, y = pending.popleft()
            y.backward(y.detach() if gradient is None else gradient)
            return x.grad

        # As many micro-batches as stages follow are under way before the first comes back.
        ahead = min(self.job.ranks - 1 - self.job.rank, self.batches)
        for _ in range(ahead):
            self.exchange(self.after, begin(self.exchange(self.before, None, True)), False)
        x = self.exchange(self.before, None, True) if ahead < self.batches else None
        for number in range(self.batches - ahead):
            gradient = self.exchange(self.after, begin(x), True)
            is_last = number == self.batches - ahead - 1
            x = self.exchange(self.before, finish(gradient), not is_last)
        for _ in range(ahead):
            self.exchange(self.before, finish(self.exchange(self.after, None, True)), False)

    def expected(self) -> list[torch.Tensor]:
        """The gradients of this rank's stage, from all stages."""
        stages = [stage_of(rank, self.shape, self.job.device) for rank in range(self.job.ranks)]
        for x in self.inputs:
            y = x
            for stage in stages:
                y = self.forward(stage, y)
            y.backward(y.detach())
        return [weight.grad for weight in stages[self.job.rank].parameters()]


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--batches", type=int, default=8, help="number of micro-batches in a step")
    options.add_argument("--sequences", type=int, default=1, help="number of sequences in a micro-batch")
    options.add_argument("--length", type=int, help="number of tokens per sequence")
    options.add_argument("--steps", type=int, default=20, help="number of timed steps")
    chosen = options.parse_args()
    job = Job(chosen)
    shape = LARGE if job.on_gpu else SMALL
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    length = chosen.length or (2048 if job.on_gpu else 64)
    pipeline = Pipeline(job, shape, chosen.batches, chosen.sequences, length)
    pipeline.step()
    found = [weight.grad for weight in pipeline.stage.parameters()]
    for number, (one, other) in enumerate(zip(found, pipeline.expected(), strict=True)):
        job.same(one, other, f"gradient {number}")
    job.moved("gradients", *found)
    job.seconds["step"] = job.median(pipeline.step, chosen.steps, warm_up=2)
    job.facts |= {"MiB of a message": pipeline.inputs[0].nbytes / 2**20, "micro-batches": chosen.batches}
    job.end()


if __name__ == "__main__":
    main()
