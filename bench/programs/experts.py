"""Runs a layer of experts that are spread over the ranks: tokens are sent to the ranks of their experts, and back.

    torchrun --nproc-per-node 2 experts.py --json experts.json

Few experts get most of the tokens, so the ranks exchange different numbers of them (all-to-all with counts per pair).
The counts are exchanged first, as the receivers do not know them. Each token returns to its place, with the weighted
sum of its experts' results, which a rank with all experts computes with the same bits.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from llama import FeedForward, Shape, fill
from ranks import Job, parser
from torch import nn

LARGE = Shape(vocabulary=0, width=4096, layers=1, heads=0, kv_heads=0, head_dim=0, hidden=2048)
SMALL = Shape(vocabulary=0, width=64, layers=1, heads=0, kv_heads=0, head_dim=0, hidden=96)


class Experts:
    """The experts of this rank, and the tokens of this rank with the experts that a router chose for them."""

    def __init__(self, job: Job, shape: Shape, experts: int, tokens: int, per_token: int, skew: float) -> None:
        self.job, self.experts, self.own = job, experts, experts // job.ranks
        with torch.device(job.device):
            every = nn.ModuleList(FeedForward(shape, 1, None) for _ in range(experts)).to(torch.bfloat16)
        fill(every)
        self.every = every
        seeded = torch.Generator().manual_seed(1 + job.rank)
        self.tokens = torch.randn(tokens, shape.width, generator=seeded).to(job.device, torch.bfloat16)
        popularity = torch.arange(1, experts + 1, dtype=torch.float64) ** -skew
        # The popular experts are on different ranks.
        popularity = popularity.view(-1, job.ranks).T.flatten()
        chosen = torch.multinomial(popularity.expand(tokens, -1), per_token, generator=seeded)
        self.weights = torch.rand(tokens, per_token, generator=seeded).to(job.device, torch.bfloat16)
        flat = chosen.flatten().to(job.device)
        # Copies of tokens by their expert; `sources` are the tokens.
        self.by_expert = torch.argsort(flat, stable=True)
        self.sources = self.by_expert // per_token
        self.counts = torch.bincount(flat, minlength=experts)

    def run(self, expert: int, tokens: torch.Tensor) -> torch.Tensor:
        # One by one, as the bits of a product can depend on the number of rows.
        return torch.cat([self.every[expert](token) for token in tokens.split(1)]) if len(tokens) else tokens

    def dispatch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The tokens for the experts of this rank, by the rank they are from and by expert, and their counts."""
        counts = torch.empty_like(self.counts)
        dist.all_to_all_single(counts, self.counts)
        counts = counts.view(self.job.ranks, self.own)
        return self.exchange(self.tokens[self.sources], self.counts.view_as(counts), counts), counts

    def combine(self, results: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """The weighted sums of the results of each token of this rank."""
        returned = self.exchange(results, counts, self.counts.view_as(counts))
        placed = torch.empty_like(returned)
        placed[self.by_expert] = returned
        placed = placed.view(*self.weights.shape, -1) * self.weights[..., None]
        return placed.float().sum(1).to(torch.bfloat16)

    def exchange(self, sent: torch.Tensor, to: torch.Tensor, from_: torch.Tensor) -> torch.Tensor:
        """to, from_: numbers of tokens by rank and expert."""
        sizes, own_sizes = to.sum(1).tolist(), from_.sum(1).tolist()
        received = sent.new_empty(sum(own_sizes), sent.shape[1])
        dist.all_to_all_single(received, sent, own_sizes, sizes)
        return received

    def layer(self, run_experts: bool = True) -> torch.Tensor:
        tokens, counts = self.dispatch()
        if run_experts:
            parts = tokens.split(counts.flatten().tolist())
            first = self.job.rank * self.own
            tokens = torch.cat([self.every[first + place % self.own](part) for place, part in enumerate(parts)])
        return self.combine(tokens, counts)

    def check(self) -> None:
        tokens, counts = self.dispatch()
        parts = tokens.split(counts.flatten().tolist())
        first = self.job.rank * self.own
        results = torch.cat([self.run(first + place % self.own, part) for place, part in enumerate(parts)])
        found = self.combine(results, counts)
        self.job.moved("dispatched tokens", tokens)
        self.job.moved("combined tokens", found)
        alone = self.tokens[self.sources].split(self.counts.tolist())
        results = torch.cat([self.run(expert, part) for expert, part in enumerate(alone)])
        placed = torch.empty_like(results)
        placed[self.by_expert] = results
        placed = placed.view(*self.weights.shape, -1) * self.weights[..., None]
        self.job.same(found, placed.float().sum(1).to(torch.bfloat16), "combined tokens")


@torch.no_grad()
def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--experts", type=int, default=32, help="number of experts, a multiple of the ranks")
    options.add_argument("--tokens", type=int, nargs="+", default=[128, 8192], help="numbers of tokens of a rank")
    options.add_argument("--per-token", type=int, default=4, help="number of experts of a token")
    options.add_argument("--skew", type=float, default=0.8, help="0: all experts get as many tokens")
    options.add_argument("--times", type=int, default=20, help="number of timed layers")
    chosen = options.parse_args()
    if chosen.experts < 1 or chosen.per_token > chosen.experts:
        options.error("--per-token must be at most --experts")
    job = Job(chosen)
    if chosen.experts % job.ranks:
        raise SystemExit(f"--experts {chosen.experts} is not a multiple of {job.ranks} ranks")
    shape = LARGE if job.on_gpu else SMALL
    for tokens in chosen.tokens:
        experts = Experts(job, shape, chosen.experts, tokens, chosen.per_token, chosen.skew)
        if tokens == min(chosen.tokens):
            experts.check()
        busiest = job.slowest([float(experts.counts.view(job.ranks, -1).sum(1).max())])[0]
        job.facts[f"most tokens for one rank, {tokens} tokens"] = int(busiest)
        job.seconds[f"layer, {tokens} tokens"] = job.median(experts.layer, chosen.times, warm_up=3)
        moves = job.median(lambda experts=experts: experts.layer(run_experts=False), chosen.times, warm_up=3)
        job.seconds[f"dispatch and combine, {tokens} tokens"] = moves
    job.end()


if __name__ == "__main__":
    main()
