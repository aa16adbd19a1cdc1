"""Rows of stores as tensors."""

from __future__ import annotations

from typing import Any

import torch

from ..store import Store, build

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

    Raises TypeError for indices that are not integers, and IndexError for those out of range.
    """
    if indices.dtype not in _INDEX_TYPES:
        if indices.is_floating_point() or indices.is_complex() or indices.dtype == torch.bool:
            raise TypeError(f"indices are {indices.dtype}, not integers")
        indices = indices.long()
    chosen = indices.detach().cpu().contiguous()
    out = _host_memory((*indices.shape, *store.row_shape), store, indices.device)
    store.gather(chosen, out=out)
    return out.to(indices.device, non_blocking=True)


def fetch(store: Store, first: int, count: int, step: int = 1, *, device: Any = "cpu") -> torch.Tensor:
    """Reads rows first, first + step, ... into a new tensor on a device."""
    target = torch.device(device)
    out = _host_memory((count, *store.row_shape), store, target)
    store.fetch(first, count, step, out=out)
    return out.to(target, non_blocking=True)


def _host_memory(shape: tuple[int, ...], store: Store, device: torch.device) -> torch.Tensor:
    """Memory for decoded rows, which are on their way to a device."""
    return torch.empty(shape, dtype=row_type(store), pin_memory=device.type == "cuda")
