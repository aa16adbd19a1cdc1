"""Generates tokens greedily with a Llama that is split over all ranks (tensor parallelism), one CUDA graph per token.

    torchrun --nproc-per-node 2 generate.py --json generate.json

An all-reduce sums the parts of the ranks after each attention and each feed-forward: a large one for the prompt, a
small one in the graph. The weights are random, so the text has no meaning, but every token depends on all sums before
it.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from llama import Cache, Llama, Shape, fill
from ranks import Job, parser

# The layers of an 8 B model, but only a quarter of their number.
LARGE = Shape(vocabulary=32000, width=4096, layers=8, heads=32, kv_heads=8, head_dim=128, hidden=14336)
SMALL = Shape(vocabulary=512, width=64, layers=2, heads=8, kv_heads=8, head_dim=8, hidden=160)
# The margin between the two largest logits, relative to the largest, above which the order of sums does not matter.
ENOUGH = 2.0**-6


class Generator:
    """The tokens of a batch. The buffers of a step keep their addresses, so that it can be replayed."""

    def __init__(self, model: Llama, shape: Shape, prompt: torch.Tensor, tokens: int, parts: int) -> None:
        self.model, self.prompt = model, prompt
        batch, length = prompt.shape
        cache = (batch, shape.kv_heads // parts, length + tokens, shape.head_dim)
        zeros = {"device": prompt.device, "dtype": next(model.parameters()).dtype}
        self.caches = [Cache(torch.zeros(cache, **zeros), torch.zeros(cache, **zeros)) for _ in range(shape.layers)]
        self.tokens = torch.zeros(batch, length + tokens, dtype=torch.int64, device=prompt.device)
        self.margins = torch.zeros(batch, length + tokens, device=prompt.device)
        self.places = torch.arange(length, device=prompt.device)
        self.place = torch.zeros(1, dtype=torch.int64, device=prompt.device)

    def prefill(self) -> None:
        self.tokens[:, : self.prompt.shape[1]] = self.prompt
        self.place.fill_(self.prompt.shape[1])
        self._choose(self.model(self.prompt, self.caches, self.places))

    def step(self) -> None:
        """Reads the last token and writes the next one."""
        last = self.tokens.index_select(1, self.place)
        logits = self.model(last, self.caches, self.place)
        self.place.add_(1)
        self._choose(logits)

    def _choose(self, logits: torch.Tensor) -> None:
        best = logits[:, -1].float().topk(2)
        self.tokens.index_copy_(1, self.place, best.indices[:, :1])
        margin = (best.values[:, :1] - best.values[:, 1:]) / best.values[:, :1].abs()
        self.margins.index_copy_(1, self.place, margin)


@torch.no_grad()
def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--batch", type=int, default=8)
    options.add_argument("--prompt", type=int, default=1024, help="number of tokens in the prompt")
    options.add_argument("--tokens", type=int, default=128, help="number of tokens to generate")
    chosen = options.parse_args()
    job = Job(chosen)
    shape = LARGE if job.on_gpu else SMALL

    with torch.device(job.device):
        model = Llama(shape, job.ranks, dist.all_reduce).to(torch.bfloat16)
    fill(model, job.rank)
    seeded = torch.Generator().manual_seed(0)
    prompt = torch.randint(shape.vocabulary, (chosen.batch, chosen.prompt), generator=seeded).to(job.device)
    # One additional position for the token after the last.
    generator = Generator(model, shape, prompt, chosen.tokens + 1, job.ranks)

    job.seconds["prefill"] = job.median(generator.prefill, repeats=5, warm_up=2)
    step = job.graph(generator.step)
    generator.prefill()
    job.synchronize()
    job.barrier()
    start = time.perf_counter()
    for _ in range(chosen.tokens):
        step()
    job.synchronize()
    seconds = job.slowest([time.perf_counter() - start])[0]
    job.seconds["token of every sequence"] = seconds / chosen.tokens
    job.facts["tokens per second"] = chosen.batch * chosen.tokens / seconds

    written = slice(chosen.prompt, chosen.prompt + chosen.tokens + 1)
    tokens, margins = generator.tokens[:, written], generator.margins[:, written]
    every = tokens.new_empty(job.ranks * tokens.shape[0], tokens.shape[1])
    dist.all_gather_into_tensor(every, tokens.contiguous())
    job.check(torch.equal(every, tokens.repeat(job.ranks, 1)), "the ranks chose different tokens")
    job.check(len(set(tokens.flatten().tolist())) > chosen.batch, "hardly any tokens differ from one another")
    if job.ranks == 2:
        # A sum of two values does not depend on the order.
        job.moved("tokens", tokens)
    job.chosen("tokens", tokens.tolist(), margins.tolist(), ENOUGH)
    job.end()


if __name__ == "__main__":
    main()
