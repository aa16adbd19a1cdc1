#!/usr/bin/env python3
"""Tokens per second of a Llama-shaped model whose weights are all in host memory: encoded, and as they are.

    tools/gpu/offload_speed.py -o bench/results/h200/offload.json [--layers 32] [--batch 1,2,4,8] [--check]

Both ways run the same module on one GPU, greedily, and must produce the same logits. The baseline copies the weights of
the next unit from page-locked memory while the current one runs (one cudaMemcpy for each unit, two buffers).
The weights are the packaged sample of a Llama, repeated.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
from narrowcast._bench.samples import sample
from narrowcast.torch import offload
from provenance import provenance
from torch import nn
from torch.nn import functional

# The shape of Llama 3.1 8B.
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER, VOCABULARY = 4096, 32, 8, 128, 14336, 128256
PROMPT = 16


class Layer(nn.Module):  # type: ignore[misc]
    """Attention and MLP, with a KV cache of its own."""

    def __init__(self) -> None:
        super().__init__()
        made = {"device": "meta", "dtype": torch.bfloat16, "bias": False}
        self.norm1 = nn.RMSNorm(HIDDEN, device="cuda", dtype=torch.bfloat16)
        self.qkv = nn.Linear(HIDDEN, (HEADS + 2 * KV_HEADS) * HEAD_DIM, **made)
        self.out = nn.Linear(HEADS * HEAD_DIM, HIDDEN, **made)
        self.norm2 = nn.RMSNorm(HIDDEN, device="cuda", dtype=torch.bfloat16)
        self.gate_up = nn.Linear(HIDDEN, 2 * INNER, **made)
        self.down = nn.Linear(INNER, HIDDEN, **made)
        self.cache: Any = None

    def forward(self, x: torch.Tensor, begin: int) -> torch.Tensor:
        """x: (batch, tokens, HIDDEN). begin: the position of the first token."""
        batch, tokens, _ = x.shape
        end = begin + tokens
        mixed = self.qkv(self.norm1(x)).view(batch, tokens, -1, HEAD_DIM).transpose(1, 2)
        query, key, value = mixed.split([HEADS, KV_HEADS, KV_HEADS], dim=1)
        keys, values = self.cache
        keys[:batch, :, begin:end], values[:batch, :, begin:end] = key, value
        attended = functional.scaled_dot_product_attention(
            query, keys[:batch, :, :end], values[:batch, :, :end], is_causal=tokens > 1, enable_gqa=True
        )
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, -1))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


class Model(nn.Module):  # type: ignore[misc]
    """Returns the logits of the last token."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, HIDDEN, device="meta", dtype=torch.bfloat16)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.norm = nn.RMSNorm(HIDDEN, device="cuda", dtype=torch.bfloat16)
        self.head = nn.Linear(HIDDEN, VOCABULARY, device="meta", dtype=torch.bfloat16, bias=False)

    def forward(self, tokens: torch.Tensor, begin: int) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, begin)
        return self.head(self.norm(x[:, -1:]))[:, 0]

    def units(self) -> list[nn.Module]:
        """The modules whose weights are moved together."""
        return [self.embed, *self.layers, self.head]


def fill(model: Model) -> list[torch.Tensor]:
    """Gives the model weights in page-locked memory, one buffer for each unit."""
    source = torch.from_numpy(sample("weights", "bfloat16").view("uint8")).cuda().view(torch.bfloat16)
    buffers = []
    for number, unit in enumerate(model.units()):
        held = [(inner, "weight", one) for inner in unit.modules() for one in inner.parameters(recurse=False)]
        held = [(inner, name, one) for inner, name, one in held if one.device.type == "meta"]
        buffer = torch.empty(sum(one.numel() for *_, one in held), dtype=torch.bfloat16, pin_memory=True)
        begin = 0
        for inner, name, one in held:
            shifted = source.roll(1009 * number + begin % 65521)
            repeated = shifted.repeat(math.ceil(one.numel() / shifted.numel()))[: one.numel()]
            place = buffer[begin : begin + one.numel()]
            place.copy_(repeated)
            setattr(inner, name, nn.Parameter(place.view(one.shape), requires_grad=False))
            begin += one.numel()
        buffers.append(buffer)
    return buffers


