"""Plans as Python objects: one class for each object of the JSON form, which docs/design/plans.md defines.

Building and writing are fast: a plan of 28,000 steps takes about 0.1 s. The library checks and proves plans.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .._native.plan import NativePlan

__all__ = ["BUFFERS", "VERSION", "Channel", "Group", "Operand", "PlanModel", "Rank", "Step"]

VERSION = 1
BUFFERS = ("input", "output", "scratch")


@dataclass(slots=True)
class Operand:
    """Chunks that a step reads or writes; the step says how many.

    `Operand("input", 3)` is local, `Operand("input", 3, channel=c)` is at the other end of a memory or port channel,
    `Operand(channel=c)` is the next message of a ring, and `Operand("input", 3, switch=c)` is on all ranks of a switch.
    Steps may share an operand: replace it, do not modify it.
    """

    buffer: str | None = None
    chunk: int = 0
    channel: int | None = None
    switch: int | None = None
    packets: bool = False
    codec: str = "raw"
    partial: bool = False

    @property
    def place(self) -> str:
        """`local`, `remote`, `message` or `everywhere`."""
        if self.switch is not None:
            return "everywhere"
        if self.channel is None:
            return "local"
        return "message" if self.buffer is None else "remote"


@dataclass(slots=True)
class Step:
    """One step. `kind` is a name of src/plan/steps.def; the other fields are those that the kind has."""

    kind: str
    sources: list[Operand] = field(default_factory=list)
    destinations: list[Operand] = field(default_factory=list)
    count: int = 1  #: chunks of every operand
    channels: list[int] = field(default_factory=list)  #: of signal, wait and flush
    barrier: int = 0  #: index in Rank.barriers
    relaxed: bool = False  #: of signal and wait
    after: list[tuple[int, int]] = field(default_factory=list)  #: (group, step) of the same rank
    unit_bytes: int = 0  #: of a loop
    body: list[Step] = field(default_factory=list)  #: of a loop
    origin: int = 0  #: the author's number of the step; 0: none


@dataclass(slots=True)
class Group:
    """Steps that run one after another."""

    steps: list[Step] = field(default_factory=list)

    def walk(self) -> Iterator[Step]:
        """All steps, and after each loop those of its body."""
        for step in self.steps:
            yield step
            yield from step.body


@dataclass(slots=True)
class Rank:
    """What one rank runs."""

    groups: list[Group] = field(default_factory=list)
    scratch_chunks: int = 0
    barriers: list[list[int]] = field(default_factory=list)  #: the groups that each barrier waits for


@dataclass(slots=True)
class Channel:
    """Connects two ranks in one direction; a switch connects several."""

    kind: str  #: ring, memory, port or switch
    sender: int = 0
    receiver: int = 0
    depth: int = 0  #: of a ring: how many messages fit
    packets: bool = False  #: of a ring: messages are packets
    initial: int = 0  #: the first value of the semaphore of a memory or port channel
    ranks: list[int] = field(default_factory=list)  #: of a switch, ascending


@dataclass(slots=True)
class PlanModel:
    """A collective for a fixed number of ranks."""

    operation: str
    ranks: list[Rank] = field(default_factory=list)
    channels: list[Channel] = field(default_factory=list)
    name: str = ""
    root: int = 0
    chunks: int = 1  #: of a piece
    instances: int = 1
    scratch_copies: int = 1
    in_place: str = "either"  #: no, yes or either
    threads: str = "synchronized"  #: or independent
    min_bytes: int = 0
    max_bytes: int = 0  #: 0: no limit

    def step_count(self) -> int:
        """Steps of all ranks, those in loops included."""
        return sum(1 for rank in self.ranks for group in rank.groups for _ in group.walk())

    def to_json(self) -> str:
        """The JSON text of the plan, without spaces. Values that are the default are left out."""
        head: dict[str, Any] = {"narrowcast_plan": VERSION, "operation": self.operation}
        for key, default in _PLAN_DEFAULTS.items():
            value = getattr(self, key)
            if value != default:
                head[key] = value
        writer = _Writer()
        channels = ",".join(map(_channel_text, self.channels))
        ranks = ",".join(map(writer.rank, self.ranks))
        return f'{_dumps(head)[:-1]},"channels":[{channels}],"ranks":[{ranks}]}}'

    @classmethod
    def from_json(cls, text: str | bytes) -> PlanModel:
        """The plan of a JSON text, which the library checks. Raises InvalidArgumentError with the path of a fault."""
        NativePlan.read(text)
        document = json.loads(text)
        plan = cls(document["operation"], **{key: document.get(key, value) for key, value in _PLAN_DEFAULTS.items()})
        plan.channels = [_channel(entry) for entry in document.get("channels", ())]
        plan.ranks = [_rank(entry) for entry in document["ranks"]]
        return plan


_PLAN_DEFAULTS: dict[str, Any] = {
    "name": "",
    "root": 0,
    "chunks": 1,
    "instances": 1,
    "scratch_copies": 1,
    "in_place": "either",
    "threads": "synchronized",
    "min_bytes": 0,
    "max_bytes": 0,
}
_dumps = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def _channel_text(channel: Channel) -> str:
    if channel.kind == "switch":
        return _dumps({"kind": "switch", "ranks": channel.ranks})
    result: dict[str, Any] = {"kind": channel.kind, "from": channel.sender, "to": channel.receiver}
    if channel.kind == "ring":
        result["depth"] = channel.depth
    if channel.packets:
        result["packets"] = True
    if channel.initial:
        result["initial"] = channel.initial
    return _dumps(result)


class _Writer:
    """Writes ranks. Composes the text directly, which takes a tenth of the time of dictionaries for large plans."""

    def __init__(self) -> None:
        self.operands: dict[int, str] = {}  # by id: steps of an importer share them

    def rank(self, rank: Rank) -> str:
        groups = ",".join([f'{{"steps":[{",".join(map(self.step, group.steps))}]}}' for group in rank.groups])
        head: dict[str, Any] = {}
        if rank.scratch_chunks:
            head["scratch_chunks"] = rank.scratch_chunks
        if rank.barriers:
            head["barriers"] = rank.barriers
        return f'{_dumps(head)[:-1]}{"," if head else ""}"groups":[{groups}]}}'

    def step(self, step: Step) -> str:
        text = f'{{"step":{_quoted(step.kind)}'
        if step.sources:
            text += f',"from":[{",".join(map(self.operand, step.sources))}]'
        if step.destinations:
            text += f',"to":[{",".join(map(self.operand, step.destinations))}]'
        if step.count != 1:
            text += f',"count":{step.count}'
        if step.channels:
            text += f',"channels":{_dumps(step.channels)}'
        if step.kind == "barrier":
            text += f',"barrier":{step.barrier}'
        if step.relaxed:
            text += ',"relaxed":true'
        if step.after:
            text += f',"after":{_dumps(step.after)}'
        if step.kind == "loop":
            text += f',"unit_bytes":{step.unit_bytes},"steps":[{",".join(map(self.step, step.body))}]'
        if step.origin:
            text += f',"origin":{step.origin}'
        return text + "}"

    def operand(self, operand: Operand) -> str:
        text = self.operands.get(id(operand))
        if text is None:
            text = ""
            if operand.buffer is not None:
                text += f',"buffer":{_quoted(operand.buffer)},"chunk":{operand.chunk}'
            if operand.channel is not None:
                text += f',"channel":{operand.channel}'
            if operand.switch is not None:
                text += f',"switch":{operand.switch}'
            if operand.packets:
                text += ',"packets":true'
            if operand.partial:
                text += ',"partial":true'
            if operand.codec != "raw":
                text += f',"codec":{_quoted(operand.codec)}'
            text = f"{{{text[1:]}}}"
            self.operands[id(operand)] = text
        return text


_quoted = functools.lru_cache(maxsize=64)(json.dumps)


def _channel(entry: dict[str, Any]) -> Channel:
    channel = Channel(entry["kind"], entry.get("from", 0), entry.get("to", 0))
    channel.depth = entry.get("depth", 0)
    channel.packets = entry.get("packets", False)
    channel.initial = entry.get("initial", 0)
    channel.ranks = entry.get("ranks", [])
    return channel


def _rank(entry: dict[str, Any]) -> Rank:
    groups = [Group([_step(step) for step in group["steps"]]) for group in entry["groups"]]
    return Rank(groups, entry.get("scratch_chunks", 0), entry.get("barriers", []))


def _step(entry: dict[str, Any]) -> Step:
    step = Step(entry["step"])
    step.sources = [_operand(operand) for operand in entry.get("from", ())]
    step.destinations = [_operand(operand) for operand in entry.get("to", ())]
    step.count = entry.get("count", 1)
    step.channels = entry.get("channels", [])
    step.barrier = entry.get("barrier", 0)
    step.relaxed = entry.get("relaxed", False)
    step.after = [(group, number) for group, number in entry.get("after", ())]
    step.unit_bytes = entry.get("unit_bytes", 0)
    step.body = [_step(inner) for inner in entry.get("steps", ())]
    step.origin = entry.get("origin", 0)
    return step


def _operand(entry: dict[str, Any]) -> Operand:
    return Operand(
        entry.get("buffer"),
        entry.get("chunk", 0),
        entry.get("channel"),
        entry.get("switch"),
        entry.get("packets", False),
        entry.get("codec", "raw"),
        entry.get("partial", False),
    )
