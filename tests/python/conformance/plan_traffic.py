"""The bytes that each rank sends in a call, derived from the plan that the call runs.

The plan is executed on sets of contributions (plan_oracle), which says what every message contains. The medium says how
chunks are cut, and how many bytes carry the values of a message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import narrowcast
import numpy as np
from narrowcast._bench import oracle
from narrowcast._native.operations import describe
from narrowcast._plan.model import PlanModel, Step
from narrowcast.types import ValueType
from plan.plan_oracle import Run, chunk_count

#: Payloads, packets and chunks are multiples of this.
ALIGNMENT_BYTES = 16
_FRAME_HEADER_BYTES = 64  # docs/format/frame.md
_BLOCK_END_BYTES = 4

Values = np.ndarray[Any, np.dtype[Any]]


class Medium(Protocol):
    """How a backend sends values."""

    def first(self, chunk: int, chunks: int, piece_bytes: int) -> int:
        """Where a chunk of a piece begins, in bytes."""
        ...

    def wire_bytes(self, values: Values, kind: ValueType, can_be_coded: bool) -> int:
        """What carries the values of one message, or of one store to the memory of another rank.

        can_be_coded: it is a message or stores packets.
        """
        ...

    def total(self, wire_bytes: int) -> int:
        """Of all messages of a rank."""
        ...


@dataclass(frozen=True)
class Frames:
    """The host backend: messages and packets are values, or a frame for each micro-batch. Other stores are values."""

    codec: str
    part_elems: int = 1 << 62

    def first(self, chunk: int, chunks: int, piece_bytes: int) -> int:
        return min(piece_bytes, chunk * _aligned(-(-piece_bytes // chunks)))

    def wire_bytes(self, values: Values, kind: ValueType, can_be_coded: bool) -> int:
        if self.codec == "raw" or not can_be_coded:
            return values.nbytes
        parts = range(0, values.size, self.part_elems)
        return sum(len(_frame(values[first : first + self.part_elems], kind, self.codec)) for first in parts)

    def total(self, wire_bytes: int) -> int:
        return wire_bytes


@dataclass(frozen=True)
class Blocks:
    """Blocks of kernels: whole ones but for the last of a chunk, encoded one by one."""

    codec: str
    block_bytes: int

    def first(self, chunk: int, chunks: int, piece_bytes: int) -> int:
        blocks = -(-piece_bytes // self.block_bytes)
        return min(piece_bytes, blocks * chunk // chunks * self.block_bytes)

    def wire_bytes(self, values: Values, kind: ValueType, can_be_coded: bool) -> int:
        if self.codec == "raw":
            return _aligned(values.nbytes)
        frame = _frame(values, kind, self.codec)
        return len(frame) - _FRAME_HEADER_BYTES - _aligned(_BLOCK_END_BYTES * narrowcast.inspect(frame).blocks)

    def total(self, wire_bytes: int) -> int:
        return wire_bytes


class ChunkBlocks(Blocks):
    """Kernels generated from plans: the blocks of the host backend's chunks. Other stores are values."""

    def first(self, chunk: int, chunks: int, piece_bytes: int) -> int:
        return Frames(self.codec).first(chunk, chunks, piece_bytes)

    def wire_bytes(self, values: Values, kind: ValueType, can_be_coded: bool) -> int:
        return super().wire_bytes(values, kind, True) if can_be_coded else _aligned(values.nbytes)


@dataclass(frozen=True)
class Packets:
    """Packets of kernels, of 8, 16 or 128 bytes, flags included."""

    bytes: int

    def first(self, chunk: int, chunks: int, piece_bytes: int) -> int:
        return min(piece_bytes, chunk * _aligned(-(-piece_bytes // chunks), 128))

    def wire_bytes(self, values: Values, kind: ValueType, can_be_coded: bool) -> int:
        return values.nbytes

    def total(self, wire_bytes: int) -> int:
        values, of = {8: (1, 2), 16: (3, 4), 128: (15, 16)}[self.bytes]
        return wire_bytes // values * of


@dataclass(frozen=True)
class Sent:
    """By one rank to the others."""

    raw_bytes: int
    wire_bytes: int


def traffic(
    plan: PlanModel,
    inputs: Callable[[int], Values],
    count: int,
    kind: ValueType,
    medium: Medium,
    *,
    op: str = "sum",
    partial_sums: bool = False,
) -> list[Sent]:
    """What each rank sends in a call of `count` values.

    inputs: of a rank.
    partial_sums: the plan may send sums of some ranks. As their rounding is not modelled, the medium must not depend on
        the values; as sums may come from scratch, whose chunks are padded, chunks must be multiples of 16 bytes.
    """
    run = _Traced(plan, plan.in_place == "yes", False, None, None)
    run.run()
    pieces = chunk_count(plan, describe(plan.operation).send, plan.root)
    piece_bytes = count * kind.bytes

    def values(contributions: int) -> Values:
        places = [place for place in range(contributions.bit_length()) if contributions >> place & 1]
        rows = [inputs(place // pieces) for place in places]
        piece, chunk = divmod(places[0] % pieces, plan.chunks)
        begin, end = (medium.first(chunk + i, plan.chunks, piece_bytes) // kind.bytes for i in (0, 1))
        end = end if chunk + 1 < plan.chunks else count
        parts = [row[piece * count + begin : piece * count + end] for row in rows]
        assert partial_sums or len(parts) in (1, len(plan.ranks)), "a partial sum"
        return parts[0] if len(parts) == 1 else oracle.reduce(parts, op, kind)

    found = []
    for sent in run.sent:
        messages = [(values(contributions), can_be_coded) for contributions, can_be_coded in sent]
        wire = sum(medium.wire_bytes(one, kind, can_be_coded) for one, can_be_coded in messages if one.size)
        found.append(Sent(sum(one.nbytes for one, _ in messages), medium.total(wire)))
    return found


class _Traced(Run):
    """Notes what each rank sends."""

    def __init__(self, plan: PlanModel, *arguments: Any) -> None:
        super().__init__(plan, *arguments)
        # The contributions of each chunk, and whether it is a message or packets.
        self.sent: list[list[tuple[int, bool]]] = [[] for _ in plan.ranks]

    def execute(self, rank: int, group: int, step: Step, first: int, count: int) -> None:
        for operand in step.sources:  # gets count at the rank that reads
            if operand.place == "remote":
                values = self.values(rank, group, operand, first, count)
                self.sent[rank] += [(value, operand.packets) for value in values]
            if operand.place == "everywhere":
                got = [cells[cell] for owner, cells, cell in self.cells(rank, operand, first, count) if owner != rank]
                self.sent[rank] += [(value, False) for value in got if value is not None]
        super().execute(rank, group, step, first, count)
        for operand in step.destinations:
            if operand.place == "message":
                assert operand.channel is not None
                self.sent[rank] += [(value, True) for value in self.queues[operand.channel][-1]]
                continue
            for owner, cells, cell in self.cells(rank, operand, first, count):
                if owner == rank:
                    continue
                assert operand.buffer is not None
                value = self.packets[owner][operand.buffer, cell] if operand.packets else cells[cell]
                assert value is not None
                self.sent[rank].append((value, operand.packets))


def _aligned(count_bytes: int, alignment: int = ALIGNMENT_BYTES) -> int:
    return -(-count_bytes // alignment) * alignment


def _frame(values: Values, kind: ValueType, codec: str) -> Any:
    return narrowcast.encode(values, dtype=kind.name, codec=codec)
