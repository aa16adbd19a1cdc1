"""Runs plans on sets of contributions, as an oracle for tests of importers and exporters.

It is independent of the library's verifier, and proves less: it runs one order, or some random ones, of one call.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator

from narrowcast._native.operations import Buffer, describe
from narrowcast._plan.model import Operand, PlanModel, Step

DOUBLE = -1  # a contribution was added twice


class Fault(Exception):
    """The plan is wrong: `kind` is structure, bounds, undefined, deadlock or result."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


def chunk_count(plan: PlanModel, shape: Buffer, rank: int) -> int:
    if shape == Buffer.NONE or (shape.at_root and rank != plan.root):
        return 0
    return plan.chunks * (len(plan.ranks) if shape.parted else 1)


def expected(plan: PlanModel, rank: int) -> list[int]:
    """The contributions to each output chunk, as bits rank * input chunks + chunk."""
    shape = describe(plan.operation)
    ranks, chunks = len(plan.ranks), plan.chunks
    stride = chunks * (ranks if shape.send.parted else 1)

    def one(source: int, chunk: int) -> int:
        return 1 << (source * stride + chunk)

    def every(chunk: int) -> int:
        return sum(one(source, chunk) for source in range(ranks))

    pieces = [(piece, chunk) for piece in range(ranks) for chunk in range(chunks)]
    root = plan.root
    return {
        "all_reduce": lambda: [every(chunk) for chunk in range(chunks)],
        "reduce": lambda: [every(chunk) for chunk in range(chunks)] if rank == root else [],
        "reduce_scatter": lambda: [every(rank * chunks + chunk) for chunk in range(chunks)],
        "broadcast": lambda: [one(root, chunk) for chunk in range(chunks)],
        "all_gather": lambda: [one(piece, chunk) for piece, chunk in pieces],
        "gather": lambda: [one(piece, chunk) for piece, chunk in pieces] if rank == root else [],
        "scatter": lambda: [one(root, rank * chunks + chunk) for chunk in range(chunks)],
        "all_to_all": lambda: [one(piece, rank * chunks + chunk) for piece, chunk in pieces],
    }[plan.operation]()


