"""Programs: plans that are being written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import SupportsIndex, TypeVar

from ..._native import operations
from ..._native.operations import Buffer as Content
from ..._native.plan import NativePlan
from ...errors import InvalidArgumentError
from ..model import PlanModel
from ..plan import Plan
from .build import Built, Header, build
from .chunks import Chunks
from .record import Buffer, ChannelKey, Range
from .recorder import Recorder, SwitchBuffer
from .settings import current
from .sites import PlanError, Site, whole

T = TypeVar("T")

#: As in src/plan/ir.h.
MAX_RANKS = 1024


class Program(Plan):
    """A plan that is written statement by statement, as if the statements ran one after another.

    operation: such as "all_reduce"; not send, recv or all_to_all_v.
    ranks: how many.
    chunks: into how many chunks a piece is divided. The input and output of an all-reduce are one piece; the output of
    an all-gather has a piece for each rank.
    name: for people.
    root: of operations with a root; for others 0.
    instances: how often the plan is replicated, each time for a part of every chunk.
    in_place: whether input and output are the same memory, "no", "yes" or "either"; None: "either" if that is proved,
    else "no".
    scratch_copies: 2: successive calls use two scratch buffers in turn.
    min_bytes, max_bytes: the sizes for which the plan is meant, as `narrowcast bench` counts them. A maximum of 0 is no
    limit.
    depth: how many messages of one chunk a ring holds.

    The statements say what happens to values. Their steps run as early as the values permit: messages are sent before
    a rank waits for others, and steps that pass a value on are combined. Where the order matters to others, steps run
    where they are written: send, receive, put, get, signal, wait, flush, barriers, loops, and accesses to packets.

    Raises PlanError, with the line of the program, for invalid arguments.
    """

    def __init__(
        self,
        operation: str,
        ranks: int,
        *,
        chunks: int = 1,
        name: str = "",
        root: int = 0,
        instances: int = 1,
        in_place: str | None = None,
        scratch_copies: int = 1,
        min_bytes: int = 0,
        max_bytes: int = 0,
        depth: int = 8,
    ) -> None:
        try:
            described = operations.describe(operation)
        except ValueError as error:
            raise PlanError(str(error)) from None
        if described.has_peer or Content.LISTED in (described.send, described.recv):
            raise PlanError(f"there are no plans for {operation}")
        ranks, root = whole("ranks", ranks), whole("root", root)
        chunks, instances, depth = whole("chunks", chunks), whole("instances", instances), whole("depth", depth)
        min_bytes, max_bytes = whole("min_bytes", min_bytes), whole("max_bytes", max_bytes)
        _require(1 <= ranks <= MAX_RANKS, f"ranks must be 1 to {MAX_RANKS}, not {ranks}")
        _require(described.has_root or root == 0, f"{operation} has no root, so root cannot be {root}")
        _require(0 <= root < ranks, f"root {root} is not one of {ranks} ranks")
        for text, number in {"chunks": chunks, "instances": instances, "depth": depth}.items():
            _require(number > 0, f"{text} must be positive, not {number}")
        _require(scratch_copies in (1, 2), f"scratch_copies must be 1 or 2, not {scratch_copies}")
        _require(min_bytes >= 0 and max_bytes >= 0, "min_bytes and max_bytes cannot be negative")
        _require(max_bytes == 0 or min_bytes <= max_bytes, f"min_bytes is {min_bytes}, max_bytes is {max_bytes}")
        _require(in_place in (None, "no", "yes", "either"), f"in_place is no, yes or either, not {in_place!r}")
        if not described.in_place:
            _require(in_place in (None, "no"), f"{operation} does not work in place")
            in_place = "no"
        self._operation = described
        self._header = Header(
            operation, ranks, chunks, name, root, instances, in_place, scratch_copies, min_bytes, max_bytes, depth
        )
        self._recorder = Recorder(ranks, depth)
        self._built: tuple[int, Built] | None = None
        self.ranks: tuple[Rank, ...] = tuple(Rank(self, rank) for rank in range(ranks))  #: in rank order

    def __len__(self) -> int:
        return len(self.ranks)

    def switch(self, ranks: Iterable[Rank] | None = None) -> Switch:
        """A switch that reads and writes the buffers of several ranks together. None: of all ranks."""
        given = self.ranks if ranks is None else _iterable(ranks, "ranks of a switch")
        numbers = sorted({self._number(rank) for rank in given})
        if len(numbers) < 2:
            raise PlanError(f"a switch needs at least 2 ranks, not {len(numbers)}")
        return Switch(self, ChannelKey("switch", -1, -1, ranks=tuple(numbers)))

    @property
    def model(self) -> PlanModel:
        """The plan as objects. Raises PlanError if the statements do not make one."""
        return self._build().model

    def check_form(self) -> None:
        """Raises PlanError if the statements do not make a plan."""
        self._build()

    def site(self, origin: int) -> Site | None:
        """The line of the statement that a step comes from."""
        return self._build().origins.site(origin)

    def _build(self) -> Built:
        tasks = self._recorder.tasks
        if self._built is None or self._built[0] != len(tasks):
            built = build(self._header, self._operation, self._recorder)
            if self._header.in_place is None and any(channel.kind != "ring" for channel in built.model.channels):
                _decide_in_place(built.model)
            self._built = (len(tasks), built)
        return self._built[1]

    def _buffer_chunks(self, kind: str, rank: int) -> int:
        return self._header.buffer_chunks(self._operation, kind, rank)

    def _piece(self, where: Range, rank: SupportsIndex) -> Chunks:
        content = self._operation.send if where.buffer.kind == "input" else self._operation.recv
        chunks = self._header.chunks
        if where.buffer.kind not in ("input", "output") or not content.parted or where.count != where.buffer.size:
            raise PlanError("only a whole input or output with a piece for each rank has pieces")
        return Chunks(self, Range(where.buffer, self._number(rank) * chunks, chunks))

    def _number(self, rank: SupportsIndex) -> int:
        """The number of a rank."""
        if isinstance(rank, Rank) and rank._program is not self:
            raise PlanError("this rank belongs to another program")
        number = whole("a rank", rank)
        if not 0 <= number < len(self):
            raise PlanError(f"there is no rank {number}, only {len(self)}")
        return number

    def _range_of(self, value: object) -> Range:
        if not isinstance(value, Chunks):
            raise PlanError(f"chunks such as r.input[0] are expected, not {type(value).__name__}")
        if value._program is not self:
            raise PlanError("these chunks belong to another program")
        return value._range


class Rank:
    """A rank of a program. Where a number is expected, it is its number: `peer.output[r]`."""

    __slots__ = ("_input", "_output", "_program", "index")

    def __init__(self, program: Program, number: int) -> None:
        self._program = program
        self.index = number  #: its number
        self._input, self._output = (
            Chunks(program, Range(Buffer(number, kind, size), 0, size))
            for kind in ("input", "output")
            for size in (program._buffer_chunks(kind, number),)
        )

    def __index__(self) -> int:
        return self.index

    def __repr__(self) -> str:
        return f"<rank {self.index} of {len(self._program)}>"

    @property
    def input(self) -> Chunks:
        """The input of the operation. It has no chunks if the rank has none."""
        return self._input

    @property
    def output(self) -> Chunks:
        """The output of the operation. It has no chunks if the rank has none."""
        return self._output

    def scratch(self, chunks: int = 1, *, packets: bool = False) -> Chunks:
        """New scratch memory.

        packets: it contains packets, data with a flag. Other ranks `put` values there, and a step that reads them waits
        until they have arrived, so no signal is needed. Encoded with the codec that `with codec(...)` sets here.
        """
        chunks = _positive("scratch needs a positive number of chunks", chunks)
        buffer = Buffer(self.index, "scratch", chunks, packets, current().codec if packets else "raw")
        self._recorder.scratch[self.index].append(buffer)
        return Chunks(self._program, Range(buffer, 0, chunks))

    def reduce(self, *sources: Chunks | Iterable[Chunks]) -> Chunks:
        """Combines chunks of any ranks at this rank, in the order given, with the reduction of the call.

        Sources on other ranks travel by messages. The sources are arguments, or one iterable.

        Raises PlanError if there are no sources, or they have different numbers of chunks.
        """
        operands: Sequence[object] = sources
        if len(sources) == 1 and not isinstance(sources[0], Chunks):
            operands = list(_iterable(sources[0], "chunks to reduce"))
        return self._chunks(self._recorder.reduce(self.index, [self._program._range_of(source) for source in operands]))

    def copy(self, source: Chunks) -> Chunks:
        """Brings chunks to this rank without storing them, to pass them on."""
        return self._chunks(self._recorder.copy(self.index, self._program._range_of(source)))

    def send(self, source: Chunks, receiver: Rank) -> None:
        """Sends chunks of this rank as a message, which the receiver must `receive`. Messages arrive in order.

        Raises PlanError if the chunks are on another rank, or the receiver is this rank.
        """
        self._recorder.send(self._own(source), self._program._number(receiver))

    def receive(self, sender: Rank, chunks: int = 1) -> Chunks:
        """The next message that a rank sends to this one, of the given number of chunks.

        Raises PlanError if `chunks` is not positive, or the sender is this rank. Messages that are not sent, or not
        received, are errors of the complete program (`Program.check_form`).
        """
        chunks = _positive("a message has a positive number of chunks", chunks)
        return self._chunks(self._recorder.receive(self.index, self._program._number(sender), chunks))

    def put(self, source: Chunks, destination: Chunks) -> None:
        """Stores chunks of this rank in a buffer of another rank, or in those of all ranks of a switch.

        The other rank knows of it by `signal` and `wait`, or because the buffer contains packets.

        Raises PlanError if the source is on another rank, the destination is an input or on this rank, or they have
        different numbers of chunks.
        """
        self._recorder.put(self.index, self._own(source), self._program._range_of(destination))

    def get(self, source: Chunks) -> Chunks:
        """Reads chunks of a buffer of another rank, or the reduction of those of all ranks of a switch.

        Raises PlanError if the chunks are on this rank.
        """
        return self._chunks(self._recorder.get(self.index, self._program._range_of(source)))

    def signal(self, *peers: Rank, relaxed: bool = False) -> None:
        """Adds one to a semaphore that each peer waits for, after all earlier steps of the group.

        relaxed: orders no values; says only that this rank has come so far.

        Raises PlanError if there are no peers, or one is this rank. `verify` finds signals without waits, and waits
        without signals.
        """
        channels = [self._recorder.memory(self.index, self._program._number(peer)) for peer in peers]
        self._recorder.synchronize("signal", self.index, channels, relaxed)

    def wait(self, *peers: Rank, relaxed: bool = False) -> None:
        """Waits for one signal of each peer. Unless relaxed, later steps of the group see what preceded it.

        Raises PlanError as `signal` does.
        """
        channels = [self._recorder.memory(self._program._number(peer), self.index) for peer in peers]
        self._recorder.synchronize("wait", self.index, channels, relaxed)

    def flush(self, *peers: Rank) -> None:
        """Waits until what this rank has put on the peers has been stored, so that the sources can be overwritten.

        Raises PlanError as `signal` does.
        """
        channels = [self._recorder.memory(self.index, self._program._number(peer)) for peer in peers]
        self._recorder.synchronize("flush", self.index, channels)

    def barrier(self, *groups: int | str) -> None:
        """Waits until all of these groups of the rank have come here. Orders what is before and after."""
        self._recorder.barrier(self.index, groups)

    def semaphore(self, initial: int = 0) -> Semaphore:
        """A semaphore between groups of this rank."""
        initial = whole("initial", initial)
        if initial < 0:
            raise PlanError(f"a semaphore cannot begin with {initial}")
        self._recorder.semaphores += 1
        number = self._recorder.semaphores
        return Semaphore(self, ChannelKey("memory", self.index, self.index, number=number, initial=initial))

    @property
    def _recorder(self) -> Recorder:
        return self._program._recorder

    def _chunks(self, where: Range) -> Chunks:
        return Chunks(self._program, where)

    def _own(self, source: Chunks) -> Range:
        where = self._program._range_of(source)
        if where.buffer.rank != self.index:
            raise PlanError(f"rank {self.index} can only send what is on it, not {source!r}")
        return where


class Semaphore:
    """A semaphore between groups of a rank."""

    __slots__ = ("_channel", "_rank")

    def __init__(self, rank: Rank, channel: ChannelKey) -> None:
        self._rank = rank
        self._channel = channel

    def signal(self) -> None:
        """Adds one, after all earlier steps of the group."""
        self._rank._recorder.synchronize("signal", self._rank.index, [self._channel])

    def wait(self) -> None:
        """Waits until it is positive, and subtracts one. Later steps of the group see what preceded the signal."""
        self._rank._recorder.synchronize("wait", self._rank.index, [self._channel])


class Switch:
    """The buffers of several ranks together.

    `r.get(s.input[0])` reduces the chunks of all of them, `r.put(value, s.output[0])` stores to all of them.
    """

    __slots__ = ("_channel", "_program")

    def __init__(self, program: Program, channel: ChannelKey) -> None:
        self._program = program
        self._channel = channel

    @property
    def input(self) -> Chunks:
        """The inputs of the ranks."""
        return self._whole("input")

    @property
    def output(self) -> Chunks:
        """The outputs of the ranks."""
        return self._whole("output")

    def _whole(self, kind: str) -> Chunks:
        size = min(self._program._buffer_chunks(kind, rank) for rank in self._channel.ranks)
        return Chunks(self._program, Range(SwitchBuffer(kind, size, self._channel), 0, size))


def _decide_in_place(model: PlanModel) -> None:
    """Whether a plan that may work in place does, if ranks access each other's memory: only the proof knows."""
    if model.in_place == "either" and not _is_proved(model):
        model.in_place = "no"
        if not _is_proved(model):
            model.in_place = "either"


def _is_proved(model: PlanModel) -> bool:
    try:
        plan = NativePlan.read(model.to_json()).lower()
    except InvalidArgumentError:  # too large
        return False
    return bool(plan.verify()["verdict"] == "proved")


def _positive(requirement: str, number: int) -> int:
    found = whole("the number", number)
    _require(found > 0, f"{requirement}, not {number}")
    return found


def _iterable(given: Iterable[T], what: str) -> Iterable[T]:
    if not isinstance(given, Iterable):
        raise PlanError(f"{what} are expected, not {given!r}")
    return given


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise PlanError(message)
