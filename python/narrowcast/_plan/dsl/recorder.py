"""Records statements as tasks of ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .record import Buffer, ChannelKey, Operand, Place, Range, Task
from .settings import Loop, check_name, current
from .sites import PlanError, here


class Recorder:
    """The tasks of a program, in the order of its statements."""

    def __init__(self, ranks: int, depth: int) -> None:
        self.ranks = ranks
        self.depth = depth  #: of automatic rings, in messages of one chunk
        self.tasks: list[Task] = []
        self.scratch: list[list[Buffer]] = [[] for _ in range(ranks)]
        self.semaphores = 0
        self._loops: dict[Loop, Task] = {}

    def task(self, kind: str, rank: int, *, pinned: bool = False) -> Task:
        """A new task of the current group of a rank."""
        settings = current()
        place = Place(rank, settings.group)
        task = Task(len(self.tasks), kind, [place], here(), pinned=pinned, loop=settings.loop)
        if settings.loop is not None:
            loop = self._loops.get(settings.loop)
            if loop is None:
                loop = Task(task.index, "loop", [], settings.loop.site, pinned=True)
                self._loops[settings.loop] = loop
                self.tasks.append(loop)
                task.index += 1
            if place not in loop.places:
                loop.places.append(place)
            loop.body.append(task)
        self.tasks.append(task)
        return task

    def value(self, rank: int, count: int) -> Range:
        """The range of the result of a task."""
        return Range(Buffer(rank, "value", count), 0, count)

    def parts(self, count: int, messages: int = 1) -> Sequence[tuple[int, int]]:
        """Start and length of the parts in which chunks move, so that `messages` of them fit a ring together."""
        longest = max(1, self.depth // messages)
        return [(start, min(longest, count - start)) for start in range(0, count, longest)]

    # --- statements ---

    def assign(self, destination: Range, source: Range) -> None:
        """Copies a range, by a message if it is on another rank."""
        self.check(destination, source)
        if destination.buffer.kind == "input":
            raise PlanError("the input cannot be written: write the output, or scratch")
        if destination == source:
            return
        if destination.buffer is source.buffer and abs(destination.start - source.start) < source.count:
            raise PlanError("source and destination overlap")
        for start, count in self.parts(source.count):
            operand = self.bring(_part(source, start, count), destination.buffer.rank)
            task = self.task("copy", destination.buffer.rank, pinned=_waits(destination, source))
            task.sources, task.count = [operand], count
            task.destinations = [local(_part(destination, start, count))]

    def reduce(self, rank: int, sources: Sequence[Range]) -> Range:
        """Combines ranges of any ranks at one rank."""
        if not sources:
            raise PlanError("a reduction needs operands")
        return self._computed("reduce" if len(sources) > 1 else "copy", rank, sources)

    def copy(self, rank: int, source: Range) -> Range:
        """Brings a range to a rank, without storing it."""
        return self._computed("copy", rank, [source])

    def _computed(self, kind: str, rank: int, sources: Sequence[Range]) -> Range:
        self.check(*sources)
        result = self.value(rank, sources[0].count)
        senders = Counter(source.buffer.rank for source in sources if source.buffer.rank != rank)
        for sender, messages in senders.items():
            if messages > self.depth:
                # A ring does not have room for all of them.
                sources = [self.copy(rank, one) if one.buffer.rank == sender else one for one in sources]
        messages = max((count for count in senders.values() if count <= self.depth), default=1)
        for start, count in self.parts(result.count, messages):
            operands = [self.bring(_part(source, start, count), rank) for source in sources]
            task = self.task(kind, rank, pinned=_waits(*sources))
            task.sources, task.count = operands, count
            task.destinations = [local(_part(result, start, count))]
        return result

    def bring(self, source: Range, rank: int) -> Operand:
        """The operand by which a rank reads a range. If the range is on another rank, that rank sends it."""
        sender = source.buffer.rank
        if sender == rank:
            return local(source)
        settings = current()
        ring = ChannelKey(
            "ring", sender, rank, settings.channel, (settings.group, settings.group), packets=settings.packets
        )
        task = self.task("copy", sender, pinned=_waits(source))
        task.sources, task.count = [local(source)], source.count
        task.destinations = [Operand(None, ring, settings.codec)]
        return Operand(None, ring, settings.codec)

    # --- explicit messages, one-sided accesses ---

    def send(self, source: Range, receiver: int) -> None:
        """Sends a range of the rank as a message that the receiver must receive."""
        self.check(source)
        task = self.task("copy", source.buffer.rank, pinned=True)
        task.sources, task.count = [local(source)], source.count
        task.destinations = [Operand(None, self.explicit_ring(source.buffer.rank, receiver), current().codec)]

    def receive(self, rank: int, sender: int, count: int) -> Range:
        """The next message from a rank."""
        return self._fetched(rank, Operand(None, self.explicit_ring(sender, rank), current().codec), count)

    def explicit_ring(self, sender: int, receiver: int) -> ChannelKey:
        """The ring of explicit messages between two ranks."""
        self._different(sender, receiver)
        settings = current()
        return ChannelKey("ring", sender, receiver, settings.channel, packets=settings.packets)

    def put(self, rank: int, source: Range, destination: Range) -> None:
        """Stores a range of a rank in a buffer of another rank, or of all ranks of a switch."""
        self.check(destination, source)
        if destination.buffer.kind == "input":
            raise PlanError("the input cannot be written: write the output, or scratch")
        task = self.task("copy", rank, pinned=True)
        task.sources, task.count = [local(source)], source.count
        task.destinations = [self.remote(rank, destination)]

    def get(self, rank: int, source: Range) -> Range:
        """The values of a range of another rank, or the reduction of those of all ranks of a switch."""
        self.check(source)
        return self._fetched(rank, self.remote(rank, source), source.count)

    def remote(self, rank: int, where: Range) -> Operand:
        """The operand by which a rank accesses a buffer of another one."""
        buffer = where.buffer
        if isinstance(buffer, SwitchBuffer):
            return Operand(where, buffer.channel, buffer.codec)
        self._different(rank, buffer.rank)
        return Operand(where, self.memory(rank, buffer.rank), buffer.codec)

    def memory(self, sender: int, receiver: int) -> ChannelKey:
        """The memory or port channel from one rank to another."""
        self._different(sender, receiver)
        settings = current()
        return ChannelKey("port" if settings.port else "memory", sender, receiver, settings.channel)

    def _fetched(self, rank: int, operand: Operand, count: int) -> Range:
        result = self.value(rank, count)
        task = self.task("copy", rank, pinned=True)
        task.sources, task.count = [operand], count
        task.destinations = [local(result)]
        return result

    def synchronize(self, kind: str, rank: int, channels: Sequence[ChannelKey], relaxed: bool = False) -> None:
        """A signal, wait or flush."""
        if not channels:
            raise PlanError(f"{kind} needs at least one rank")
        task = self.task(kind, rank, pinned=True)
        task.channels, task.relaxed = list(channels), relaxed

    def barrier(self, rank: int, groups: Sequence[int | str]) -> None:
        """A barrier of groups of a rank."""
        for name in groups:
            check_name("group", name, int, str)
        if len(set(groups)) < 2:
            raise PlanError("a barrier needs the names of at least 2 groups of the rank")
        if current().loop is not None:
            raise PlanError("a barrier cannot be in a loop")
        task = self.task("barrier", rank, pinned=True)
        task.places = [Place(rank, group) for group in dict.fromkeys(groups)]

    # --- checks ---

    def check(self, *ranges: Range) -> None:
        """All operands of a statement have equally many chunks."""
        for one in ranges:
            if one.buffer.size == 0:
                raise PlanError(f"rank {one.buffer.rank} has no {one.buffer.kind} in this operation")
        counts = {one.count for one in ranges}
        if len(counts) > 1:
            raise PlanError(f"operands have different numbers of chunks: {', '.join(str(one.count) for one in ranges)}")
        if 0 in counts:
            raise PlanError("operands have no chunks")

    def _different(self, sender: int, receiver: int) -> None:
        if sender == receiver:
            raise PlanError(f"rank {sender} has no channel to itself")


class SwitchBuffer(Buffer):
    """The buffers of all ranks of a switch."""

    __slots__ = ("channel",)

    def __init__(self, kind: str, size: int, channel: ChannelKey) -> None:
        super().__init__(-1, kind, size)
        self.channel = channel


def local(where: Range) -> Operand:
    """The operand of a range of the rank itself."""
    return Operand(where, None, where.buffer.codec)


def _part(where: Range, start: int, count: int) -> Range:
    return Range(where.buffer, where.start + start, count)


def _waits(*ranges: Range) -> bool:
    """Whether a task waits for packets that others put, and must keep its place among the statements."""
    return any(one.buffer.packets for one in ranges)
