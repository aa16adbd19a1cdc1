"""Rows of stores as tensors."""

from __future__ import annotations

from typing import Any

import torch

from ..store import Store, build
from .values import plain

_TYPES = {"float8_e4m3": torch.float8_e4m3fn}
_INDEX_TYPES = (torch.int32, torch.int64)


def built(source: Any, **options: Any) -> Store:
    """An open store with the rows of an array."""
    made = build(source, **options)
    if made is None:
        raise ValueError("host is None, but the store is needed")
    return made


def row_type(store: Store) -> torch.dtype:
    """The type of a store's rows."""
    found = _TYPES.get(store.dtype) or getattr(torch, store.dtype)
    assert isinstance(found, torch.dtype)
    return found


def gather(store: Store, indices: torch.Tensor) -> torch.Tensor:
    """Reads rows into a new tensor of shape (*indices.shape, *row_shape), on the device of the indices.

    If that is a GPU, it reads the rows itself, in the order of the current stream. Indices out of range yield zeros
    there, which `store.check` reports.

    Raises TypeError for indices that are not integers, and IndexError for those in host memory that are out of range.
    """
    if indices.dtype not in _INDEX_TYPES:
        if indices.is_floating_point() or indices.is_complex() or indices.dtype == torch.bool:
            raise TypeError(f"indices are {indices.dtype}, not integers")
        indices = indices.long()
    chosen = plain(indices).contiguous()
    out = torch.empty((*indices.shape, *store.row_shape), dtype=row_type(store), device=indices.device)
    if chosen.is_cuda and store.layout == "blocks":
        chosen = chosen.cpu()  # for which GPUs take no indices of their own
    store.gather(chosen, out=out)
    return out


def fetch(store: Store, first: int, count: int, step: int = 1) -> torch.Tensor:
    """Reads rows first, first + step, ... into a new tensor in host memory."""
    out = torch.empty((count, *store.row_shape), dtype=row_type(store))
    store.fetch(first, count, step, out=out)
    return out
