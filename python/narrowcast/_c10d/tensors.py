"""Tensors of torch as the input and output of a communicator's calls."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from ..types import value_type


class Filled:
    """A contiguous tensor of one dimension, which is copied to `tensor` at the end.

    keep: it begins with the values of `tensor`, instead of undefined ones.
    """

    def __init__(self, tensor: torch.Tensor, *, keep: bool = False) -> None:
        self._tensor, self._keep = tensor, keep

    def __enter__(self) -> torch.Tensor:
        tensor = self._tensor.detach()
        self._is_copy = not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg()
        if not self._is_copy:
            self._flat = tensor.view(-1)
        elif self._keep:
            self._flat = dense(tensor).view(-1)
        else:
            self._flat = torch.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        return self._flat

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._is_copy:
            self._tensor.detach().copy_(self._flat.view(self._tensor.shape))


def writable(tensor: torch.Tensor) -> contextlib.AbstractContextManager[Any]:
    """A context in which a tensor may be changed: inference mode, if it was created in that."""
    return torch.inference_mode() if tensor.is_inference() else contextlib.nullcontext()


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a contiguous copy. Its memory holds its values: a lazy conjugation or negation is executed."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def units(dtype: torch.dtype) -> int:
    """How many values of `moved` a value of this type is: 1, or its bytes if the library does not have the type."""
    try:
        value_type(dtype, moved=True)
    except ValueError:
        return int(dtype.itemsize)
    return 1


def moved(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor as values that the library moves: of its type, so that codecs apply, or as bytes."""
    return tensor if units(tensor.dtype) == 1 else tensor.reshape(-1).view(torch.uint8)


def gathered(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The values of tensors of one type end to end."""
    return torch.cat([dense(one).view(-1) for one in tensors])


def scatter_to(outputs: Sequence[torch.Tensor], whole: torch.Tensor) -> None:
    """Copies values that are end to end to tensors of any shape."""
    parts = whole.view(-1).split([one.numel() for one in outputs])
    for output, part in zip(outputs, parts, strict=True):
        output.detach().copy_(part.view(output.shape))


def memory_of(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor in host memory, which must outlive them."""
    size = tensor.numel() * tensor.element_size()
    if not size:
        return memoryview(b"")
    return memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())).cast("B")


def stream_of(tensor: torch.Tensor) -> Any:
    """The current stream of the GPU of a tensor; None for tensors in host memory."""
    return torch.cuda.current_stream(tensor.device) if tensor.device.type == "cuda" else None
