"""Exports plans as MSCCL++ JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn

from ....errors import InvalidArgumentError, UnsupportedError
from ...model import Group, Operand, PlanModel, Step
from ..collectives import buffer_chunks, collective_name
from ..references import check_references
from ..refusal import Refusal
from .moves import MAX_CHANNELS, Moves
from .rings import without_rings
from .tables import BlockTables, RankTables, connections

__all__ = ["write"]

_NO_LIMIT = 2**64 - 1
_NOP = {"name": "nop"}
_SYNCHRONIZES = ("nop", "barrier")

_Json = dict[str, Any]


def write(plan: PlanModel, reduction: str = "sum") -> str:
    """The document of a plan.

    `reduction` (sum, min or max) becomes reduce_op: plans of MSCCL++ have one, and others leave it to the call. A plan
    that works in place and out of place is exported for calls out of place. Raises UnsupportedError, with the rank,
    group and step, for what MSCCL++ cannot express, and InvalidArgumentError for a plan that is wrong.
    """
    if reduction not in ("sum", "min", "max"):
        raise InvalidArgumentError(f"{reduction!r} is not a reduction of MSCCL++ (sum, min, max)")
    check_references(plan)
    collective = collective_name(plan.operation)
    if plan.instances != 1:
        raise UnsupportedError("MSCCL++ has no instances: export the lowered plan")
    _check_codecs(plan)
    plan = without_rings(plan)
    for index, channel in enumerate(plan.channels):
        if channel.initial and channel.sender != channel.receiver:
            raise UnsupportedError(f"channel {index} has an initial value: MSCCL++ has that within a rank only")
    scratch = {operand.packets for operand in _operands(plan) if operand.buffer == "scratch"}
    if len(scratch) > 1:
        raise UnsupportedError("MSCCL++ stores packets at other offsets than values, so scratch cannot contain both")
    numbered = connections(plan)
    gpus = [_Gpu(plan, rank, numbered, reduction) for rank in range(len(plan.ranks))]
    document = {
        "name": plan.name or collective,
        "collective": collective,
        "protocol": "LL" if True in scratch else "Simple",
        "inplace": plan.in_place == "yes",
        "reuse_resources": False,
        "gpus": [gpu.document() for gpu in gpus],
        "num_threads_per_block": 1024,
        "use_double_scratch_buffer": plan.scratch_copies == 2,
        "buffer_alignment": 16,
        "min_message_size": plan.min_bytes,
        "max_message_size": plan.max_bytes or _NO_LIMIT,
    }
    return json.dumps(document, indent=1) + "\n"


class _Gpu:
    """One rank."""

    def __init__(self, plan: PlanModel, rank: int, numbered: list[int], reduction: str) -> None:
        self.plan = plan
        self.rank = rank
        self.tables = RankTables(plan, rank, numbered)
        self.moves = Moves(plan, rank, reduction, self.refuse)
        self.releases: dict[tuple[int, int], list[int]] = {}  # (group, step) -> semaphores of those that wait for it
        self.acquires: dict[tuple[int, int], list[int]] = {}
        groups = plan.ranks[rank].groups
        for group, contents in enumerate(groups):
            for index, step in enumerate(contents.steps):
                for other in step.after:
                    semaphore = self.tables.semaphore(0)
                    self.releases.setdefault(other, []).append(semaphore)
                    self.acquires.setdefault((group, index), []).append(semaphore)
        self.blocks = []
        for group, contents in enumerate(groups):
            block = BlockTables(self.tables)
            ops = list(self.group(group, contents, block))
            self.blocks.append({"id": group, "ops": ops, **block.document()})

    def document(self) -> _Json:
        inputs, outputs = buffer_chunks(self.plan.operation, len(self.plan.ranks), self.plan.chunks)
        return {
            "id": self.rank,
            "input_chunks": inputs,
            "output_chunks": outputs,
            "scratch_chunks": self.plan.ranks[self.rank].scratch_chunks,
            "threadblocks": self.blocks,
            **self.tables.document(),
        }

    def group(self, group: int, contents: Group, block: BlockTables) -> Iterator[_Json]:
        last = "nop"  # nothing has to be synchronized yet
        for index, step in enumerate(contents.steps):
            self.where = f"rank {self.rank}, group {group}, step {index}"
            self.origin = step.origin
            acquires = _semaphores("sem_acquire", self.acquires.get((group, index), []))
            releases = _semaphores("sem_release", self.releases.get((group, index), []))
            ops = self.step(step, block)
            # All threads pass the steps of a synchronized plan together, and enter and leave loops together.
            if self.plan.threads == "synchronized" or step.kind == "loop" or acquires:
                ops = [_NOP, *acquires, _NOP, *ops]
            if releases:
                ops += [_NOP, *releases]
            if step.kind == "loop":
                ops.append(_NOP)
            for op in ops:
                if op["name"] != "nop" or last not in _SYNCHRONIZES:
                    last = op["name"]
                    yield op

    def step(self, step: Step, block: BlockTables, nested: bool = False) -> list[_Json]:
        if step.kind == "copy":
            return list(self.moves.copy(step.sources[0], step.destinations, step.count, block))
        if step.kind == "reduce":
            return list(self.moves.reduce(step, block))
        if step.kind in ("signal", "wait", "flush"):
            return list(self.control(step, block))
        if step.kind == "sync":
            return [_NOP]
        if step.kind == "barrier":
            groups = self.plan.ranks[self.rank].barriers[step.barrier]
            if len(groups) == 1:
                return [_NOP]
            return [{"name": "barrier", "barrier_id": step.barrier, "num_threadblocks": len(groups)}]
        if step.kind != "loop" or nested:
            self.refuse(f"MSCCL++ has no {step.kind} here")
        return [self.pipeline(step, block)]

    def pipeline(self, step: Step, block: BlockTables) -> _Json:
        counts = {inner.count for inner in step.body if inner.sources}
        if len(counts) > 1:
            self.refuse("the steps of a pipeline of MSCCL++ must have the same count")
        if any(inner.after for inner in step.body):
            self.refuse("steps of a pipeline of MSCCL++ cannot come after others")
        ops: list[_Json] = []
        for inner in step.body:
            new = self.step(inner, block, nested=True)
            together = self.plan.threads == "synchronized"
            for op in [_NOP, *new] if together else new:
                if op["name"] != "nop" or (ops and ops[-1]["name"] not in _SYNCHRONIZES):
                    ops.append(op)
        if ops and ops[-1]["name"] not in _SYNCHRONIZES:
            ops.append(_NOP)  # between the iterations
        context = {"unit_size": step.unit_bytes, "num_chunks": counts.pop() if counts else 1}
        return {"name": "pipeline", "iter_context": context, "ops": ops}

    def refuse(self, message: str) -> NoReturn:
        raise Refusal(self.where, message, self.origin)

    def control(self, step: Step, block: BlockTables) -> Iterator[_Json]:
        own: list[int] = []
        ids: dict[str, list[int]] = {}
        for index in step.channels:
            channel = self.plan.channels[index]
            if channel.sender == channel.receiver:
                own.append(self.tables.semaphore_of(index))
            else:
                ids.setdefault(channel.kind, []).append(block.channel(index))
        if step.kind == "flush":
            ids.pop("memory", None)  # stores through a memory channel are complete when the step is
        elif own:
            yield from _semaphores("sem_release" if step.kind == "signal" else "sem_acquire", own)
        name = f"rlx{step.kind}" if step.relaxed else step.kind
        for kind, channels in ids.items():
            for first in range(0, len(channels), MAX_CHANNELS):
                yield {"name": name, "channel_ids": channels[first : first + MAX_CHANNELS], "channel_type": kind}


def _semaphores(name: str, ids: list[int]) -> list[_Json]:
    return [
        {"name": name, "semaphore_ids": ids[first : first + MAX_CHANNELS]} for first in range(0, len(ids), MAX_CHANNELS)
    ]


def _check_codecs(plan: PlanModel) -> None:
    for number, rank in enumerate(plan.ranks):
        for index, group in enumerate(rank.groups):
            for at, whole in enumerate(group.steps):
                for step in (whole, *whole.body):
                    codec = next((one.codec for one in (*step.sources, *step.destinations) if one.codec != "raw"), None)
                    if codec is not None:
                        where = f"rank {number}, group {index}, step {at}"
                        raise Refusal(where, f"MSCCL++ has no codecs ({codec})", step.origin)


def _operands(plan: PlanModel) -> Iterator[Operand]:
    for rank in plan.ranks:
        for group in rank.groups:
            for step in group.walk():
                yield from step.sources
                yield from step.destinations
