"""Messages between ranks, and the memory of a rank for the messages of a group."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import narrowcast
import numpy as np
from narrowcast._bench import samples
from narrowcast._native.codecs import forced
from narrowcast.types import VALUE_TYPES, ValueType, value_type

from . import tolerance
from .guarded import Guarded
from .values import DATA, difference, poison, pool
from .world import Outcome, World, codecs, coding, suited

_BYTES = value_type("uint8")


def message_values(data: str, kind: ValueType, number: int, count: int) -> np.ndarray:
    return samples.of_rank(pool(data, kind.name), number, count)


@dataclass(frozen=True)
class Message:
    """A message from one rank to another. Messages between two ranks arrive in the order of their sends."""

    sender: int
    receiver: int
    kind: ValueType
    codec: str
    data: str
    count: int
    number: int

    @property
    def values(self) -> np.ndarray:
        return message_values(self.data, self.kind, self.number, self.count)


class Mailbox:
    """The messages of this rank in one group, with memory between canaries."""

    def __init__(self, world: World, messages: list[Message], rng: random.Random, stream: Any) -> None:
        self._stream = stream
        self.sent = [message for message in messages if message.sender == world.rank]
        self.received = [message for message in messages if message.receiver == world.rank]
        outgoing, self._sends = self._lay_out(self.sent, rng)
        incoming, self._recvs = self._lay_out(self.received, rng)
        self._right = incoming
        self._source, self._target = Guarded(world.place, outgoing.size), Guarded(world.place, incoming.size)
        self._source.lay(outgoing, stream=stream)
        self._target.lay(poison(incoming.size), stream=stream)
        world.place.wait(stream)

    @staticmethod
    def _lay_out(messages: list[Message], rng: random.Random) -> tuple[np.ndarray, list[int]]:
        """Puts all messages into one buffer, with only the alignment of their value types."""
        starts, end = [], 0
        for message in messages:
            size = message.kind.bytes
            starts.append(-(-end // size) * size + rng.choice((0, 1, 3)) * size)
            end = starts[-1] + message.count * size
        whole = poison(end)
        for start, message in zip(starts, messages, strict=True):
            raw = message.values.view(np.uint8)
            whole[start : start + raw.size] = raw
        return whole, starts

    def post(self, comm: narrowcast.Communicator, rng: random.Random, recv_stream: Any = None) -> None:
        """Makes sends and receives in an open group, in any order except between the same two ranks."""
        queues: dict[tuple[str, int], list[tuple[Message, int]]] = {}
        for message, start in zip(self.sent, self._sends, strict=True):
            queues.setdefault(("send", message.receiver), []).append((message, start))
        for message, start in zip(self.received, self._recvs, strict=True):
            queues.setdefault(("recv", message.sender), []).append((message, start))
        while queues:
            what, peer = key = rng.choice(list(queues))
            message, start = queues[key].pop(0)
            if not queues[key]:
                del queues[key]
            buffer = self._source if what == "send" else self._target
            array = buffer.part(start, message.count * message.kind.bytes)
            stream = self._stream if what == "send" or recv_stream is None else recv_stream
            getattr(comm, what)(array, peer, codec=forced(message.codec), stream=stream, dtype=message.kind.name)

    def check(self, outcome: Outcome, where: str = "") -> None:
        """Compares the received messages. The streams must be idle."""
        name = f"{where}, the input" if where else "the input"
        outcome.note(name, self._source.read(0, 0, self._stream)[1])
        found, changed = self._target.read(0, self._right.size, self._stream)
        outcome.note(where, changed)
        for start, message in zip(self._recvs, self.received, strict=True):
            raw_bytes = message.count * message.kind.bytes
            part = found[start : start + raw_bytes]
            received = part.view(message.kind.numpy)
            margins = tolerance.of_call("send", message.codec, message.kind, "sum", [message.values])
            error = difference(received, message.values, message.kind, nan_is_nan=False, tolerances=margins)
            if margins is not None:
                self._right[start : start + raw_bytes] = part
            what = f"{message.count} {message.kind.name} ({message.codec}) from rank {message.sender}"
            outcome.note(where, error and f"{what}: {error}")
        if not outcome.wrong:
            outcome.note(where, difference(found, self._right, _BYTES, nan_is_nan=False))


def messages_of(world: World, name: str) -> list[Message]:
    """The messages of a group: the same list on every rank."""
    rng = world.random("groups", name)
    everyone = range(world.ranks)
    pairs = [(s, r) for s in everyone for r in everyone]
    numbers = iter(range(1 << 30))
    floats = [kind for kind in VALUE_TYPES if kind.is_float]

    def message(s: int, r: int, kind: ValueType, codec: str, count: int, data: str | None = None) -> Message:
        return Message(s, r, kind, suited(codec, kind), data or rng.choice(DATA), count, next(numbers))

    bf16, fp32 = value_type("bfloat16"), value_type("float32")
    if name == "a ring":
        return [message(s, (s + 1) % world.ranks, fp32, "auto", 3001) for s in everyone]
    if name == "everyone to everyone":
        return [message(s, r, bf16, rng.choice(codecs()), 1 + rng.randrange(9000)) for s, r in pairs]
    if name == "many of all types and codecs between any two":
        kinds = VALUE_TYPES if world.thorough else rng.sample(VALUE_TYPES, 5)
        sizes = (0, 1, 2, 3, 1023, 1024, 2047, 2049, 5000)
        return [message(s, r, kind, rng.choice(codecs()), rng.choice(sizes)) for s, r in pairs for kind in kinds]
    if name == "all types that codecs shrink at once":
        # Every pair of ranks begins with a different type and sends one message raw.
        some = [
            message(
                s,
                r,
                floats[(2 * s + r + i) % len(floats)],
                "raw" if i == (2 * s + r) % 7 else rng.choice(coding()),
                9001,
            )
            for s, r in pairs
            for i in range(len(floats) + 1)
        ]
        return some if world.thorough or world.ranks < 4 else [one for one in some if one.sender < one.receiver]
    if name == "large in all directions":
        # What a rank sends to itself is too long for the kernel of the others.
        own, most = (9_000_001, 3_000_001) if world.thorough else (900_001, 300_001)
        sizes = [(own if s == r else most) - s - 2 * r for s, r in pairs]
        return [
            message(s, r, bf16, rng.choice(codecs()), size, "weights")
            for (s, r), size in zip(pairs, sizes, strict=True)
        ]
    if name == "many alike":
        neighbours = [(s, (s + step) % world.ranks) for s in everyone for step in (0, 1, world.ranks - 1)]
        sizes = (1, 7, 2047, 2048, 2049, 5000, 9001)
        ways = [(s, r, "raw" if s < r else rng.choice(coding())) for s, r in neighbours for _ in range(60)]
        return [message(s, r, bf16, codec, rng.choice(sizes)) for s, r, codec in ways]
    if name == "one way":
        return [message(0, r, bf16, rng.choice(coding()), 40_000) for r in everyone[1:] for _ in range(3)]
    if name == "nothing but zeros":
        return [message(s, r, rng.choice(VALUE_TYPES), rng.choice(codecs()), 0) for s, r in pairs]
    assert name == "any"
    return [
        message(s, r, rng.choice(VALUE_TYPES), rng.choice(codecs()), int(2 ** rng.uniform(0, 16)) - 1)
        for s, r in rng.choices(pairs, k=3 * world.ranks)
    ]
