"""Imports MSCCL XML.

A thread block becomes a group, and a connection (sender, receiver, channel) a ring. What the format leaves to its
interpreters follows those of MSCCL and RCCL:

- A thread block publishes its progress at steps with hasdep=1 only. Whoever waits for another step waits for the next
  one that publishes; if there is none, the plan hangs, and the imported plan waits for a semaphore that nobody signals.
- A `nop` adds its dependence to the step that follows, and never publishes.
- Up to 16 `re` steps in a row into the same place, without a dependence, are one reduction.
- The operand of rrs, rrc and rrcs besides the message is the *local* source.
- <copy> copies from input to output before all steps. In place this is where the values are already.
- nchunksperloop divides the whole buffer. If the pieces of ranks do not consist of whole chunks, it has smaller ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ...model import Channel, Group, Operand, PlanModel, Rank, Step
from ..collectives import MAX_CHUNKS, MAX_RANKS, buffer_chunks, operation_of, without_gc
from .document import Algorithm, Block, Gpu, fail, integer, parse

__all__ = ["DEPTHS", "MAX_FUSED", "read"]

# Messages in flight. A connection has 8 steps; an operation takes 4 of them with Simple and 1 with LL and LL128.
DEPTHS = {"Simple": 2, "LL": 8, "LL128": 8}
MAX_FUSED = 16  # `re` steps in one reduction

_SENDS = frozenset({"s", "rcs", "rrs", "rrcs"})
_RECEIVES = frozenset({"r", "rcs", "rrs", "rrc", "rrcs"})
_READS = frozenset({"s", "rrs", "rrc", "rrcs", "cpy", "re"})
_WRITES = frozenset({"r", "rcs", "rrc", "rrcs", "cpy", "re"})


def read(data: bytes, depth: int | None = None) -> PlanModel:
    """The plan of a document.

    `depth` is the number of messages that fit a connection; by default 2 for the protocol Simple and 8 for LL and
    LL128. Raises InvalidArgumentError, with the line, for a document that is wrong, and UnsupportedError for a
    collective that the library does not have.
    """
    with without_gc():
        return _Importer(parse(data), depth).plan


@dataclass(slots=True)
class _Converted:
    """A thread block as steps of a plan. Lists have an element for each step."""

    block: Block
    steps: list[Step] = field(default_factory=list)
    last: list[int] = field(default_factory=list)  #: the last row that the step stands for
    publishes: list[int] = field(default_factory=list)
    waits: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)  #: step -> (line, block, row)
    hangs: list[int] = field(default_factory=list)  #: steps that wait for something that is never published
    published: list[int] = field(default_factory=list)

    def publisher(self, row: int) -> int:
        """The first step that publishes at or after a row; -1 if none does."""
        if not self.published:
            found = -1
            below = len(self.block.rows)
            self.published = [-1] * below
            for step in range(len(self.steps) - 1, -1, -1):
                if self.publishes[step]:
                    after = self.last[step] + 1
                    self.published[after:below] = [found] * (below - after)
                    found, below = step, after
            self.published[:below] = [found] * below
        return self.published[row]

    def resolve(self, own: int, blocks: list[_Converted]) -> None:
        """Turns the rows that steps wait for into steps."""
        for step, waits in self.waits.items():
            after: dict[tuple[int, int], None] = {}
            hangs = False
            for line, block, row in waits:
                if block >= len(blocks) or not 0 <= row < len(blocks[block].block.rows):
                    fail(line, f"there is no step {row} of thread block {block} to wait for (depid, deps)")
                publisher = blocks[block].publisher(row)
                if publisher < 0 or (block == own and publisher >= step):
                    hangs = True
                elif block != own:
                    after[block, publisher] = None
            self.steps[step].after = list(after)
            if hangs:
                self.hangs.append(step)


class _Importer:
    def __init__(self, algorithm: Algorithm, depth: int | None) -> None:
        attributes, line = algorithm.attributes, algorithm.line
        ranks = integer(attributes, "ngpus", line, 1, MAX_RANKS)
        protocol = attributes.get("proto", "")
        if protocol not in DEPTHS:
            fail(line, f"proto is {protocol[:40]!r}, not one of {', '.join(DEPTHS)}")
        if "coll" not in attributes:
            fail(line, "the attribute coll is missing")
        self.plan = plan = PlanModel(operation_of(attributes["coll"]), name=attributes.get("name", ""))
        plan.in_place = _in_place(attributes, line)
        plan.root = integer(attributes, "root", line, 0, ranks - 1, 0)
        plan.min_bytes = integer(attributes, "minBytes", line, 0, 2**63 - 1, 0)
        plan.max_bytes = integer(attributes, "maxBytes", line, 0, 2**63 - 1, 0)
        per_loop = integer(attributes, "nchunksperloop", line, 1, MAX_CHUNKS)
        pieces = ranks if plan.operation in ("all_gather", "reduce_scatter", "all_to_all") else 1
        plan.chunks = math.lcm(per_loop, pieces) // pieces
        self.scale = plan.chunks * pieces // per_loop  # chunks of the plan in one of the document

        self.ring = Channel("ring", depth=DEPTHS[protocol] if depth is None else depth, packets=protocol == "LL")
        self.rings: dict[tuple[int, int, int], Operand] = {}
        self.operands: dict[tuple[str, int], Operand] = {}

        gpus = sorted(algorithm.gpus, key=lambda gpu: gpu.number)
        for expected, gpu in enumerate(gpus):
            if gpu.number != expected:
                fail(gpu.line, f"gpu {gpu.number} is {'given twice' if gpu.number < expected else 'out of range'}")
        if len(gpus) != ranks:
            fail(line, f"ngpus={ranks}, but there are {len(gpus)} gpus")
        for gpu in gpus:
            plan.ranks.append(self.rank(gpu, ranks))

    def rank(self, gpu: Gpu, ranks: int) -> Rank:
        blocks = sorted(gpu.blocks, key=lambda block: block.number)
        for expected, block in enumerate(blocks):
            if block.number != expected:
                what = "given twice" if block.number < expected else "not preceded by all lower ones"
                fail(block.line, f"thread block {block.number} of gpu {gpu.number} is {what}")
            for peer in (block.send, block.receive):
                if peer >= ranks or peer == gpu.number:
                    fail(block.line, f"gpu {gpu.number} cannot send to or receive from gpu {peer}")
        converted = [self.convert(gpu.number, block) for block in blocks]
        for index, group in enumerate(converted):
            group.resolve(index, converted)
        if any(group.hangs for group in converted):
            self.hang(gpu.number, converted)
        rank = Rank([Group(group.steps) for group in converted])
        rank.scratch_chunks = gpu.scratch_chunks * self.scale
        self.copy_first(gpu, rank, ranks)
        return rank

    def convert(self, rank: int, block: Block) -> _Converted:
        """The steps of a thread block, still without what they wait for."""
        send = receive = None
        result = _Converted(block)
        steps, last, all_published = result.steps, result.last, result.publishes
        waits: list[tuple[int, int, int]] = []
        chain: tuple[str, int, str, int] | None = None  # of the reduction that the next `re` may join
        for index, row in enumerate(block.rows):
            line, kind, source, source_chunk, target, target_chunk, count, wait_block, wait_row, publishes = row
            if wait_block >= 0:
                waits.append((line, wait_block, wait_row))
            if kind == "nop":
                continue
            if not 1 <= count <= MAX_CHUNKS:
                fail(line, f"cnt={str(count)[:40]} is not between 1 and {MAX_CHUNKS}")
            if kind == "re":
                if chain == (source, count, target, target_chunk) and not waits:
                    sources = steps[-1].sources
                    sources.append(self.local(line, source, source_chunk))
                    last[-1] = index
                    all_published[-1] = publishes
                    if publishes or len(sources) > MAX_FUSED:
                        chain = None
                    continue
                chain = None if publishes or source == target else (source, count, target, target_chunk)
            else:
                chain = None
            sources = []
            targets = []
            if kind in _READS:
                sources.append(self.local(line, source, source_chunk))
            if kind in _WRITES:
                targets.append(self.local(line, target, target_chunk))
            if kind == "re":
                sources.insert(0, targets[0])
            if kind in _RECEIVES:
                if receive is None:
                    receive = self.message(line, block.receive, rank, block.channel, "receives", "recv")
                sources.append(receive)
            if kind in _SENDS:
                if send is None:
                    send = self.message(line, rank, block.send, block.channel, "sends", "send")
                targets.append(send)
            step = Step("copy" if len(sources) == 1 else "reduce", sources, targets, count * self.scale)
            step.origin = line
            if waits:
                result.waits[len(steps)] = waits
                waits = []
            steps.append(step)
            last.append(index)
            all_published.append(publishes)
        if waits:
            result.waits[len(steps)] = waits
            steps.append(Step("sync", origin=block.rows[-1][0]))
            last.append(len(block.rows))
            all_published.append(0)
        return result

    def local(self, line: int, buffer: str, chunk: int) -> Operand:
        operand = self.operands.get((buffer, chunk))
        if operand is None:
            if not 0 <= chunk <= MAX_CHUNKS:
                fail(line, f"the offset {str(chunk)[:40]} in the {buffer} is not between 0 and {MAX_CHUNKS}")
            operand = self.operands[buffer, chunk] = Operand(buffer, chunk * self.scale)
        return operand

    def message(self, line: int, sender: int, receiver: int, channel: int, does: str, attribute: str) -> Operand:
        if sender < 0 or receiver < 0:
            fail(line, f"the step {does}, but the thread block has {attribute}=-1")
        key = (sender, receiver, channel)
        operand = self.rings.get(key)
        if operand is None:
            operand = self.rings[key] = Operand(channel=len(self.plan.channels))
            self.plan.channels.append(Channel("ring", sender, receiver, self.ring.depth, self.ring.packets))
        return operand

    def hang(self, rank: int, converted: list[_Converted]) -> None:
        """Puts a wait that never ends before each step that waits for something that is never published."""
        moved = []  # of each thread block: the new index of each step
        for group in converted:
            hangs = set(group.hangs)
            steps: list[Step] = []
            positions = []
            for index, step in enumerate(group.steps):
                if index in hangs:
                    steps.append(Step("wait", channels=[len(self.plan.channels)], origin=group.waits[index][0][0]))
                    self.plan.channels.append(Channel("memory", rank, rank))
                positions.append(len(steps))
                steps.append(step)
            group.steps = steps
            moved.append(positions)
        for group in converted:
            for step in group.steps:
                step.after = [(block, moved[block][index]) for block, index in step.after]

    def copy_first(self, gpu: Gpu, rank: Rank, ranks: int) -> None:
        """Adds a group for the <copy> elements, which precede all steps."""
        inputs, outputs = buffer_chunks(self.plan.operation, ranks, self.plan.chunks)
        offset = gpu.number * inputs if outputs > inputs else 0
        steps = []
        for line, source, target in gpu.copies:
            sources, targets = [self.local(line, "input", source)], [self.local(line, "output", target)]
            if self.plan.in_place != "yes" or targets[0].chunk != sources[0].chunk + offset:
                steps.append(Step("copy", sources, targets, self.scale, origin=line))
        if steps:
            copied = (len(rank.groups), len(steps) - 1)
            for group in rank.groups:
                if group.steps:
                    group.steps[0].after.append(copied)
            rank.groups.append(Group(steps))


def _in_place(attributes: dict[str, str], line: int) -> str:
    in_place = integer(attributes, "inplace", line, 0, 1)
    out_of_place = integer(attributes, "outofplace", line, 0, 1, 1 - in_place)
    if not in_place and not out_of_place:
        fail(line, "inplace=0 and outofplace=0: the plan is never used")
    return "no" if not in_place else ("either" if out_of_place else "yes")
