"""Exports plans as MSCCL XML.

A group becomes a thread block, so it can send on one ring and receive from one. Steps that do several things become
several rows; barriers and steps that come `after` others become dependences, one a row, with `nop` rows for the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.sax.saxutils import quoteattr

from ....errors import InvalidArgumentError, UnsupportedError
from ...model import Channel, Group, Operand, Plan, Step
from ..collectives import buffer_chunks, collective_name
from .reader import DEPTHS

__all__ = ["write"]

_BUFFERS = {"input": "i", "output": "o", "scratch": "s"}


@dataclass(slots=True)
class _Row:
    kind: str
    source: Operand
    target: Operand
    count: int
    step: int = 0  #: of the group
    waits: list[tuple[int, int]] = field(default_factory=list)  #: (group, row of the group)
    publishes: bool = False
    number: int = 0  #: of the <step>


@dataclass(slots=True)
class _Block:
    """What a group becomes."""

    send: int | None = None  #: rings
    receive: int | None = None
    rows: list[_Row] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)  #: step -> its last row, or the last one before it; -1: none
    barriers: dict[int, list[int]] = field(default_factory=dict)  #: barrier -> last row before each of its uses
    waits: list[tuple[int, list[tuple[int, int]], list[tuple[int, int]]]] = field(default_factory=list)
    # (the row, steps (group, step) that it comes after, uses (barrier, use) of barriers before it)


def write(plan: Plan, protocol: str | None = None) -> str:
    """The document of a plan.

    `protocol` is Simple, LL or LL128. By default it is LL if the rings contain packets, and otherwise the one whose
    connections have room for as many messages as the rings. Raises UnsupportedError, with the rank, group and step, for
    what MSCCL XML cannot express, and InvalidArgumentError for an unknown protocol.
    """
    return _Exporter(plan, protocol).text()


class _Exporter:
    def __init__(self, plan: Plan, protocol: str | None) -> None:
        self.plan = plan
        self.collective = collective_name(plan.operation)
        if plan.instances != 1:
            raise UnsupportedError("MSCCL XML has no instances: lower the plan first")
        for index, channel in enumerate(plan.channels):
            if channel.kind != "ring":
                raise UnsupportedError(f"channel {index} is a {channel.kind} channel: MSCCL XML has only rings")
        self.protocol = _protocol(plan, protocol)
        self.blocks = [
            [self.block(rank, index, group) for index, group in enumerate(contents.groups)]
            for rank, contents in enumerate(plan.ranks)
        ]
        for rank, blocks in enumerate(self.blocks):
            self.resolve(rank, blocks)
        self.numbers = self.channel_numbers()

    def block(self, rank: int, group: int, contents: Group) -> _Block:
        block = _Block()
        after: list[tuple[int, int]] = []
        uses: list[tuple[int, int]] = []
        for index, step in enumerate(contents.steps):
            where = f"rank {rank} group {group} step {index}"
            after.extend(step.after)
            if step.kind == "barrier":
                befores = block.barriers.setdefault(step.barrier, [])
                uses.append((step.barrier, len(befores)))
                befores.append(len(block.rows) - 1)
            elif step.kind in ("copy", "reduce"):
                rows = list(self.rows(block, step, where))
                if after or uses:
                    block.waits.append((len(block.rows), after, uses))
                    after, uses = [], []
                for row in rows:
                    row.step = index
                block.rows.extend(rows)
            elif step.kind != "sync":
                raise UnsupportedError(f"{where}: MSCCL XML has no {step.kind}")
            block.ends.append(len(block.rows) - 1)
        return block

    def rows(self, block: _Block, step: Step, where: str) -> Iterator[_Row]:
        """The rows of a copy or reduce."""
        for operand in (*step.sources, *step.destinations):
            if operand.codec != "raw":
                raise UnsupportedError(f"{where}: MSCCL XML has no codecs ({operand.codec})")
            if operand.packets:
                raise UnsupportedError(f"{where}: MSCCL XML has no packets in buffers")
        locals_in = [operand for operand in step.sources if operand.place == "local"]
        locals_out = [operand for operand in step.destinations if operand.place == "local"]
        receives = len(step.sources) - len(locals_in)
        sends = len(step.destinations) - len(locals_out)
        if receives > 1 or sends > 1:
            raise UnsupportedError(f"{where}: a step of MSCCL XML sends and receives one message at most")
        for operand in step.sources:
            if operand.place == "message":
                block.receive = _same(block.receive, operand.channel, f"{where}: an MSCCL thread block receives")
        for operand in step.destinations:
            if operand.place == "message":
                block.send = _same(block.send, operand.channel, f"{where}: an MSCCL thread block sends")

        def row(kind: str, source: Operand, target: Operand) -> _Row:
            return _Row(kind, source, target, step.count)

        stored = next((operand for operand in locals_out if operand in locals_in), None)
        stored = stored or (locals_out[0] if locals_out else None)
        if len(locals_in) + receives > 1:
            if len(locals_in) != len({(operand.buffer, operand.chunk) for operand in locals_in}):
                raise UnsupportedError(f"{where}: MSCCL XML cannot add a chunk to itself")
            if len(locals_in) > 1:
                if stored is None or (receives and stored not in locals_in):
                    raise UnsupportedError(f"{where}: MSCCL XML reduces several local chunks into one of them only")
                others = [operand for operand in locals_in if operand != stored]
                if len(others) == len(locals_in):
                    yield row("cpy", others.pop(0), stored)
                for operand in others:
                    yield row("re", operand, stored)
            if receives:
                source = locals_in[0] if len(locals_in) == 1 else stored
                assert source is not None
                kind = "rrs" if stored is None else ("rrcs" if sends else "rrc")
                yield row(kind, source, stored or source)
            elif sends:
                assert stored is not None
                yield row("s", stored, stored)
        elif receives:
            if stored is None:
                raise UnsupportedError(f"{where}: MSCCL XML stores the messages that it forwards")
            yield row("rcs" if sends else "r", stored, stored)
        else:
            source = locals_in[0]
            if stored is None or stored == source:
                stored = source
            else:
                yield row("cpy", source, stored)
            if sends:
                yield row("s", source, source)
        for operand in locals_out:
            if operand != stored:
                assert stored is not None
                yield row("cpy", stored, operand)

    def resolve(self, rank: int, blocks: list[_Block]) -> None:
        """Turns what rows come after into rows, and numbers the rows."""
        for own, block in enumerate(blocks):
            for row, after, uses in block.waits:
                found: dict[int, int] = {}  # the last row of each block
                for group, step in after:
                    if group >= len(blocks) or step >= len(blocks[group].ends):
                        raise InvalidArgumentError(f"rank {rank} group {own}: there is no step {step} in group {group}")
                    found[group] = max(found.get(group, -1), blocks[group].ends[step])
                for barrier, use in uses:
                    for group, other in enumerate(blocks):
                        if group != own and use < len(other.barriers.get(barrier, ())):
                            found[group] = max(found.get(group, -1), other.barriers[barrier][use])
                waits = [(group, last) for group, last in found.items() if last >= 0]
                block.rows[row].waits = waits
                for group, last in waits:
                    blocks[group].rows[last].publishes = True
        for block in blocks:
            number = 0
            previous: _Row | None = None
            for entry in block.rows:
                # Interpreters fuse reductions in a row, even those of different counts, unless the first publishes.
                if previous is not None and previous.step != entry.step and previous.kind == entry.kind == "re":
                    previous.publishes = True
                number += max(len(entry.waits) - 1, 0)
                entry.number = number
                number += 1
                previous = entry

    def channel_numbers(self) -> dict[int, int]:
        """The channel of each ring: rings of one thread block have the same, rings between two ranks different ones."""
        parent = list(range(len(self.plan.channels)))

        def find(ring: int) -> int:
            while parent[ring] != ring:
                parent[ring] = parent[parent[ring]]
                ring = parent[ring]
            return ring

        for blocks in self.blocks:
            for block in blocks:
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
                raise UnsupportedError(
                    f"rings {', '.join(map(str, rings))} would need one channel of MSCCL, because groups use several "
                    "of them, but two of them connect the same ranks"
                )
            number = next(n for n in range(len(used) + 1) if not any((*pair, n) in used for pair in ends))
            used.update((*pair, number) for pair in ends)
            numbers.update(dict.fromkeys(rings, number))
        return numbers

    def text(self) -> str:
        plan = self.plan
        ranks = len(plan.ranks)
        inputs, outputs = buffer_chunks(plan.operation, ranks, plan.chunks)
        name = re.sub(r"[^\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", plan.name)
        in_place = int(plan.in_place != "no")
        out_of_place = int(plan.in_place != "yes")
        lines = [
            f"<algo name={quoteattr(name)} proto={quoteattr(self.protocol)} "
            f'nchannels="{max(self.numbers.values(), default=0) + 1}" nchunksperloop="{max(inputs, outputs)}" '
            f'ngpus="{ranks}" coll="{self.collective}" inplace="{in_place}" outofplace="{out_of_place}" '
            f'minBytes="{plan.min_bytes}" maxBytes="{plan.max_bytes}">'
        ]
        for rank, blocks in enumerate(self.blocks):
            scratch = plan.ranks[rank].scratch_chunks
            lines.append(f'  <gpu id="{rank}" i_chunks="{inputs}" o_chunks="{outputs}" s_chunks="{scratch}">')
            for index, block in enumerate(blocks):
                lines += self.block_lines(index, block, blocks)
            lines.append("  </gpu>")
        return "\n".join([*lines, "</algo>\n"])

    def block_lines(self, index: int, block: _Block, blocks: list[_Block]) -> Iterator[str]:
        send = -1 if block.send is None else self.plan.channels[block.send].receiver
        receive = -1 if block.receive is None else self.plan.channels[block.receive].sender
        ring = block.send if block.send is not None else block.receive
        number = 0 if ring is None else self.numbers[ring]
        yield f'    <tb id="{index}" send="{send}" recv="{receive}" chan="{number}">'
        for row in block.rows:
            waits = [(group, blocks[group].rows[last].number) for group, last in row.waits] or [(-1, -1)]
            for position, wait in enumerate(waits[:-1]):
                yield _line(row.number - len(waits) + 1 + position, _NOP, wait)
            yield _line(row.number, row, waits[-1])
        yield "    </tb>"


_NOP = _Row("nop", Operand("input", -1), Operand("output", -1), 0)


def _line(number: int, row: _Row, wait: tuple[int, int]) -> str:
    source, target = row.source, row.target
    assert source.buffer is not None
    assert target.buffer is not None
    return (
        f'      <step s="{number}" type="{row.kind}" srcbuf="{_BUFFERS[source.buffer]}" srcoff="{source.chunk}" '
        f'dstbuf="{_BUFFERS[target.buffer]}" dstoff="{target.chunk}" cnt="{row.count}" depid="{wait[0]}" '
        f'deps="{wait[1]}" hasdep="{int(row.publishes)}"/>'
    )


def _same(known: int | None, ring: int | None, does: str) -> int | None:
    if known is not None and known != ring:
        raise UnsupportedError(f"{does} on one ring, and this group uses rings {known} and {ring}")
    return ring


def _protocol(plan: Plan, protocol: str | None) -> str:
    rings: list[Channel] = plan.channels
    deepest = max((ring.depth for ring in rings), default=0)
    packets = any(ring.packets for ring in rings)
    if protocol is None:
        if packets and not all(ring.packets for ring in rings):
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
