"""Reductions of torch: those of the library, and what follows from them or from exchanging the values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
import torch.distributed as dist

from .tensors import dense, stream_of

_ReduceOp = dist.ReduceOp
_OPS: Final = {
    _ReduceOp.SUM: "sum",
    _ReduceOp.PRODUCT: "prod",
    _ReduceOp.MIN: "min",
    _ReduceOp.MAX: "max",
    _ReduceOp.AVG: "avg",
    _ReduceOp.BAND: "band",
    _ReduceOp.BOR: "bor",
    _ReduceOp.BXOR: "bxor",
    _ReduceOp.PREMUL_SUM: "premul_sum",
}
# Of two tensors; the first is changed.
_OF_TWO: Final[dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    "sum": torch.Tensor.add_,
    "prod": torch.Tensor.mul_,
    "min": lambda one, other: torch.minimum(one, other, out=one),
    "max": lambda one, other: torch.maximum(one, other, out=one),
    "band": torch.Tensor.bitwise_and_,
    "bor": torch.Tensor.bitwise_or_,
    "bxor": torch.Tensor.bitwise_xor_,
}
_BITWISE: Final = ("band", "bor", "bxor")
_BITS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# Types that the library does not reduce, and wider ones that it does. The results wrap around.
_WIDER: Final = {torch.int16: torch.int32, torch.uint16: torch.int32}


class Reduction:
    """One reduction of `ReduceOp`. Raises NotImplementedError for those of neither gloo nor NCCL."""

    def __init__(self, op: Any) -> None:
        name = next((name for known, name in _OPS.items() if op == known), None)
        if name is None:
            raise NotImplementedError(f"the backend narrowcast has no reduction {op}")
        self.name: str = name
        # The state of a PREMUL_SUM is the only place where Python sees its factor, a number or a tensor.
        self._factor: Any = op.__getstate__()[1] if name == "premul_sum" else None

    def check(self, dtype: torch.dtype) -> None:
        """Raises TypeError if values of this type do not have the reduction."""
        integral = not dtype.is_floating_point and not dtype.is_complex
        if (
            (self.name in _BITWISE and not integral)
            or (dtype.is_complex and self.name not in ("sum", "avg", "premul_sum"))
            or (dtype == torch.bool and self.name in ("avg", "premul_sum"))
        ):
            raise TypeError(f"{dtype} has no reduction {self.name}")

    def of_rank(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        """The tensors of one rank reduced to one."""
        if len(tensors) == 1:
            return tensors[0]
        if self.name not in _OF_TWO:
            raise NotImplementedError(f"the reduction {self.name} takes one tensor per rank, not {len(tensors)}")
        result = dense(tensors[0]).clone()
        for one in tensors[1:]:
            _OF_TWO[self.name](result, one.detach())
        return result

    def all_reduce(self, comm: Any, tensor: torch.Tensor) -> None:
        """Reduces a tensor over all ranks, in place."""
        if self.name in _BITWISE:
            part = self._exchanged(comm, tensor)
            whole = part.new_empty(part.numel() * comm.ranks)
            comm.all_gather(part, whole, stream=stream_of(tensor))
            _store_bits(whole, tensor)
            return
        options, values = self._given(tensor)
        comm.all_reduce(values, **options, stream=stream_of(tensor))
        _store(values, tensor)

    def reduce(self, comm: Any, tensor: torch.Tensor, root: int) -> None:
        """Reduces a tensor over all ranks, in place on the root."""
        is_root = comm.rank == root
        if self.name in _BITWISE:
            part = self._exchanged(comm, tensor)
            whole = part.new_empty(part.numel() * comm.ranks) if is_root else None
            comm.gather(part, whole, root=root, stream=stream_of(tensor))
            if whole is not None:
                _store_bits(whole, tensor)
            return
        options, values = self._given(tensor)
        comm.reduce(values, root=root, **options, stream=stream_of(tensor))
        if is_root:
            _store(values, tensor)

    def reduce_scatter(self, comm: Any, tensor: torch.Tensor, output: torch.Tensor, codec: str = "auto") -> None:
        """Reduces a tensor over all ranks, and stores the part of this rank in `output`."""
        if self.name in _BITWISE:
            _store_bits(self._exchanged(comm, tensor), output)
            return
        options, values = self._given(tensor)
        part = values.new_empty(values.numel() // comm.ranks)
        comm.reduce_scatter(values, part, **options, codec=codec, stream=stream_of(output))
        _store(part, output)

    def _given(self, tensor: torch.Tensor) -> tuple[dict[str, Any], torch.Tensor]:
        """What the library reduces: options of the call, and values of a type that has the reduction."""
        values, op = dense(tensor).view(-1), self.name
        if op == "premul_sum":
            factor = self._factor.to(values) if isinstance(self._factor, torch.Tensor) else self._factor
            if values.is_floating_point():
                return {"op": "sum", "factor": factor}, values
            op, values = "sum", (values * factor).to(values.dtype)
        if tensor.dtype == torch.bool:
            # As in torch, the sum and the product of truth values are "or" and "and".
            op, values = {"sum": "max", "prod": "min"}.get(op, op), values.to(torch.uint8)
        elif tensor.dtype in _WIDER:
            values = values.to(_WIDER[tensor.dtype])
        elif tensor.is_complex():
            values = torch.view_as_real(values).view(-1)
        return {"op": op}, values

    def _exchanged(self, comm: Any, tensor: torch.Tensor) -> torch.Tensor:
        """The bits of this rank's part of a tensor, reduced over all ranks. The last part is padded."""
        bits = dense(tensor).view(-1).view(_BITS[tensor.element_size()])
        count = -(-bits.numel() // comm.ranks)
        sent = bits if bits.numel() == count * comm.ranks else bits.new_zeros(count * comm.ranks)
        if sent is not bits:
            sent[: bits.numel()] = bits
        received = torch.empty_like(sent)
        comm.all_to_all(sent, received, stream=stream_of(tensor))
        result, *others = received.view(comm.ranks, count)
        for other in others:
            _OF_TWO[self.name](result, other)
        return result


def _store(values: torch.Tensor, output: torch.Tensor) -> None:
    """Converts a result of the library to the type of a tensor."""
    target = output.detach()
    if values.data_ptr() == target.data_ptr():
        return
    if target.is_complex():
        values = torch.view_as_complex(values.view(-1, 2))
    target.copy_(values.view(target.shape))


def _store_bits(bits: torch.Tensor, output: torch.Tensor) -> None:
    output.detach().copy_(bits[: output.numel()].view(output.dtype).view(output.shape))
