"""Divides the steps of a group into rows of MSCCL thread blocks.

A thread block of MSCCL sends on one connection and receives on one. A group that uses several rings becomes several
thread blocks: each ring has one, or shares it with one in the other direction if steps forward from one to the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from ...model import Group, Operand, Step
from ..memory import Memory
from ..refusal import Refusal

__all__ = ["Lanes", "Row", "rows_of"]


@dataclass(slots=True)
class Row:
    """A step of MSCCL."""

    kind: str
    source: Operand
    target: Operand
    count: int
    send: int | None = None  #: rings
    receive: int | None = None
    step: int = 0  #: of the group
    waits: list[tuple[int, int]] = field(default_factory=list)  #: (block, index) of rows
    publishes: bool = False
    number: int = 0  #: in the document

    def reads(self) -> list[Operand]:
        """The chunks that it reads."""
        if self.kind in ("r", "rcs"):
            return []
        return [self.source, self.target] if self.kind == "re" else [self.source]

    def writes(self) -> list[Operand]:
        """The chunks that it writes."""
        return [] if self.kind in ("s", "rrs") else [self.target]


class Lanes:
    """Which thread block of a group sends or receives on each ring."""

    def __init__(self, group: Group, paired: bool) -> None:
        sends: dict[int, int | None] = {}  # the ring in the other direction that shares the thread block
        receives: dict[int, int | None] = {}
        for step in group.steps:
            from_rings = _rings(step.sources)
            to_rings = _rings(step.destinations)
            for ring in to_rings:
                sends.setdefault(ring, None)
            for ring in from_rings:
                receives.setdefault(ring, None)
            if paired and from_rings and receives[from_rings[-1]] is None:
                free = next((ring for ring in to_rings if sends[ring] is None), None)
                if free is not None:
                    sends[free], receives[from_rings[-1]] = from_rings[-1], free
        if paired and len(sends) == len(receives) == 1:  # all in one thread block, also if nothing is forwarded
            sends[next(iter(sends))], receives[next(iter(receives))] = next(iter(receives)), next(iter(sends))
        self.rings: list[tuple[int | None, int | None]] = []  # (send, receive) of each thread block
        self.send: dict[int, int] = {}
        self.receive: dict[int, int] = {}
        for send, receive in sends.items():
            self.send[send] = len(self.rings)
            if receive is not None:
                self.receive[receive] = len(self.rings)
            self.rings.append((send, receive))
        for receive, partner in receives.items():
            if partner is None:
                self.receive[receive] = len(self.rings)
                self.rings.append((None, receive))
        if not self.rings:
            self.rings.append((None, None))

    def of(self, row: Row) -> int | None:
        """The thread block of a row; None if any can run it."""
        if row.send is not None:
            return self.send[row.send]
        return None if row.receive is None else self.receive[row.receive]

    def together(self, receive: int, send: int) -> bool:
        """Whether one thread block receives on one ring and sends on the other."""
        return self.receive[receive] == self.send[send]


def rows_of(step: Step, lanes: Lanes, memory: Memory, where: str) -> Iterator[Row]:
    """The rows of a copy or reduce, in an order in which one thread block could run them."""

    def refuse(message: str) -> NoReturn:
        raise Refusal(where, f"MSCCL XML {message}", step.origin)

    for operand in (*step.sources, *step.destinations):
        if operand.codec != "raw":
            refuse(f"has no codecs ({operand.codec})")
        if operand.packets:
            refuse("has no packets in buffers")
        if operand.partial:
            refuse("has no partial sums")
    count = step.count
    sources = [operand for operand in step.sources if operand.place == "local"]
    targets = [operand for operand in step.destinations if operand.place == "local"]
    receives = _rings(step.sources)
    sends = _rings(step.destinations)

    # Where the result is stored: in place of a source if possible, so that no other source is overwritten before.
    result = next((target for target in targets if any(memory.same(target, source) for source in sources)), None)
    if result is None and targets:
        result = targets[0]
    if step.kind == "copy" and sources:
        result = sources[0]
    if result is None:
        fused = len(sources) == len(receives) == len(sends) == 1 and lanes.together(receives[0], sends[0])
        if fused:
            yield Row("rrs", sources[0], sources[0], count, sends[0], receives[0])
            return
        result = memory.new(count)
    for position, source in enumerate(sources):
        if any(memory.same(source, other) for other in sources[:position]):
            refuse("cannot add a chunk to itself")
    if len(sources) > 1:
        first = next((source for source in sources if memory.same(source, result)), sources[0])
        others = [source for source in sources if source is not first]
        if any(memory.overlap(source, result, count) for source in others):
            refuse("cannot reduce chunks into ones that overlap them")
        if first != result:
            yield Row("cpy", first, result, count)
        for source in others:
            yield Row("re", source, result, count)
        sources = [result]
    for position, receive in enumerate(receives):
        forwarded = None
        if position == len(receives) - 1:
            forwarded = next((send for send in sends if lanes.together(receive, send)), None)
        if sources:
            yield Row("rrc" if forwarded is None else "rrcs", sources[0], result, count, forwarded, receive)
        else:
            yield Row("r" if forwarded is None else "rcs", result, result, count, forwarded, receive)
        sources = [result]
        sends = [send for send in sends if send != forwarded]
    for send in sends:
        yield Row("s", result, result, count, send)
    for target in targets:
        if target != result:
            yield Row("cpy", result, target, count)


def _rings(operands: list[Operand]) -> list[int]:
    return [operand.channel for operand in operands if operand.place == "message" and operand.channel is not None]
