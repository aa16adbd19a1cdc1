"""Disaggregated prefill: rank 0 computes a prompt, and every other rank receives the KV cache of a request.

    torchrun --nproc-per-node 2 prefill_decode.py --values kv.safetensors --json prefill_decode.json

The shapes are those of Llama 3 8B in bfloat16: 128 KiB of keys and values per token. The cache contains values of the
file, repeated; without a file, normally distributed values with a scale per channel. The time to the first token
consists of the prefill, the transfer, and one decoding step at the receiver. All layers have the same weights.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from llama import Block, Cache, Rotary, Shape, fill
from ranks import Job, digest, parser

LARGE = Shape(vocabulary=0, width=4096, layers=32, heads=32, kv_heads=8, head_dim=128, hidden=14336)
SMALL = Shape(vocabulary=0, width=64, layers=3, heads=8, kv_heads=2, head_dim=8, hidden=160)


def values_of(path: Path, name: str | None) -> torch.Tensor:
    """The bfloat16 values of a safetensors file: of one tensor, or of all with "kv" in their names."""
    content = path.read_bytes()
    (header_bytes,) = struct.unpack_from("<Q", content)
    found = []
    for tensor, entry in json.loads(content[8 : 8 + header_bytes]).items():
        if tensor != "__metadata__" and entry["dtype"] == "BF16" and (tensor == name if name else "kv" in tensor):
            start, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
            found.append(torch.frombuffer(bytearray(content[start:end]), dtype=torch.bfloat16))
    if not found:
        raise SystemExit(f"{path}: no tensor of bfloat16 {f'is named {name}' if name else 'has kv in its name'}")
    return torch.cat(found)


def normal_values(shape: Shape, device: torch.device) -> torch.Tensor:
    """Values of 4096 tokens. Channels differ in scale, as those of keys do."""
    seeded = torch.Generator(device).manual_seed(0)
    channels = torch.randn(shape.head_dim, generator=seeded, device=device).exp2()
    values = torch.randn(4096, shape.head_dim, generator=seeded, device=device) * channels
    return values.to(torch.bfloat16).flatten()


class Request:
    """The cache of one request: [layers, keys and values, 1, kv_heads, tokens, head_dim]."""

    def __init__(self, shape: Shape, tokens: int, device: torch.device) -> None:
        sizes = (shape.layers, 2, 1, shape.kv_heads, tokens, shape.head_dim)
        self.content = torch.zeros(sizes, dtype=torch.bfloat16, device=device)

    def fill(self, values: torch.Tensor, number: int) -> None:
        """Every request and every layer starts at a different position in the values."""
        for place, layer in enumerate(self.content):
            start = values.roll(-7919 * (number + 64 * place))
            flat = layer.view(-1)
            whole = flat.numel() // start.numel() * start.numel()
            flat[:whole].view(-1, start.numel())[:] = start
            flat[whole:] = start[: flat.numel() - whole]

    def cache(self, layer: int) -> Cache:
        return Cache(*self.content[layer])


class Disaggregated:
    """Prefill, transfer and decoding of a request with a given number of tokens."""

    def __init__(self, job: Job, shape: Shape, block: Block, values: torch.Tensor, tokens: int) -> None:
        self.job, self.shape, self.block, self.tokens = job, shape, block, tokens
        self.turn = Rotary(shape.head_dim)
        self.decoders = range(1, job.ranks)
        # The last position is for the decoded token.
        numbers = self.decoders if job.rank == 0 else [job.rank]
        self.requests = {number: Request(shape, tokens + 1, job.device) for number in numbers}
        if job.rank == 0:
            for number, request in self.requests.items():
                request.fill(values, number)
        self.x = torch.randn(1, tokens, shape.width, device=job.device, dtype=torch.bfloat16)
        self.bytes = next(iter(self.requests.values())).content.nbytes

    def prefill(self, after_layer: Callable[[int], object] = lambda layer: None) -> None:
        """Computes a prompt. Only on rank 0."""
        if self.job.rank:
            return
        turn, x = self.turn(torch.arange(self.tokens, device=self.x.device), self.x.dtype), self.x
        for layer in range(self.shape.layers):
            x = self.block(x, turn)
            after_layer(layer)

    def transfer(self) -> None:
        """Transfers layer by layer with send and recv, each of which ends before the next begins."""
        for layer in range(self.shape.layers):
            for number, request in self.requests.items():
                if self.job.rank == 0:
                    dist.send(request.content[layer], number)
                else:
                    dist.recv(request.content[layer], 0)

    def start(self, first: int, last: int) -> list[dist.Work]:
        """Starts the transfer of layers `first` up to `last`, in one batch."""
        operation, own = (dist.isend, None) if self.job.rank == 0 else (dist.irecv, 0)
        return dist.batch_isend_irecv(
            [
                dist.P2POp(operation, request.content[layer], number if own is None else own)
                for layer in range(first, last)
                for number, request in self.requests.items()
            ]
        )

    def transfer_at_once(self) -> None:
        for work in self.start(0, self.shape.layers):
            work.wait()

    def transfer_as_computed(self) -> None:
        """Transfers the cache of each layer while the next layer is computed."""
        pending = []
        if self.job.rank == 0:
            self.prefill(lambda layer: pending.extend(self.start(layer, layer + 1)))
        else:
            for layer in range(self.shape.layers):
                pending += self.start(layer, layer + 1)
        for work in pending:
            work.wait()

    def decode(self) -> None:
        """Decodes one token on every rank except the first."""
        if self.job.rank == 0:
            return
        places = torch.tensor([self.tokens], device=self.x.device)
        turn, x = self.turn(places, self.x.dtype), self.x[:, :1]
        for layer in range(self.shape.layers):
            x = self.block(x, turn, self.requests[self.job.rank].cache(layer), places)

    def first_token(self, *parts: Callable[[], object]) -> float:
        """Seconds that the steps take on the slowest rank."""
        found = []
        for _ in range(2):
            self.job.synchronize()
            self.job.barrier()
            self.job.synchronize()
            start = time.perf_counter()
            for part in parts:
                part()
            self.job.synchronize()
            found.append(time.perf_counter() - start)
        # The first run is a warm-up.
        return self.job.slowest(found)[-1]

    def check(self, how: str) -> None:
        """Checks that every rank has received the bits that were sent to it, and clears them."""
        own = {number: digest(request.content) for number, request in self.requests.items()}
        every: list[dict[int, str]] = [{}] * self.job.ranks
        dist.all_gather_object(every, own)
        for number in self.decoders:
            self.job.check(every[number][number] == every[0][number], f"{how}: other bits of {self.tokens} tokens")
        if self.job.rank:
            self.requests[self.job.rank].content.zero_()

    def run(self, repeats: int) -> None:
        job, name = self.job, f"{self.tokens} tokens"
        for how, transfer in (("send and recv", self.transfer), ("batch", self.transfer_at_once)):
            transfer()
            self.check(how)
            seconds = job.median(transfer, repeats)
            job.seconds[f"transfer by {how}, {name}"] = seconds
            job.facts[f"GB/s by {how}, {name}"] = self.bytes * len(self.decoders) / seconds / 1e9
        self.transfer_as_computed()
        self.check("as computed")
        job.seconds[f"prefill, {name}"] = job.median(self.prefill, 1)
        parts = (self.prefill, self.transfer_at_once, self.decode)
        job.seconds[f"first token, transfer after prefill, {name}"] = self.first_token(*parts)
        job.seconds[f"first token, transfer as computed, {name}"] = self.first_token(
            self.transfer_as_computed, self.decode
        )
        job.facts[f"MiB of a request, {name}"] = self.bytes / 2**20


@torch.no_grad()
def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument(
        "--tokens", type=int, nargs="+", default=[512, 7680, 51200], help="numbers of tokens in a prompt"
    )
    options.add_argument("--values", type=Path, help="a safetensors file with values of a KV cache, in bfloat16")
    options.add_argument("--tensor", help="a tensor of the file; default: all with kv in their names")
    options.add_argument("--times", type=int, default=5, help="number of timed transfers")
    chosen = options.parse_args()
    job = Job(chosen)
    shape = LARGE if job.on_gpu else SMALL
    if chosen.values:
        values = values_of(chosen.values, chosen.tensor).to(job.device)
    else:
        values = normal_values(shape, job.device)
    job.facts["values"] = chosen.values.name if chosen.values else "normal"
    with torch.device(job.device):
        block = Block(shape).to(torch.bfloat16)
    fill(block)
    for tokens in chosen.tokens:
        Disaggregated(job, shape, block, values, tokens).run(chosen.times)
    job.end()


if __name__ == "__main__":
    main()
