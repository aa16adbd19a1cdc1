"""The operands of statements."""

from __future__ import annotations

from collections.abc import Iterator
from operator import index
from typing import TYPE_CHECKING, SupportsIndex

from ..text import amount
from .record import Range
from .sites import PlanError, whole

if TYPE_CHECKING:
    from .program import Program


class Chunks:
    """Consecutive chunks of a buffer of a rank, or the result of a statement.

    They are used like lists: `chunks[2]` and `chunks[0:2]` are parts, `len(chunks)` is the number of chunks. Assigning
    to a part copies values: `r.output[2] = r.input[0]`. If source and destination are on different ranks, the values
    travel by a message. Several destinations, `a.output[0] = b.output[0] = value`, are one step if possible.

    The result of a statement, such as `r.reduce(...)`, cannot be assigned to. It is stored in scratch only if steps
    need it there.
    """

    __slots__ = ("_program", "_range")

    def __init__(self, program: Program, where: Range) -> None:
        self._program = program
        self._range = where

    def __len__(self) -> int:
        return self._range.count

    def __iter__(self) -> Iterator[Chunks]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, which: int | slice) -> Chunks:
        return Chunks(self._program, self._part(which))

    def __setitem__(self, which: int | slice, value: Chunks) -> None:
        if self._range.buffer.kind == "value":
            raise PlanError("the result of a statement cannot be written; assign it to chunks of a buffer")
        if self._range.buffer.rank < 0:
            raise PlanError("buffers of a switch are written by put")
        self._program._recorder.assign(self._part(which), self._program._range_of(value))

    def piece(self, rank: SupportsIndex) -> Chunks:
        """The piece of a rank, in a buffer with a piece for each rank, such as the output of an all-gather."""
        return self._program._piece(self._range, rank)

    def __repr__(self) -> str:
        buffer, start, count = self._range.buffer, self._range.start, self._range.count
        chunks = f"[{start}]" if count == 1 else f"[{start}:{start + count}]"
        if buffer.kind == "value":
            return f"<{amount(count, 'chunk')} at rank {buffer.rank}>"
        return f"<{buffer.kind}{chunks} of {'a switch' if buffer.rank < 0 else f'rank {buffer.rank}'}>"

    def _part(self, which: int | slice) -> Range:
        buffer, start, count = self._range.buffer, self._range.start, self._range.count
        if isinstance(which, slice):
            if which.step not in (None, 1):
                raise PlanError(f"slices of chunks are consecutive, so their step cannot be {which.step}")
            for bound in (which.start, which.stop):
                if bound is not None and not -count <= whole("a bound of a slice", bound) <= count:
                    raise PlanError(f"{self._named()} has no chunk {index(bound)}")
            first, last, _ = which.indices(count)
            return Range(buffer, start + first, max(0, last - first))
        place = whole("the number of a chunk", which)
        if not -count <= place < count:
            raise PlanError(f"{self._named()} has no chunk {place}")
        return Range(buffer, start + place % count, 1)

    def _named(self) -> str:
        buffer, count = self._range.buffer, self._range.count
        size = f"of {amount(count, 'chunk')}"
        if buffer.kind == "value":
            return f"a result {size}"
        part = "" if count == buffer.size else "a part of "
        owner = "a switch" if buffer.rank < 0 else f"rank {buffer.rank}"
        return f"{part}the {buffer.kind} of {owner}, {size},"
