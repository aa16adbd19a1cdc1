"""The sum of sparse tensors over all ranks."""

from __future__ import annotations

from typing import Any

import torch

from .tensors import dense, moved, stream_of


def all_reduce(comm: Any, tensors: list[torch.Tensor]) -> None:
    """Adds the COO tensors of all ranks, in place. The result is coalesced, and has the same bits on every rank.

    tensors: of one size; all of them become the sum.
    """
    own = sum(tensors[1:], tensors[0]).detach().coalesce()
    indices, values = own.indices(), dense(own.values())
    shape = torch.tensor([values.size(0), own.sparse_dim(), *own.shape], device=own.device)
    shapes = shape.new_empty((comm.ranks, shape.numel()))
    comm.all_gather(shape, shapes, stream=stream_of(values))
    for rank, (_, *other) in enumerate(shapes.tolist()):
        if other != shape[1:].tolist():
            raise RuntimeError(
                f"sparse tensors differ: rank {comm.rank} has {own.sparse_dim()} sparse dimensions of the size "
                f"{[*own.shape]}, and rank {rank} {other[0]} of {other[1:]}"
            )
    counts = shapes[:, 0].tolist()
    most = max(counts)
    all_indices = _gathered(comm, indices.t(), most)
    all_values = _gathered(comm, values, most)
    kept = [(all_indices[rank, :count].t(), all_values[rank, :count]) for rank, count in enumerate(counts)]
    total = torch.sparse_coo_tensor(
        torch.cat([one for one, _ in kept], 1), torch.cat([one for _, one in kept]), own.shape, check_invariants=False
    ).coalesce()
    with torch.no_grad():
        for tensor in tensors:
            tensor.copy_(total)  # a detached tensor would not share the number of its values


def _gathered(comm: Any, rows: torch.Tensor, most: int) -> torch.Tensor:
    """The rows of all ranks, of shape (ranks, most, ...). Those after a rank's own are undefined."""
    padded = rows.new_zeros((most, *rows.shape[1:]))
    padded[: rows.size(0)] = rows
    whole = rows.new_empty((comm.ranks, *padded.shape))
    comm.all_gather(moved(padded), moved(whole), stream=stream_of(rows))
    return whole
