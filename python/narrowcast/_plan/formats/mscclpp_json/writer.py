"""Exports plans as MSCCL++ JSON, in its current schema, and by way of that in the earlier one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn

from ....errors import InvalidArgumentError, UnsupportedError
from ...model import Group, Operand, Plan, Step
from ..collectives import buffer_chunks, collective_name
from ..memory import Memory
from ..references import check_references
from ..refusal import Refusal
from .earlier_writer import earlier_document
from .rings import without_rings
from .tables import BlockTables, RankTables, connections

__all__ = ["write", "write_earlier"]

# What an operation of the executor has room for; it does not check.
_MAX_BUFFERS = 10
_MAX_CHANNELS = 8
_NO_LIMIT = 2**64 - 1
_NOP = {"name": "nop"}
_SYNCHRONIZES = ("nop", "barrier")

_Json = dict[str, Any]


def write(plan: Plan, reduction: str = "sum") -> str:
    """The document of a plan.

    `reduction` (sum, min or max) becomes reduce_op: plans of MSCCL++ have one, and others leave it to the call. A plan
    that works in place and out of place is exported for calls out of place. Raises UnsupportedError, with the rank,
    group and step, for what MSCCL++ cannot express, and InvalidArgumentError for a plan that is wrong.
    """
    return json.dumps(_document(plan, reduction), indent=1) + "\n"


def write_earlier(plan: Plan) -> str:
    """The document of a plan in the schema of MSCCL++ before 0.8, which sums.

    It has no semaphores between thread blocks, and so no steps that come `after` those of other groups, and no
    pipelines. Raises what `write` raises, and UnsupportedError, with the operation, for what only the current schema
    can express.
    """
    return json.dumps(earlier_document(_document(plan, "sum")), indent=1) + "\n"


def _document(plan: Plan, reduction: str) -> _Json:
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
    return {
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


class _Gpu:
    """One rank."""

    def __init__(self, plan: Plan, rank: int, numbered: list[int], reduction: str) -> None:
        self.plan = plan
        self.rank = rank
        self.reduction = reduction
        self.tables = RankTables(plan, rank, numbered)
        self.memory = Memory(plan, rank, plan.in_place == "yes")
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
            return list(self.copy(step.sources[0], step.destinations, step.count, block))
        if step.kind == "reduce":
            return list(self.reduce(step, block))
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
            for first in range(0, len(channels), _MAX_CHANNELS):
                yield {"name": name, "channel_ids": channels[first : first + _MAX_CHANNELS], "channel_type": kind}

    # Steps that move values. A place is local, memory, port or switch, followed by + if it contains packets.

    def place(self, operand: Operand) -> str:
        if operand.packets and operand.buffer != "scratch":
            self.refuse("packets of MSCCL++ are in scratch only")
        kind = "switch" if operand.switch is not None else "local"
        if operand.channel is not None:
            kind = self.plan.channels[operand.channel].kind
        return kind + ("+" if operand.packets else "")

    def copy(self, source: Operand, targets: list[Operand], count: int, block: BlockTables) -> Iterator[_Json]:
        start = self.place(source)
        if start in ("memory", "switch") and len(targets) > 1:
            # One operation reads it; the others copy what that one has stored.
            stored = next((target for target in targets if self.place(target) == "local"), targets[0])
            yield from self.copy(source, [stored], count, block)
            source, targets = stored, [target for target in targets if target is not stored]
            start = self.place(source)
        by_name: dict[tuple[str, str], list[Operand]] = {}
        for target in targets:
            place = self.place(target)
            if (start, place) not in _COPIES:
                self.refuse(f"MSCCL++ cannot copy {_DESCRIPTIONS[start]} to {_DESCRIPTIONS[place]}")
            by_name.setdefault((_COPIES[start, place], place), []).append(target)
        for (name, place), group in by_name.items():
            if name == "glre":
                for target in group:
                    yield self.group_load(source, target, count, block)
                continue
            size = _BATCHES.get(name, 1)
            for first in range(0, len(group), size):
                part = group[first : first + size]
                sources = [source] if name == "rppkt" else [source] * len(part)
                op: _Json = {
                    "name": name,
                    "src_buff": [block.operand(operand, count) for operand in sources],
                    "dst_buff": [block.operand(operand, count) for operand in part],
                }
                link = place if start == "local" or start == "local+" else start
                if link.rstrip("+") != "local":
                    op["channel_type"] = link.rstrip("+")
                if link.startswith("port"):
                    op["channel_ids"] = [block.channel(operand.channel) for operand in part]
                elif name == "get":
                    op["channel_ids"] = [block.channel(source.channel)] * len(part)
                if name == "glres":
                    op["reduce_op"] = self.reduction
                yield op

    def group_load(self, source: Operand, target: Operand, count: int, block: BlockTables) -> _Json:
        return {
            "name": "glre",
            "buffer_type": block.letter(source),
            "buffer_offset": source.chunk,
            "size": count,
            "dst_chunk": {"rank": self.rank, **block.operand(target, count)},
            "channel_ids": [block.operand(source, count)["switch_channel_id"]],
            "channel_type": "switch",
            "reduce_op": self.reduction,
        }

    def reduce(self, step: Step, block: BlockTables) -> Iterator[_Json]:
        """The operations of a reduction: each adds some of the sources to what the one before has stored."""
        sources: dict[str, list[Operand]] = {}
        for operand in step.sources:
            sources.setdefault(self.place(operand), []).append(operand)
        plain, remote, packets = (sources.pop(place, []) for place in ("local", "memory", "local+"))
        if sources:
            self.refuse(f"MSCCL++ cannot reduce {_DESCRIPTIONS[next(iter(sources))]}")
        targets = list(step.destinations)
        local = [target for target in targets if self.place(target) == "local"]
        stored = next((target for target in local if any(self.memory.same(target, one) for one in plain)), None)
        stored = stored or (local[0] if local else None)
        if stored is None:
            self.refuse("MSCCL++ stores the result of a reduction in the rank")
        targets.remove(stored)
        plain.sort(key=lambda operand: not self.memory.same(operand, stored))

        stages: list[tuple[str, list[Operand]]] = []  # (place, operands), the first with the sum so far
        so_far: Operand | None = None
        if len(plain) == 1:
            so_far = plain.pop()
        for place, operands in (("local", plain), ("memory", remote), ("local+", packets)):
            while operands:
                room = _MAX_BUFFERS - (so_far is not None)
                if so_far is None and place != "local":
                    yield from self.copy(operands.pop(0), [stored], step.count, block)
                else:
                    part, operands = operands[:room], operands[room:]
                    stages.append((place, part if so_far is None else [so_far, *part]))
                so_far = stored
        last = len(stages) - 1
        for _, operands in stages[1:]:
            if any(self.memory.overlap(operand, stored, step.count) for operand in operands[1:] if operand in plain):
                self.refuse(f"an operation of MSCCL++ has {_MAX_BUFFERS} operands at most")
        copies: list[Operand] = []
        sends: list[Operand] = []
        if stages[last][0] == "local+":
            copies = [operand for operand in targets if self.place(operand) == "local+"][:1]
        wanted = "memory+" if stages[last][0] == "local+" else "memory"
        sends = [operand for operand in targets if self.place(operand) == wanted][: _MAX_BUFFERS - 1 - len(copies)]
        for number, (place, operands) in enumerate(stages):
            ends = (copies, sends) if number == last else ([], [])
            yield self.reduction_op(place, operands, stored, *ends, step.count, block)
        rest = [operand for operand in targets if operand not in copies and operand not in sends]
        if rest:
            yield from self.copy(stored, rest, step.count, block)

    def reduction_op(
        self,
        place: str,
        sources: list[Operand],
        stored: Operand,
        copies: list[Operand],
        sends: list[Operand],
        count: int,
        block: BlockTables,
    ) -> _Json:
        op: _Json = {
            "name": _REDUCTIONS[place, bool(copies), bool(sends)],
            "src_buff": [block.operand(operand, count) for operand in sources],
            "dst_buff": [block.operand(operand, count) for operand in (stored, *copies, *sends)],
        }
        if place == "memory" or sends:
            op["channel_type"] = "memory"
        op["reduce_op"] = self.reduction
        return op


# (place of the source, place of the destination): the operation.
_COPIES = {
    ("local", "local"): "copy",
    ("local", "local+"): "cpkt",
    ("local", "memory"): "put",
    ("local", "memory+"): "ppkt",
    ("local", "port"): "put",
    ("local", "switch"): "gstore",
    ("local+", "local"): "upkt",
    ("local+", "memory+"): "rppkt",
    ("local+", "port+"): "rppkt",
    ("local+", "switch+"): "gstorepkt",
    ("memory", "local"): "get",
    ("switch", "local"): "glre",
    ("switch", "switch"): "glres",
}
_BATCHES = {"put": _MAX_CHANNELS, "ppkt": _MAX_CHANNELS, "rppkt": _MAX_CHANNELS, "get": _MAX_CHANNELS}
# (place of all sources but the first, copies packets, sends): the operation.
_REDUCTIONS = {
    ("local", False, False): "re",
    ("local", False, True): "res",
    ("memory", False, False): "rre",
    ("memory", False, True): "rres",
    ("local+", False, False): "repkt",
    ("local+", False, True): "respkt",
    ("local+", True, False): "recpkt",
    ("local+", True, True): "recspkt",
}
_DESCRIPTIONS = {
    "local": "values of the rank",
    "local+": "packets of the rank",
    "memory": "values behind a memory channel",
    "memory+": "packets behind a memory channel",
    "port": "values behind a port channel",
    "port+": "packets behind a port channel",
    "switch": "values behind a switch",
    "switch+": "packets behind a switch",
}


def _semaphores(name: str, ids: list[int]) -> list[_Json]:
    return [
        {"name": name, "semaphore_ids": ids[first : first + _MAX_CHANNELS]}
        for first in range(0, len(ids), _MAX_CHANNELS)
    ]


def _check_codecs(plan: Plan) -> None:
    for number, rank in enumerate(plan.ranks):
        for index, group in enumerate(rank.groups):
            for at, whole in enumerate(group.steps):
                for step in (whole, *whole.body):
                    codec = next((one.codec for one in (*step.sources, *step.destinations) if one.codec != "raw"), None)
                    if codec is not None:
                        where = f"rank {number}, group {index}, step {at}"
                        raise Refusal(where, f"MSCCL++ has no codecs ({codec})", step.origin)


def _operands(plan: Plan) -> Iterator[Operand]:
    for rank in plan.ranks:
        for group in rank.groups:
            for step in group.walk():
                yield from step.sources
                yield from step.destinations
