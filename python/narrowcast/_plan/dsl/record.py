"""The recorded statements of a program: tasks, which become steps, and their operands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from .settings import Loop
from .sites import Site


class Buffer:
    """A buffer of a rank. A value, the result of a statement, is in memory only if a step reads it from there."""

    __slots__ = ("codec", "kind", "packets", "rank", "size")

    def __init__(self, rank: int, kind: str, size: int, packets: bool = False, codec: str = "raw") -> None:
        self.rank = rank  #: -1: of all ranks of a switch
        self.kind = kind  #: input, output, scratch or value
        self.size = size  #: in chunks
        self.packets = packets
        self.codec = codec  #: of packets


@dataclass(frozen=True, slots=True)
class Range:
    """Consecutive chunks of a buffer."""

    buffer: Buffer
    start: int
    count: int


class Place(NamedTuple):
    """The steps of a group of a rank."""

    rank: int
    group: int | str


class ChannelKey(NamedTuple):
    """Everything that distinguishes one channel of a program from another."""

    kind: str
    sender: int
    receiver: int
    name: str = ""
    groups: tuple[int | str, ...] = ()  #: of a ring: of the sender and of the receiver; empty for explicit messages
    packets: bool = False
    number: int = 0  #: of a semaphore or a switch
    ranks: tuple[int, ...] = ()  #: of a switch
    initial: int = 0


@dataclass(eq=False, slots=True)
class Operand:
    """What a task reads or writes: a range of this rank, or of another one, or a message."""

    where: Range | None
    channel: ChannelKey | None = None
    codec: str = "raw"

    @property
    def local(self) -> Range | None:
        """The range, if it belongs to the rank of the task."""
        return self.where if self.channel is None else None

    @property
    def is_message(self) -> bool:
        """Whether it is the next message of a ring."""
        return self.where is None


@dataclass(eq=False, slots=True)
class Task:
    """One statement at one rank."""

    index: int  #: order of the statements
    kind: str  #: of the step
    places: list[Place]  #: one; several for barriers and loops
    site: Site
    sources: list[Operand] = field(default_factory=list)
    destinations: list[Operand] = field(default_factory=list)
    count: int = 1
    channels: list[ChannelKey] = field(default_factory=list)
    relaxed: bool = False
    pinned: bool = False  #: keeps its place among the statements of its group
    loop: Loop | None = None
    body: list[Task] = field(default_factory=list)  #: of a loop

    @property
    def place(self) -> Place:
        """The group that it runs in, for tasks that run in one."""
        return self.places[0]
