"""What the two schemas of MSCCL++ plans have in common.

A thread block becomes a group of threads that are not synchronized. The k-th channel from a to b and the k-th from b to
a are one connection; it becomes two channels, one each way. Chunks are divided for groups of thread blocks (tbg_info),
so that each block has whole chunks.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

from ....errors import UnsupportedError
from ...model import Channel, Group, Operand, PlanModel, Rank, Step
from ..collectives import MAX_CHUNKS, MAX_RANKS, MAX_STEPS, buffer_chunks, operation_of
from ..json_document import Value
from .operations import Op, Ref, steps_of

__all__ = ["BUFFERS", "INT_MAX", "Schema"]

BUFFERS = {"i": "input", "o": "output", "s": "scratch"}
INT_MAX = 2**31 - 1
_REDUCTIONS = {name: name for name in ("sum", "min", "max")}
_MAX_BARRIERS = 1 << 16
_NO_LIMIT = 2**64 - 1


class Schema(ABC):
    """Reads a document of one schema into `plan`."""

    chunk_keys: tuple[str, str, str]  #: of input, output and scratch

    def __init__(self, document: Value) -> None:
        self.document = document
        self.plan = plan = PlanModel(operation_of(document["collective"].string()), threads="independent")
        plan.name = document["name"].string() if "name" in document else ""
        plan.in_place = "yes" if document["inplace"].boolean() else "no"
        self.packets = document["protocol"].choice({"Simple": "Simple", "LL": "LL"}) == "LL"
        plan.scratch_copies = self.scratch_copies()
        plan.min_bytes = self.bytes("min_message_size", 0)
        most = self.bytes("max_message_size", _NO_LIMIT)
        plan.max_bytes = 0 if most == _NO_LIMIT else most
        self.reduction: str | None = None
        self.channel_index: dict[tuple[object, ...], int] = {}
        self.step_count = 0

        gpus = document["gpus"].items()
        if not 1 <= len(gpus) <= MAX_RANKS:
            document["gpus"].fail(f"from 1 to {MAX_RANKS} gpus are expected, not {len(gpus)}")
        for rank, gpu in enumerate(gpus):
            if gpu["id"].integer(0, INT_MAX) != rank:
                gpu["id"].fail(f"this is gpu {rank}")
        self.ranks = len(gpus)
        plan.root = document["root"].integer(0, self.ranks - 1) if "root" in document else 0
        self.scale = 1  # chunks of the plan in one of the document
        for gpu in gpus:
            for block in gpu["threadblocks"].items():
                for op in self.flat(block["ops"]):
                    if "tbg_info" in op:
                        self.scale = math.lcm(self.scale, op["tbg_info"]["tbg_size"].integer(1, MAX_RANKS))
                        if self.scale > MAX_RANKS:
                            op["tbg_info"].fail("groups of so many different sizes are not supported")
        for rank, gpu in enumerate(gpus):
            self.read_chunks(rank, gpu)
        for rank, gpu in enumerate(gpus):
            plan.ranks.append(self.read_rank(rank, gpu))

    def bytes(self, key: str, default: int) -> int:
        return self.document[key].integer(0, _NO_LIMIT) if key in self.document else default

    def flat(self, ops: Value) -> Iterator[Value]:
        """All operations, including those of pipelines."""
        for op in ops.items():
            self.step_count += 1
            if self.step_count > MAX_STEPS:
                op.fail(f"the plan has more than {MAX_STEPS} operations")
            yield op
            yield from op.optional("ops")

    def read_chunks(self, rank: int, gpu: Value) -> None:
        """Finds the number of chunks of a piece. A buffer that is not used may have none."""
        counts = [gpu[key].integer(0, MAX_CHUNKS) for key in self.chunk_keys[:2]]
        shape = buffer_chunks(self.plan.operation, self.ranks, 1)
        if rank == 0:
            self.chunks = max(count // pieces for count, pieces in zip(counts, shape, strict=True))
        if any(count and count != pieces * self.chunks for count, pieces in zip(counts, shape, strict=True)):
            gpu.fail(
                f"{counts[0]} input chunks and {counts[1]} output chunks do not fit {self.plan.operation} "
                f"of {self.ranks} ranks and {self.chunks} chunks"
            )
        if not any(counts) or not self.chunks:
            gpu.fail("there must be input chunks or output chunks")
        self.plan.chunks = self.chunks * self.scale
        if self.plan.chunks > MAX_CHUNKS:
            gpu.fail(f"the plan has more than {MAX_CHUNKS} chunks")

    def read_rank(self, rank: int, gpu: Value) -> Rank:
        result = Rank(scratch_chunks=gpu[self.chunk_keys[2]].integer(0, MAX_CHUNKS) * self.scale)
        blocks = gpu["threadblocks"].items()
        numbers = [block["id"].integer(0, INT_MAX) for block in blocks]
        if sorted(numbers) != list(range(len(blocks))):
            gpu["threadblocks"].fail(f"the ids must be the numbers from 0 to {len(blocks) - 1}")
        blocks.sort(key=lambda block: numbers[block.key] if isinstance(block.key, int) else 0)
        self.begin_rank(rank, gpu)
        barriers = self.read_barriers(blocks)
        self.barriers = {barrier: index for index, barrier in enumerate(barriers)}
        result.barriers = list(barriers.values())
        for number, block in enumerate(blocks):
            self.begin_block(block)
            result.groups.append(Group(list(self.read_ops(number, block["ops"]))))
        return result

    def read_barriers(self, blocks: list[Value]) -> dict[int, list[int]]:
        """The thread blocks of each barrier."""
        found: dict[int, list[int]] = {}
        uses: list[tuple[int, Value]] = []
        for number, block in enumerate(blocks):
            for op in (op for top in block["ops"].items() for op in (top, *top.optional("ops"))):
                if "name" in op and op["name"].raw == "barrier":
                    barrier = op["barrier_id"].integer(0, _MAX_BARRIERS)
                    uses.append((barrier, op))
                    users = found.setdefault(barrier, [])
                    if not users or users[-1] != number:
                        users.append(number)
        for barrier, op in uses:
            count = op[self.barrier_key].integer(1, INT_MAX)
            if count != len(found[barrier]):
                op.fail(f"the barrier is for {count} thread blocks, but {len(found[barrier])} use it")
        return {barrier: found[barrier] for barrier in sorted(found) if len(found[barrier]) > 1}

    barrier_key: str

    def read_ops(self, block: int, ops: Value, nested: bool = False) -> Iterator[Step]:
        for index, op in enumerate(ops.items()):
            name = op["name"].string()
            if name == "pipeline":
                if nested:
                    op.fail("pipelines cannot be nested")
                steps = [self.pipeline(block, op)]
            else:
                steps = list(self.read_op(name, op))
            for step in steps:
                step.origin = index + 1
            yield from steps

    def pipeline(self, block: int, op: Value) -> Step:
        context = op["iter_context"]
        chunks = context["num_chunks"].integer(1, MAX_CHUNKS)
        body = list(self.read_ops(block, op["ops"], nested=True))
        for step in body:
            if step.sources and step.count > chunks * self.scale:
                op["ops"].items()[step.origin - 1].fail(f"it moves more than the {chunks} chunks of the pipeline")
        return Step("loop", unit_bytes=context["unit_size"].integer(1, 2**63 - 1), body=body)

    def read_op(self, name: str, op: Value) -> Iterator[Step]:
        if name == "nop":
            yield Step("sync")
        elif name == "barrier":
            barrier = op["barrier_id"].integer(0, _MAX_BARRIERS)
            if barrier in self.barriers:
                yield Step("barrier", barrier=self.barriers[barrier])
            else:
                yield Step("sync")  # of one thread block
        else:
            data = self.data_op(name, op)
            if data is not None:
                self.check_reduction(op)
                yield from steps_of(data)
            else:
                yield from self.control_op(name, op)

    def check_reduction(self, op: Value) -> None:
        """Plans leave the reduction to the call, so all operations must have the same."""
        if "reduce_op" in op:
            reduction = op["reduce_op"].choice(_REDUCTIONS)
            self.reduction = self.reduction or reduction
            if reduction != self.reduction:
                raise UnsupportedError(
                    f"{op.path}: the plan reduces by {self.reduction} and by {reduction}; a plan of Narrowcast has one "
                    "reduction, that of the call"
                )

    @abstractmethod
    def scratch_copies(self) -> int:
        """1, or 2 if calls use two buffers in turn."""

    @abstractmethod
    def begin_rank(self, rank: int, gpu: Value) -> None:
        """Reads what the operations of a rank refer to."""

    @abstractmethod
    def begin_block(self, block: Value) -> None:
        """Reads what the operations of a thread block refer to."""

    @abstractmethod
    def data_op(self, name: str, op: Value) -> Op | None:
        """The operation, if it moves or reduces values."""

    @abstractmethod
    def control_op(self, name: str, op: Value) -> Iterator[Step]:
        """The steps of any other operation."""

    # Channels of the plan; those that no step uses do not exist.

    def channel(self, kind: str, sender: int, receiver: int, index: int) -> int:
        """The index-th connection of two ranks, in one direction."""
        return self.index_of((kind, sender, receiver, index), Channel(kind, sender, receiver))

    def semaphore(self, rank: int, number: int, initial: int) -> int:
        return self.index_of(("semaphore", rank, number), Channel("memory", rank, rank, initial=initial))

    def switch(self, ranks: list[int]) -> int:
        return self.index_of(("switch", *ranks), Channel("switch", ranks=ranks))

    def index_of(self, key: tuple[object, ...], channel: Channel) -> int:
        found = self.channel_index.get(key)
        if found is None:
            found = self.channel_index[key] = len(self.plan.channels)
            self.plan.channels.append(channel)
        return found

    @staticmethod
    def check_peer(rank: int, peer: int, value: Value) -> None:
        """Plans may have channels between a rank and itself, if they do not use them."""
        if peer == rank:
            value.fail(f"rank {rank} has no channel to itself")

    def read_switch(self, rank: int, group: Value) -> list[int]:
        ranks = [value.integer(0, self.ranks - 1) for value in group["ranks"].items()]
        if len(set(ranks)) != len(ranks) or rank not in ranks:
            group["ranks"].fail(f"different ranks are expected, and {rank} among them")
        return sorted(ranks)

    def ref(self, value: Value, operand: Operand, size: int, op: Value) -> Ref:
        """An operand of the document as one of the plan: `operand.chunk` and `size` count chunks of the document."""
        chunk, count = operand.chunk * self.scale, size * self.scale
        if "tbg_info" in op:
            blocks = op["tbg_info"]["tbg_size"].integer(1, MAX_RANKS)
            block = op["tbg_info"]["tb_id"].integer(0, blocks - 1)
            count //= blocks
            chunk += block * count
        placed = Operand(operand.buffer, chunk, operand.channel, operand.switch)
        return Ref(placed, count, value)
