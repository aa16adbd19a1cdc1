"""Plans as Python objects: one class for each object of the JSON form, which docs/design/plans.md defines.

Building and writing are fast: a plan of 28,000 steps takes about 0.1 s. Nothing is checked here besides the form of a
document that is read; the library checks and proves plans.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..errors import InvalidArgumentError

__all__ = ["BUFFERS", "VERSION", "Channel", "Group", "Operand", "Plan", "Rank", "Step"]

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
class Plan:
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

    def to_dict(self) -> dict[str, Any]:
        """The document of the JSON form."""
        document: dict[str, Any] = json.loads(self.to_json())
        return document

    @classmethod
    def from_json(cls, text: str | bytes) -> Plan:
        """The plan of a JSON text. Raises InvalidArgumentError if its form is wrong; the library checks the rest."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"the plan is not JSON: {error}") from None
        return cls.from_dict(document)

    @classmethod
    def from_dict(cls, document: Any) -> Plan:
        """The plan of a parsed JSON document. Raises InvalidArgumentError if its form is wrong."""
        reader = _Reader(document, None, "plan")
        if reader.integer("narrowcast_plan") != VERSION:
            raise InvalidArgumentError(f"plan.narrowcast_plan: only version {VERSION} is known")
        plan = cls(operation=reader.string("operation"))
        for key, default in _PLAN_DEFAULTS.items():
            setattr(
                plan, key, reader.integer(key, default) if isinstance(default, int) else reader.string(key, default)
            )
        plan.channels = [_channel(entry) for entry in reader.objects("channels")]
        plan.ranks = [_rank(entry) for entry in reader.objects("ranks")]
        reader.end()
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
    """Writes ranks. Composes the text itself: a tenth of the time of dictionaries, and large plans are common."""

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
            if operand.codec != "raw":
                text += f',"codec":{_quoted(operand.codec)}'
            text = f"{{{text[1:]}}}"
            self.operands[id(operand)] = text
        return text


_quoted = functools.lru_cache(maxsize=64)(json.dumps)


_REQUIRED: Any = object()


class _Reader:
    """Reads the keys of one JSON object, and says where a value has the wrong type."""

    __slots__ = ("index", "key", "left", "parent")

    def __init__(self, value: Any, parent: _Reader | None, key: str, index: int = 0) -> None:
        self.parent = parent
        self.key = key
        self.index = index
        if not isinstance(value, dict):
            raise InvalidArgumentError(f"{self.path}: an object is expected")
        self.left = value.copy()

    @property
    def path(self) -> str:
        return self.key if self.parent is None else f"{self.parent.path}.{self.key}[{self.index}]"

    def take(self, key: str, default: Any, expected: type, name: str) -> Any:
        value = self.left.pop(key, default)
        if value is default:
            if value is _REQUIRED:
                raise InvalidArgumentError(f"{self.path}: {key} is missing")
        elif type(value) is not expected:
            raise InvalidArgumentError(f"{self.path}.{key}: {name} is expected")
        return value

    def integer(self, key: str, default: Any = _REQUIRED) -> Any:
        return self.take(key, default, int, "an integer")

    def string(self, key: str, default: Any = _REQUIRED) -> Any:
        return self.take(key, default, str, "a string")

    def boolean(self, key: str) -> bool:
        return bool(self.take(key, False, bool, "true or false"))

    def array(self, key: str, default: Any = _REQUIRED) -> Any:
        return self.take(key, default, list, "an array")

    def objects(self, key: str, default: Any = _REQUIRED) -> list[_Reader]:
        return [_Reader(value, self, key, i) for i, value in enumerate(self.array(key, default))]

    def integers(self, key: str, default: Any = _REQUIRED) -> list[int]:
        return _integers(self.array(key, default), self, key)

    def lists(self, key: str) -> list[list[int]]:
        return [_integers(value, self, key) for value in self.array(key, ())]

    def end(self) -> None:
        if self.left:
            raise InvalidArgumentError(f"{self.path}: {next(iter(self.left))!r} is not a known key")


def _integers(values: Any, reader: _Reader, key: str) -> list[int]:
    if not isinstance(values, (list, tuple)) or any(type(value) is not int for value in values):
        raise InvalidArgumentError(f"{reader.path}.{key}: an array of integers is expected")
    return list(values)


def _channel(reader: _Reader) -> Channel:
    kind = reader.string("kind")
    if kind == "switch":
        channel = Channel(kind, ranks=reader.integers("ranks"))
    else:
        channel = Channel(kind, reader.integer("from"), reader.integer("to"))
        channel.depth = reader.integer("depth", 0)
        channel.packets = reader.boolean("packets")
        channel.initial = reader.integer("initial", 0)
    reader.end()
    return channel


def _rank(reader: _Reader) -> Rank:
    rank = Rank(scratch_chunks=reader.integer("scratch_chunks", 0), barriers=reader.lists("barriers"))
    for entry in reader.objects("groups"):
        rank.groups.append(Group([_step(step) for step in entry.objects("steps")]))
        entry.end()
    reader.end()
    return rank


def _step(reader: _Reader, nested: bool = False) -> Step:
    step = Step(reader.string("step"))
    step.sources = [_operand(entry) for entry in reader.objects("from", ())]
    step.destinations = [_operand(entry) for entry in reader.objects("to", ())]
    step.count = reader.integer("count", 1)
    step.channels = reader.integers("channels", ())
    step.barrier = reader.integer("barrier", 0)
    step.relaxed = reader.boolean("relaxed")
    after = reader.lists("after")
    if any(len(pair) != 2 for pair in after):
        raise InvalidArgumentError(f"{reader.path}.after: pairs [group, step] are expected")
    step.after = [(pair[0], pair[1]) for pair in after]
    step.unit_bytes = reader.integer("unit_bytes", 0)
    body = reader.objects("steps", ())
    if nested and body:
        raise InvalidArgumentError(f"{reader.path}.steps: loops cannot be nested")
    step.body = [_step(entry, nested=True) for entry in body]
    step.origin = reader.integer("origin", 0)
    reader.end()
    return step


def _operand(reader: _Reader) -> Operand:
    operand = Operand(
        reader.string("buffer", None),
        reader.integer("chunk", 0),
        reader.integer("channel", None),
        reader.integer("switch", None),
        reader.boolean("packets"),
        reader.string("codec", "raw"),
    )
    reader.end()
    return operand
