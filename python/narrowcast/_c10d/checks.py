"""Checks of arguments, before a call begins. What gloo rejects is rejected in the same words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch


def require(condition: bool, call: str, message: str) -> None:
    """Raises RuntimeError, as torch's own backends do for invalid arguments."""
    if not condition:
        raise RuntimeError(f"narrowcast: {call}: {message}")


def rank(call: str, number: int, size: int, what: str) -> None:
    require(0 <= number < size, call, f"invalid {what} rank {number}, in a group of {size} ranks")


def strided(call: str, tensors: Iterable[torch.Tensor]) -> None:
    for i, one in enumerate(tensors):
        require(one.layout == torch.strided, call, f"invalid tensor layout at index {i}: {one.layout}")


def alike(call: str, tensors: Sequence[torch.Tensor], like: torch.Tensor, *, sizes: bool = True) -> None:
    """The tensors have the type and device of another one, and with `sizes` as many values."""
    for i, one in enumerate(tensors):
        where = f"at index {i} (expected"
        require(one.layout == like.layout, call, f"invalid tensor layout {where} {like.layout}, got {one.layout})")
        require(one.dtype == like.dtype, call, f"invalid tensor type {where} {like.dtype}, got {one.dtype})")
        require(one.device.type == like.device.type, call, f"invalid device {where} {like.device}, got {one.device})")
        same = not sizes or one.numel() == like.numel()
        require(same, call, f"invalid tensor size {where} {[*like.shape]}, got {[*one.shape]})")


def same_length(call: str, outputs: Sequence[object], inputs: Sequence[object]) -> None:
    require(len(inputs) > 0, call, "requires non-empty input tensor list")
    require(
        len(outputs) == len(inputs),
        call,
        f"requires input/output tensor lists to have the same length, not {len(inputs)} and {len(outputs)}",
    )


def parts(call: str, whole: torch.Tensor, part: torch.Tensor, ranks: int) -> None:
    """`whole` holds a part of every rank."""
    require(whole.dtype == part.dtype, call, f"invalid tensor type: the tensors are of {whole.dtype} and {part.dtype}")
    alike(call, [whole], part, sizes=False)
    strided(call, [whole])
    require(
        whole.numel() == part.numel() * ranks,
        call,
        f"invalid tensor size: {[*whole.shape]} does not hold {ranks} times the values of {[*part.shape]}",
    )