class Run:
    """One call of a plan."""

    def __init__(
        self, plan: PlanModel, in_place: bool, split: bool, depth: int | None, order: random.Random | None
    ) -> None:
        self.plan = plan
        self.split = split
        self.order = order
        shape = describe(plan.operation)
        self.memory: list[dict[str, tuple[list[int | None], int, int]]] = []
        for rank, contents in enumerate(plan.ranks):
            sizes = {
                "input": chunk_count(plan, shape.send, rank),
                "output": chunk_count(plan, shape.recv, rank),
                "scratch": contents.scratch_chunks,
            }
            cells = {name: [None] * size for name, size in sizes.items()}
            offsets = dict.fromkeys(sizes, 0)
            if in_place and sizes["input"] and sizes["output"]:
                small, large = sorted(("input", "output"), key=lambda name: sizes[name])
                cells[small] = cells[large]
                offsets[small] = rank * plan.chunks if sizes[small] != sizes[large] else 0
            stride = chunk_count(plan, shape.send, plan.root)
            for chunk in range(sizes["input"]):
                cells["input"][offsets["input"] + chunk] = 1 << (rank * stride + chunk)
            self.memory.append({name: (cells[name], offsets[name], sizes[name]) for name in sizes})
        self.packets: list[dict[tuple[str, int], int]] = [{} for _ in plan.ranks]
        self.depths = [channel.depth if depth is None else depth for channel in plan.channels]
        self.queues: list[deque[list[int]]] = [deque() for _ in plan.channels]
        self.semaphores = [channel.initial for channel in plan.channels]
        self.ends: dict[tuple[str, int], tuple[int, int]] = {}
        self.steps = [
            [list(self.flat(group.steps)) for group in contents.groups] for contents in plan.ranks
        ]  # (index of the step, step, first chunk, chunks, last of the step)
        self.next = [[0] * len(groups) for groups in self.steps]
        self.done = [[0] * len(groups) for groups in self.steps]
        self.arrived = [[dict.fromkeys(groups, 0) for groups in contents.barriers] for contents in plan.ranks]

    def flat(self, steps: list[Step]) -> Iterator[tuple[int, Step, int, int, bool]]:
        for index, step in enumerate(steps):
            body = step.body if step.kind == "loop" else [step]
            for part in body:
                parts = range(part.count) if self.split and part.count > 1 else range(1)
                for first in parts:
                    last = part is body[-1] and first == parts[-1]
                    yield index, part, first, 1 if len(parts) > 1 else part.count, last

    def cells(self, rank: int, operand: Operand, first: int, count: int) -> Iterator[tuple[int, list[int | None], int]]:
        """(rank, cells, index) of each chunk of a location."""
        owners = [rank]
        if operand.channel is not None:
            channel = self.plan.channels[operand.channel]
            if rank not in (channel.sender, channel.receiver):
                raise Fault("structure", f"rank {rank} uses channel {operand.channel}, which is not its own")
            owners = [channel.receiver if rank == channel.sender else channel.sender]
        elif operand.switch is not None:
            owners = self.plan.channels[operand.switch].ranks
        assert operand.buffer is not None
        for owner in owners:
            cells, offset, size = self.memory[owner][operand.buffer]
            if operand.chunk + first + count > size:
                raise Fault("bounds", f"{operand} of {count} chunks at rank {owner}, which has {size}")
            for chunk in range(operand.chunk + first, operand.chunk + first + count):
                yield owner, cells, offset + chunk

    def ready(self, rank: int, group: int, index: int, step: Step, first: int, count: int) -> bool:
        if first == 0 and step.after and any(self.done[rank][other] <= needed for other, needed in step.after):
            return False
        if step.kind == "wait":
            return all(self.semaphores[channel] > 0 for channel in step.channels)
        if step.kind == "barrier":
            arrived = self.arrived[rank][step.barrier]
            if not arrived[group] % 2:
                arrived[group] += 1  # arrived; leaving makes it even again
            generation = arrived[group]
            return all(value >= generation for value in arrived.values())
        received: dict[int, int] = {}
        for operand in step.sources:
            if operand.place == "message":
                assert operand.channel is not None
                received[operand.channel] = received.get(operand.channel, 0) + 1
            elif operand.packets:
                for owner, _, cell in self.cells(rank, operand, first, count):
                    if (operand.buffer, cell) not in self.packets[owner]:
                        return False
        if any(len(self.queues[channel]) < needed for channel, needed in received.items()):
            return False
        sends = [operand.channel for operand in step.destinations if operand.place == "message"]
        return all(len(self.queues[channel]) < self.depths[channel] for channel in sends if channel is not None)

    def end(self, kind: str, channel: int | None, rank: int, group: int) -> int:
        assert channel is not None
        if self.ends.setdefault((kind, channel), (rank, group)) != (rank, group):
            raise Fault("structure", f"two groups are the {kind} of ring {channel}")
        owner = self.plan.channels[channel].sender if kind == "sender" else self.plan.channels[channel].receiver
        if owner != rank:
            raise Fault("structure", f"rank {rank} is not the {kind} of ring {channel}")
        return channel

    def values(self, rank: int, group: int, operand: Operand, first: int, count: int) -> list[int]:
        if operand.place == "message":
            message = self.queues[self.end("receiver", operand.channel, rank, group)].popleft()
            if len(message) != count:
                raise Fault("structure", f"a message of {len(message)} chunks is received as {count}")
            return message
        result: list[int] = []
        for position, (owner, cells, cell) in enumerate(self.cells(rank, operand, first, count)):
            assert operand.buffer is not None
            value = self.packets[owner][operand.buffer, cell] if operand.packets else cells[cell]
            if value is None:
                raise Fault("undefined", f"rank {rank} reads chunk {operand.chunk + position % count} of {operand}")
            if position < count:
                result.append(value)
            else:
                result[position % count] = combine(result[position % count], value)
        return result

    def execute(self, rank: int, group: int, step: Step, first: int, count: int) -> None:
        if step.kind == "signal":
            for channel in step.channels:
                self.semaphores[channel] += 1
        elif step.kind == "wait":
            for channel in step.channels:
                self.semaphores[channel] -= 1
        elif step.kind == "barrier":
            self.arrived[rank][step.barrier][group] += 1
        if not step.sources:
            return
        result: list[int] = []
        for operand in step.sources:
            values = self.values(rank, group, operand, first, count)
            result = [combine(a, b) for a, b in zip(result, values, strict=True)] if result else values
        for operand in step.destinations:
            if operand.place == "message":
                self.queues[self.end("sender", operand.channel, rank, group)].append(result)
                continue
            for position, (owner, cells, cell) in enumerate(self.cells(rank, operand, first, count)):
                assert operand.buffer is not None
                if operand.packets:
                    self.packets[owner][operand.buffer, cell] = result[position % count]
                else:
                    cells[cell] = result[position % count]

    def run(self) -> None:
        waiting = [(rank, group) for rank, groups in enumerate(self.steps) for group in range(len(groups))]
        while waiting:
            if self.order is not None:
                self.order.shuffle(waiting)
            progress = False
            for rank, group in waiting:
                steps = self.steps[rank][group]
                budget = len(steps) if self.order is None else self.order.randint(1, 4)
                while self.next[rank][group] < len(steps) and budget:
                    index, step, first, count, last = steps[self.next[rank][group]]
                    if not self.ready(rank, group, index, step, first, count):
                        break
                    self.execute(rank, group, step, first, count)
                    self.next[rank][group] += 1
                    self.done[rank][group] += last
                    budget -= 1
                    progress = True
            waiting = [(r, g) for r, g in waiting if self.next[r][g] < len(self.steps[r][g])]
            if not progress and waiting:
                rank, group = waiting[0]
                index = self.steps[rank][group][self.next[rank][group]][0]
                raise Fault("deadlock", f"rank {rank} group {group} cannot pass step {index}")
        for channel, queue in enumerate(self.queues):
            if queue:
                raise Fault("structure", f"{len(queue)} messages of ring {channel} are not received")
        for rank in range(len(self.plan.ranks)):
            cells, offset, size = self.memory[rank]["output"]
            for chunk, wanted in enumerate(expected(self.plan, rank)):
                if cells[offset + chunk] != wanted:
                    raise Fault("result", f"rank {rank} output chunk {chunk} of {size}")


def combine(a: int, b: int) -> int:
    return DOUBLE if a == DOUBLE or b == DOUBLE or a & b else a | b


def run(plan: PlanModel, *, split: bool = False, depth: int | None = None, orders: int = 0) -> None:
    """Runs a plan in each way it may be called, and in `orders` random orders. Raises Fault if it is wrong."""
    for in_place in {"no": [False], "yes": [True], "either": [False, True]}[plan.in_place]:
        Run(plan, in_place, split, depth, None).run()
        for seed in range(orders):
            Run(plan, in_place, split, depth, random.Random(seed)).run()


def verdict(plan: PlanModel, **arguments: int) -> str:
    """`proved`, or the kind of the first fault."""
    try:
        run(plan, **arguments)
    except Fault as fault:
        return fault.kind
    return "proved"
