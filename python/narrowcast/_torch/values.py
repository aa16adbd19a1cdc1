"""Tensors as values in memory."""

from __future__ import annotations

import torch


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without its gradient, and with the values for which a conjugated or negated view stands."""
    return tensor.detach().resolve_conj().resolve_neg()


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor whose values are adjacent in memory, in any order, such as channels last. Copied only if they are not.

    Its strides are those that torch gives to copies (`torch.preserve_format`).
    """
    strides = torch.empty_like(tensor, device="meta").stride()
    return tensor if tensor.stride() == strides else tensor.clone(memory_format=torch.preserve_format)


def in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    """The values of a dense tensor in one dimension."""
    return tensor.as_strided((tensor.numel(),), (1,))
