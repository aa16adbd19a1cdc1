"""Tensors of torch as the input and output of a communicator's calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..types import value_type

_ReduceOp = dist.ReduceOp
_OPS = {
    _ReduceOp.SUM: "sum",
    _ReduceOp.PRODUCT: "prod",
    _ReduceOp.MIN: "min",
    _ReduceOp.MAX: "max",
    _ReduceOp.AVG: "avg",
}


class Filled:
    """A contiguous tensor of one dimension, which is copied to `tensor` at the end.

    keep: it begins with the values of `tensor`, instead of undefined ones.
    """

    def __init__(self, tensor: torch.Tensor, *, keep: bool = False) -> None:
        self._tensor, self._keep = tensor, keep

    def __enter__(self) -> torch.Tensor:
        tensor = self._tensor.detach()
        self._is_copy = not tensor.is_contiguous()
        if not self._is_copy:
            self._flat = tensor.view(-1)
        elif self._keep:
            self._flat = tensor.contiguous().view(-1)
        else:
            self._flat = tensor.new_empty(tensor.numel())
        return self._flat

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._is_copy:
            self._tensor.detach().copy_(self._flat.view(self._tensor.shape))


class Reduction:
    """The input of a reduction, in a type that the library reduces."""

    def __init__(self, tensor: torch.Tensor, op: str) -> None:
        self.op = op
        values = tensor.detach()
        if tensor.dtype == torch.bool:
            if op == "avg":
                raise TypeError("torch.bool has no average")
            # As in torch, the sum and the product of truth values are "or" and "and".
            self.op = {"sum": "max", "prod": "min"}.get(op, op)
            values = values.to(torch.uint8)
        elif tensor.dtype == torch.int16:
            values = values.to(torch.int32)
        elif tensor.is_complex():
            if op not in ("sum", "avg"):
                raise TypeError(f"{tensor.dtype} has no reduction {op}")
            values = torch.view_as_real(values.contiguous())
        self.values = values.contiguous().view(-1)

    def store(self, result: torch.Tensor, output: torch.Tensor) -> None:
        """Converts the result back; integers wrap around."""
        target = output.detach()
        if result.data_ptr() == target.data_ptr():
            return
        if target.is_complex():
            result = torch.view_as_complex(result.view(-1, 2))
        target.copy_(result.view(target.shape))


def reduction_of(opts: Any) -> str:
    """The name of the reduction in options of torch. Raises NotImplementedError for those that the library lacks."""
    op = _ReduceOp.SUM if opts is None else opts.reduceOp
    for known, name in _OPS.items():
        if op == known:
            return name
    raise NotImplementedError(f"the backend narrowcast has no reduction {op}")


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a contiguous copy."""
    return tensor.detach().contiguous()


def moved(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor as values that the library moves: of its type, so that codecs apply, or as bytes."""
    try:
        value_type(tensor.dtype, moved=True)
    except ValueError:
        return tensor.reshape(-1).view(torch.uint8)
    return tensor


def gathered(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The values of tensors end to end."""
    return torch.cat([one.detach().reshape(-1) for one in tensors])


def scatter_to(outputs: Sequence[torch.Tensor], whole: torch.Tensor) -> None:
    """Copies values that are end to end to tensors of any shape."""
    parts = whole.view(-1).split([one.numel() for one in outputs])
    for output, part in zip(outputs, parts, strict=True):
        output.detach().copy_(part.view(output.shape))


def stream_of(tensor: torch.Tensor) -> Any:
    """The current stream of the GPU of a tensor; None for tensors in host memory."""
    return torch.cuda.current_stream(tensor.device) if tensor.device.type == "cuda" else None
