"""Exports plans as MSCCL XML.

Groups become thread blocks (rows.py). Rows of a group wait for each other where they access the same chunks. Barriers
and steps that come `after` others become such dependences too: one a row, with `nop` rows for the rest.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from ....errors import InvalidArgumentError, UnsupportedError
from ...model import Group, Operand, PlanModel
from ..collectives import buffer_chunks, collective_name
from ..memory import Memory
from ..references import check_references
from ..refusal import Refusal
from .reader import DEPTHS
from .rows import Lanes, Row, rows_of

__all__ = ["write"]

_LETTERS = {"input": "i", "output": "o", "scratch": "s"}


def write(plan: PlanModel, protocol: str | None = None) -> str:
    """The document of a plan.

    `protocol` is Simple, LL or LL128. By default it is LL if the rings contain packets, and otherwise the one whose
    connections have room for as many messages as the rings. Raises UnsupportedError, with the rank, group and step, for
    what MSCCL XML cannot express, and InvalidArgumentError for an unknown protocol and a plan that is wrong.
    """
    check_references(plan)
    collective_name(plan.operation)
    if plan.instances != 1:
        raise UnsupportedError("MSCCL XML has no instances: export the lowered plan")
    for index, channel in enumerate(plan.channels):
        if channel.kind != "ring":
            raise UnsupportedError(f"channel {index} is a {channel.kind} channel: MSCCL XML has only rings")
    protocol = _protocol(plan, protocol)
    try:
        return _Exporter(plan, protocol, paired=True).text()
    except _ChannelConflict:
        return _Exporter(plan, protocol, paired=False).text()


class _ChannelConflict(Exception):
    """The channel of a thread block is that of both its rings, and no numbering of channels allows that."""


@dataclass(slots=True)
class _Block:
    """A thread block."""

    send: int | None
    receive: int | None
    rows: list[Row] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)  #: of the group, for each row


class _Rank:
    """The thread blocks of a rank."""

    def __init__(self, plan: PlanModel, rank: int, paired: bool) -> None:
        self.rank = rank
        self.memory = Memory(plan, rank, plan.in_place != "no")
        self.blocks: list[_Block] = []
        groups = plan.ranks[rank].groups
        self.barriers = [_uses(group) for group in groups]
        self.first: list[int] = []  # the first block of each group
        self.later: list[tuple[Row, int, int]] = []  # rows that come after a step of a group
        for index, group in enumerate(groups):
            self.first.append(len(self.blocks))
            self.add(index, group, paired)
        self.first.append(len(self.blocks))
        self.resolve()
        for block in self.blocks:
            _number(block)

    def add(self, index: int, group: Group, paired: bool) -> None:
        lanes = Lanes(group, paired)
        start = len(self.blocks)
        blocks = [_Block(send, receive) for send, receive in lanes.rings]
        self.blocks += blocks
        order = _Order(self.memory, blocks) if len(blocks) > 1 else None
        after: dict[int, int] = {}  # group -> the step that the current step comes after
        known: list[dict[int, int]] = [{} for _ in blocks]
        uses: dict[int, int] = {}
        lane = 0
        for number, step in enumerate(group.steps):
            where = f"rank {self.rank}, group {index}, step {number}"
            for other, needed in step.after:
                after[other] = max(after.get(other, -1), needed)
            if step.kind == "barrier":
                use = uses[step.barrier] = uses.get(step.barrier, -1) + 1
                for other, positions in enumerate(self.barriers):
                    if other != index and use < len(positions.get(step.barrier, ())):
                        after[other] = max(after.get(other, -1), positions[step.barrier][use])
            elif step.kind in ("copy", "reduce"):
                rows = list(rows_of(step, lanes, self.memory, where))
                for row in rows:
                    # Rows that any thread block can run follow the row before, or precede the first that cannot move.
                    fixed = lanes.of(row)
                    if fixed is None and row is rows[0]:
                        fixed = next((lanes.of(other) for other in rows if lanes.of(other) is not None), None)
                    lane = lane if fixed is None else fixed
                    row.step = number
                    if order is not None:
                        row.waits = [(start + other, at) for other, at in order.add(lane, row)]
                    for other, needed in after.items():
                        if known[lane].get(other, -1) < needed:
                            known[lane][other] = needed
                            self.later.append((row, other, needed))
                    blocks[lane].rows.append(row)
                    blocks[lane].steps.append(number)
            elif step.kind != "sync":
                raise Refusal(where, f"MSCCL XML has no {step.kind}", step.origin)

    def resolve(self) -> None:
        """Turns the steps that rows come after into the last rows of these steps."""
        for row, group, step in self.later:
            for index in range(self.first[group], self.first[group + 1]):
                last = bisect_right(self.blocks[index].steps, step) - 1
                if last >= 0:
                    row.waits.append((index, last))
        for block in self.blocks:
            for row in block.rows:
                for index, last in row.waits:
                    self.blocks[index].rows[last].publishes = True


def _uses(group: Group) -> dict[int, list[int]]:
    """The steps that use each barrier."""
    found: dict[int, list[int]] = {}
    for number, step in enumerate(group.steps):
        if step.kind == "barrier":
            found.setdefault(step.barrier, []).append(number)
    return found


class _Order:
    """What the rows of a group must wait for, if it has several thread blocks: those that access the same chunks."""

    def __init__(self, memory: Memory, blocks: list[_Block]) -> None:
        self.memory = memory
        self.blocks = blocks
        self.writer: dict[tuple[str, int], tuple[int, int]] = {}  # (block, row) of each chunk
        self.readers: dict[tuple[str, int], dict[int, int]] = {}  # since then: block -> row
        self.known: list[dict[int, int]] = [{} for _ in blocks]  # what each block has waited for

    def add(self, block: int, row: Row) -> list[tuple[int, int]]:
        """The rows that the next row of a block waits for: the last one of each other block."""
        needed: dict[int, int] = {}

        def need(other: int, index: int) -> None:
            if other != block and index > self.known[block].get(other, -1):
                needed[other] = max(needed.get(other, -1), index)

        position = len(self.blocks[block].rows)
        written = list(self.chunks(row.writes(), row.count))
        for chunk in (*self.chunks(row.reads(), row.count), *written):
            if chunk in self.writer:
                need(*self.writer[chunk])
        for chunk in written:
            for reader in self.readers.get(chunk, {}).items():
                need(*reader)
        for chunk in self.chunks(row.reads(), row.count):
            self.readers.setdefault(chunk, {})[block] = position
        for chunk in written:
            self.writer[chunk] = (block, position)
            self.readers.pop(chunk, None)
        self.known[block].update(needed)
        return list(needed.items())

    def chunks(self, operands: list[Operand], count: int) -> Iterator[tuple[str, int]]:
        for operand in operands:
            name, first, end = self.memory.range_of(operand, count)
            for chunk in range(first, end):
                yield name, chunk


def _number(block: _Block) -> None:
    """Numbers the rows: each is preceded by a nop for every dependence but the last."""
    number = 0
    previous: Row | None = None
    for row in block.rows:
        # Interpreters fuse reductions in a row, even those of different counts, unless the first publishes.
        if previous is not None and previous.step != row.step and previous.kind == row.kind == "re":
            previous.publishes = True
        row.number = number = number + max(len(row.waits) - 1, 0)
        number += 1
        previous = row


class _Exporter:
    def __init__(self, plan: PlanModel, protocol: str, paired: bool) -> None:
        self.plan = plan
        self.protocol = protocol
        self.ranks = [_Rank(plan, rank, paired) for rank in range(len(plan.ranks))]
        self.numbers = self.channel_numbers()

    def channel_numbers(self) -> dict[int, int]:
        """The channel of each ring: rings of one thread block have the same, rings between two ranks different ones."""
        parent = list(range(len(self.plan.channels)))

        def find(ring: int) -> int:
            while parent[ring] != ring:
                parent[ring] = parent[parent[ring]]
                ring = parent[ring]
            return ring

        for rank in self.ranks:
            for block in rank.blocks:
                if block.send is not None and block.receive is not None:
                    parent[find(block.receive)] = find(block.send)
        together: dict[int, list[int]] = {}
        for ring in range(len(parent)):
            together.setdefault(find(ring), []).append(ring)
        used: set[tuple[int, int, int]] = set()
        numbers: dict[int, int] = {}
        for rings in together.values():
            ends = [(self.plan.channels[ring].sender, self.plan.channels[ring].receiver) for ring in rings]
            if len(set(ends)) != len(ends):
                raise _ChannelConflict
            number = next(n for n in range(len(used) + 1) if not any((*pair, n) in used for pair in ends))
            used.update((*pair, number) for pair in ends)
            numbers.update(dict.fromkeys(rings, number))
        return numbers

    def text(self) -> str:
        from xml.sax.saxutils import quoteattr  # not above, because it loads urllib.request and ssl

        plan = self.plan
        ranks = len(plan.ranks)
        inputs, outputs = buffer_chunks(plan.operation, ranks, plan.chunks)
        name = re.sub(r"[^\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", plan.name)
        lines = [
            f"<algo name={quoteattr(name)} proto={quoteattr(self.protocol)} "
            f'nchannels="{max(self.numbers.values(), default=0) + 1}" nchunksperloop="{max(inputs, outputs)}" '
            f'ngpus="{ranks}" coll="{collective_name(plan.operation)}" inplace="{int(plan.in_place != "no")}" '
            f'outofplace="{int(plan.in_place != "yes")}" minBytes="{plan.min_bytes}" maxBytes="{plan.max_bytes}">'
        ]
        for rank in self.ranks:
            chunks = f'i_chunks="{inputs}" o_chunks="{outputs}" s_chunks="{rank.memory.scratch_chunks}"'
            lines.append(f'  <gpu id="{rank.rank}" {chunks}>')
            for index, block in enumerate(rank.blocks):
                lines += self.block_lines(index, block, rank.blocks)
            lines.append("  </gpu>")
        return "\n".join([*lines, "</algo>\n"])

    def block_lines(self, index: int, block: _Block, blocks: list[_Block]) -> Iterator[str]:
        send = -1 if block.send is None else self.plan.channels[block.send].receiver
        receive = -1 if block.receive is None else self.plan.channels[block.receive].sender
        ring = block.send if block.send is not None else block.receive
        number = 0 if ring is None else self.numbers[ring]
        yield f'    <tb id="{index}" send="{send}" recv="{receive}" chan="{number}">'
        for row in block.rows:
            waits = [(other, blocks[other].rows[last].number) for other, last in row.waits] or [(-1, -1)]
            for position, wait in enumerate(waits[:-1]):
                yield _line(row.number - len(waits) + 1 + position, _NOP, wait)
            yield _line(row.number, row, waits[-1])
        yield "    </tb>"


_NOP = Row("nop", Operand("input", -1), Operand("output", -1), 0)


def _line(number: int, row: Row, wait: tuple[int, int]) -> str:
    source, target = row.source, row.target
    return (
        f'      <step s="{number}" type="{row.kind}" srcbuf="{_LETTERS[str(source.buffer)]}" srcoff="{source.chunk}" '
        f'dstbuf="{_LETTERS[str(target.buffer)]}" dstoff="{target.chunk}" cnt="{row.count}" depid="{wait[0]}" '
        f'deps="{wait[1]}" hasdep="{int(row.publishes)}"/>'
    )


def _protocol(plan: PlanModel, protocol: str | None) -> str:
    deepest = max((ring.depth for ring in plan.channels), default=0)
    packets = any(ring.packets for ring in plan.channels)
    if protocol is None:
        if packets and not all(ring.packets for ring in plan.channels):
            raise UnsupportedError("some rings contain packets and others do not: MSCCL has one protocol for all")
        protocol = "LL" if packets else ("Simple" if deepest <= DEPTHS["Simple"] else "LL128")
        if deepest > DEPTHS[protocol]:
            raise UnsupportedError(
                f"a ring has room for {deepest} messages, and a connection of MSCCL for {DEPTHS[protocol]}; "
                "name a protocol if that is enough"
            )
    elif protocol not in DEPTHS:
        raise InvalidArgumentError(f"{protocol!r} is not a protocol ({', '.join(DEPTHS)})")
    return protocol
