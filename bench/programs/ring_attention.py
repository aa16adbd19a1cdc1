"""Attention over a sequence that is spread over the ranks: keys and values travel round the ring of ranks.

    torchrun --nproc-per-node 2 ring_attention.py --json ring_attention.json

In each round a rank sends the keys and values that it has to the next rank, while it computes the attention of its
queries to them. The parts are combined by their log-sum-exp, in the order of the ranks, so that a rank alone computes
the same bits.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from ranks import Job, parser

HEADS, HEAD_DIM = 32, 128
SMALL_HEADS, SMALL_HEAD_DIM = 4, 16


def attend(q: torch.Tensor, kv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention to a part of the sequence, and the logarithm of the sum of its weights, both in float32.

    q: [heads, tokens, head_dim]; kv: [2, heads, tokens, head_dim].
    """
    if q.is_cuda:
        y, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(q[None], kv[None, 0], kv[None, 1])
        return y[0].float(), lse[0].float()
    scores = q.float() @ kv[0].float().transpose(-1, -2) / q.shape[-1] ** 0.5
    return scores.softmax(-1) @ kv[1].float(), scores.logsumexp(-1)


def combined(parts: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """The attention to the whole sequence, from those to its parts."""
    weights = torch.stack([lse for _, lse in parts]).softmax(0)
    total = torch.zeros_like(parts[0][0])
    for (part, _), weight in zip(parts, weights, strict=True):
        total += part * weight[..., None]
    return total.to(torch.bfloat16)


class Ring:
    def __init__(self, job: Job, tokens: int) -> None:
        """tokens: of each rank."""
        self.job = job
        heads, head_dim = (HEADS, HEAD_DIM) if job.on_gpu else (SMALL_HEADS, SMALL_HEAD_DIM)
        seeded = torch.Generator(job.device).manual_seed(job.rank)
        drawn = torch.randn(3, heads, tokens, head_dim, generator=seeded, device=job.device).to(torch.bfloat16)
        self.q, self.kv = drawn[0], drawn[1:].contiguous()
        self.buffers = [torch.empty_like(self.kv) for _ in range(2)]
        self.after, self.before = (job.rank + 1) % job.ranks, (job.rank - 1) % job.ranks

    def pass_on(self, have: torch.Tensor, number: int) -> tuple[torch.Tensor, list[dist.Work]]:
        """Starts to send what this rank has, and to receive what the previous one has."""
        got = self.buffers[number % 2]
        return got, dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, have, self.after), dist.P2POp(dist.irecv, got, self.before)]
        )

    def attention(self, computes: bool = True) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The attention to the part of each rank. computes: False: only moves keys and values."""
        parts: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        have = self.kv
        for number in range(self.job.ranks):
            got, pending = have, []
            if number + 1 < self.job.ranks:
                got, pending = self.pass_on(have, number)
            if computes:
                parts[(self.job.rank - number) % self.job.ranks] = attend(self.q, have)
            for work in pending:
                work.wait()
            have = got
        return [parts[rank] for rank in sorted(parts)]

    def check(self) -> None:
        found = combined(self.attention())
        every = [torch.empty_like(self.kv) for _ in range(self.job.ranks)]
        dist.all_gather(every, self.kv)
        self.job.same(found, combined([attend(self.q, kv) for kv in every]), f"attention of {self.q.shape[1]} tokens")
        self.job.moved(f"attention, {self.q.shape[1]} tokens", found)


@torch.no_grad()
def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--tokens", type=int, nargs="+", help="numbers of tokens of each rank")
    options.add_argument("--times", type=int, default=20, help="number of timed repetitions")
    chosen = options.parse_args()
    job = Job(chosen)
    for tokens in chosen.tokens or ([1024, 8192, 32768] if job.on_gpu else [64, 256]):
        ring = Ring(job, tokens)
        ring.check()
        name = f"{tokens} tokens of a rank"
        job.seconds[f"attention, {name}"] = job.median(lambda ring=ring: combined(ring.attention()), chosen.times)
        job.seconds[f"moves, {name}"] = job.median(lambda ring=ring: ring.attention(computes=False), chosen.times)
        compute = job.median(lambda ring=ring: [attend(ring.q, ring.kv) for _ in range(job.ranks)], chosen.times)
        job.seconds[f"products, {name}"] = compute
        job.facts[f"MiB of a message, {name}"] = ring.kv.nbytes / 2**20
    job.end()


if __name__ == "__main__":
    main()
