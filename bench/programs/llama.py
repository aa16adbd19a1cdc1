"""A Llama in plain torch: RMSNorm, rotary embedding, grouped-query attention, SwiGLU; whole, or one rank's part of it.

With `parts` ranks, every rank has a part of the heads and of the hidden units (tensor parallelism). The second
projection of a layer then gives a partial sum, which `reduce` completes in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

EPSILON = 1e-5
Reduce = Callable[[torch.Tensor], object]


@dataclass(frozen=True)
class Shape:
    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int


class Cache:
    """Keys and values of one layer: [batch, kv_heads, tokens, head_dim] each."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        self.keys, self.values = keys, values


class Rotary(nn.Module):
    def __init__(self, head_dim: int, base: float = 500000.0) -> None:
        super().__init__()
        self.head_dim, self.base = head_dim, base

    def forward(self, places: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of the positions, [tokens, head_dim] each."""
        exponents = torch.arange(0, self.head_dim, 2, device=places.device) / self.head_dim
        angles = places.float()[:, None] * self.base**-exponents
        return angles.cos().repeat(1, 2).to(dtype), angles.sin().repeat(1, 2).to(dtype)


def rotate(values: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    first, second = values.chunk(2, dim=-1)
    return values * turn[0] + torch.cat((-second, first), dim=-1) * turn[1]


class Attention(nn.Module):
    def __init__(self, shape: Shape, parts: int, reduce: Reduce | None) -> None:
        super().__init__()
        self.head_dim, self.reduce = shape.head_dim, reduce
        heads, kv_heads = shape.heads // parts, shape.kv_heads // parts
        self.split = [heads * shape.head_dim, kv_heads * shape.head_dim, kv_heads * shape.head_dim]
        self.qkv = nn.Linear(shape.width, sum(self.split), bias=False)
        self.out = nn.Linear(heads * shape.head_dim, shape.width, bias=False)

    def forward(
        self,
        x: torch.Tensor,
        turn: tuple[torch.Tensor, torch.Tensor],
        cache: Cache | None = None,
        places: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """places: the positions of the tokens in the cache, which contains all earlier tokens."""
        batch, tokens, _ = x.shape
        q, k, v = (
            part.view(batch, tokens, -1, self.head_dim).transpose(1, 2)
            for part in self.qkv(x).split(self.split, dim=-1)
        )
        q, k = rotate(q, turn), rotate(k, turn)
        if cache is not None and places is not None:
            cache.keys.index_copy_(2, places, k)
            cache.values.index_copy_(2, places, v)
        if tokens > 1 or cache is None or places is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            seen = torch.arange(cache.keys.shape[2], device=x.device)[None, :] <= places[:, None]
            # The only backend that supports both a mask and fewer key heads.
            with sdpa_kernel(SDPBackend.MATH):
                y = F.scaled_dot_product_attention(q, cache.keys, cache.values, attn_mask=seen, enable_gqa=True)
        y = self.out(y.transpose(1, 2).reshape(batch, tokens, -1))
        if self.reduce is not None:
            self.reduce(y)
        return y


class FeedForward(nn.Module):
    def __init__(self, shape: Shape, parts: int, reduce: Reduce | None) -> None:
        super().__init__()
        self.reduce = reduce
        self.gate_up = nn.Linear(shape.width, 2 * shape.hidden // parts, bias=False)
        self.down = nn.Linear(shape.hidden // parts, shape.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        y = self.down(F.silu(gate) * up)
        if self.reduce is not None:
            self.reduce(y)
        return y


class Block(nn.Module):
    def __init__(self, shape: Shape, parts: int = 1, reduce: Reduce | None = None) -> None:
        super().__init__()
        self.attention_norm, self.ffn_norm = (nn.RMSNorm(shape.width, eps=EPSILON) for _ in range(2))
        self.attention, self.ffn = Attention(shape, parts, reduce), FeedForward(shape, parts, reduce)

    def forward(
        self,
        x: torch.Tensor,
        turn: tuple[torch.Tensor, torch.Tensor],
        cache: Cache | None = None,
        places: torch.Tensor | None = None,
    ) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), turn, cache, places)
        return x + self.ffn(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self, shape: Shape, parts: int = 1, reduce: Reduce | None = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.rotary = Rotary(shape.head_dim)
        self.blocks = nn.ModuleList(Block(shape, parts, reduce) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=EPSILON)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(
        self, tokens: torch.Tensor, caches: list[Cache] | None = None, places: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Logits, [batch, tokens, vocabulary]; with caches only those of the last token."""
        x = self.embedding(tokens)
        if places is None:
            places = torch.arange(tokens.shape[1], device=tokens.device)
        turn = self.rotary(places, x.dtype)
        for number, block in enumerate(self.blocks):
            x = block(x, turn, caches[number] if caches else None, places)
        return self.head(self.norm(x if caches is None else x[:, -1:]))


@torch.no_grad()
def fill(model: nn.Module, rank: int = 0) -> None:
    """Initialises weights from a seed per parameter and, for the matrices of the blocks, per rank."""
    for number, (name, weight) in enumerate(model.named_parameters()):
        generator = torch.Generator(weight.device).manual_seed(
            1000 * number + (rank if "attention." in name or "ffn." in name else 0)
        )
        if weight.dim() == 1:
            weight.fill_(1.0)
        else:
            weight.normal_(0.0, 0.02, generator=generator)
