"""The memory of a rank, as exporters need it."""

from __future__ import annotations

from ..model import Operand, PlanModel
from .collectives import buffer_chunks

__all__ = ["Memory"]


class Memory:
    """The memory of a rank: which operands are the same, and chunks for intermediate results."""

    def __init__(self, plan: PlanModel, rank: int, shared: bool) -> None:
        """`shared`: input and output may be the same memory."""
        inputs, outputs = buffer_chunks(plan.operation, len(plan.ranks), plan.chunks)
        self.shared = shared
        self.offsets = {"input": rank * inputs * (inputs < outputs), "output": rank * outputs * (outputs < inputs)}
        self.scratch_chunks = plan.ranks[rank].scratch_chunks

    def range_of(self, operand: Operand, count: int) -> tuple[str, int, int]:
        """The memory, the first chunk and the end of a local operand."""
        name = str(operand.buffer)
        first = operand.chunk
        if self.shared and name != "scratch":
            first += self.offsets[name]
            name = "user"
        return name, first, first + count

    def same(self, one: Operand, other: Operand) -> bool:
        """Whether two operands are the same chunks."""
        return self.range_of(one, 1) == self.range_of(other, 1)

    def overlap(self, one: Operand, other: Operand, count: int) -> bool:
        """Whether two operands have a chunk in common."""
        first, second = self.range_of(one, count), self.range_of(other, count)
        return first[0] == second[0] and first[1] < second[2] and second[1] < first[2]

    def new(self, count: int) -> Operand:
        """Scratch chunks that nothing else uses."""
        self.scratch_chunks += count
        return Operand("scratch", self.scratch_chunks - count)