class Copied:
    """The baseline: copies the weights of the next unit while the current one runs."""

    def __init__(self, model: Model, buffers: list[torch.Tensor]) -> None:
        self._stream = torch.cuda.Stream()
        self._host = buffers
        size = max(one.numel() for one in buffers)
        self._slots = [torch.empty(size, dtype=torch.bfloat16, device="cuda") for _ in range(2)]
        self._copied = [torch.cuda.Event() for _ in buffers]
        self._left = [torch.cuda.Event() for _ in self._slots]
        self._begun: set[int] = set()
        self._held = []
        self._hooks = []
        for number, unit in enumerate(model.units()):
            own = [one for one in unit.parameters() if one.device.type == "cpu"]
            self._held.append([(one, one.data) for one in own])
            self._hooks += [
                unit.register_forward_pre_hook(lambda *_, number=number: self._enter(number)),
                unit.register_forward_hook(lambda *_, number=number: self._left[number % 2].record()),
            ]
        self._count = len(buffers)
        # With an odd number of units, the last and the first would have the same slot.
        assert self._count % 2 == 0

    def _begin(self, number: int) -> None:
        if number in self._begun:
            return
        self._begun.add(number)
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._left[number % 2])
            host = self._host[number]
            self._slots[number % 2][: host.numel()].copy_(host, non_blocking=True)
            self._copied[number].record()

    def _enter(self, number: int) -> None:
        self._begin(number)
        torch.cuda.current_stream().wait_event(self._copied[number])
        self._begun.discard(number)
        begin = 0
        for parameter, data in self._held[number]:
            parameter.data = self._slots[number % 2][begin : begin + data.numel()].view(data.shape)
            begin += data.numel()
        self._begin((number + 1) % self._count)

    def remove(self) -> None:
        """Leaves the model as it was."""
        torch.cuda.synchronize()
        for hook in self._hooks:
            hook.remove()
        for parameter, data in (one for held in self._held for one in held):
            parameter.data = data


def generate(model: Model, batch: int, tokens: int) -> tuple[float, torch.Tensor]:
    """Tokens per second of all sequences, without the prompt, and the last logits."""
    for layer in model.layers:
        layer.cache = [
            torch.zeros(batch, KV_HEADS, PROMPT + tokens, HEAD_DIM, dtype=torch.bfloat16, device="cuda")
            for _ in range(2)
        ]
    prompt = torch.arange(batch * PROMPT, device="cuda").view(batch, PROMPT) * 7919 % VOCABULARY
    logits = model(prompt, 0)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for number in range(tokens):
        logits = model(logits.argmax(-1, keepdim=True), PROMPT + number)
    torch.cuda.synchronize()
    return batch * tokens / (time.perf_counter() - begin), logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--batch", type=lambda text: [int(one) for one in text.split(",")], default=[1, 2, 4, 8])
    parser.add_argument("--tokens", type=int, default=8, help="tokens that are measured, for each sequence")
    parser.add_argument("--prefetch", type=int, default=1)
    given = parser.parse_args()

    begin = time.perf_counter()

    def said(text: str) -> None:
        print(f"{time.perf_counter() - begin:6.1f} s  {text}", flush=True)

    model = Model(given.layers).eval()
    buffers = fill(model)
    said(f"{sum(one.nbytes for one in buffers) / 1e9:.1f} GB of weights in page-locked memory")

    def measured(name: str) -> list[tuple[float, torch.Tensor]]:
        torch.cuda.reset_peak_memory_stats()
        found = [generate(model, batch, given.tokens) for batch in given.batch]
        said(f"{name}: " + ", ".join(f"{speed:.2f}" for speed, _ in found) + " tokens/s")
        return found

    with torch.inference_mode():
        copied = Copied(model, buffers)
        generate(model, 1, 1)
        raw = measured("cudaMemcpy")
        raw_peak = torch.cuda.max_memory_allocated()
        copied.remove()
        del copied
        torch.cuda.empty_cache()
        offloaded = offload(model, device="cuda", units=model.units(), prefetch=given.prefetch)
        said(f"encoded: {offloaded!r}")
        generate(model, 1, 1)
        ours = measured("narrowcast")
        peak = torch.cuda.max_memory_allocated()
        offloaded.check()
    rows = [
        {
            "batch": batch,
            "memcpy_tokens_per_s": round(plain, 3),
            "narrowcast_tokens_per_s": round(speed, 3),
            "speedup": round(speed / plain, 3),
            "narrowcast_raw_gb_per_s": round(speed / batch * offloaded.raw_bytes / 1e9, 2),
            "same_logits": torch.equal(one, other),
        }
        for batch, (plain, one), (speed, other) in zip(given.batch, raw, ours, strict=True)
    ]
    result = {
        **provenance(),
        "layers": given.layers,
        "raw_bytes": offloaded.raw_bytes,
        "ratio": round(offloaded.ratio or 1, 4),
        "tokens": given.tokens,
        "prefetch": given.prefetch,
        "memcpy_peak_gpu_bytes": raw_peak,
        "narrowcast_peak_gpu_bytes": peak,
        "rows": rows,
    }
    text = json.dumps(result, indent=1)
    print(text)
    if given.output:
        given.output.write_text(text + "\n")
    if not all(row["same_logits"] for row in rows):
        raise SystemExit("the logits differ")


if __name__ == "__main__":
    main()
