"""Messages between any two ranks: all_to_all_v, and groups of sends and receives."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
from dataclasses import dataclass
from typing import Any

import narrowcast
import numpy as np
from narrowcast import _samples
from narrowcast.types import VALUE_TYPES, ValueType, value_type

from .guarded import Guarded
from .operations import Choice, expected
from .values import DATA, difference, poison, pool
from .world import CODECS, Cases, Outcome, World

_BYTES = value_type("uint8")


def _message(data: str, kind: ValueType, number: int, count: int) -> np.ndarray:
    return _samples.of_rank(pool(data, kind.name), number, count)


# all_to_all_v.

# How many values rank s sends rank r, by a random number generator.
_COUNTS = {
    "odd": lambda rng, s, r, ranks: 2 * rng.randrange(1500) + 1,
    "some zero": lambda rng, s, r, ranks: rng.choice((0, 0, 1, 1024, 3001)),
    "one way": lambda rng, s, r, ranks: 5000 if (s, r) == (0, ranks - 1) else 0,
    "all zero": lambda rng, s, r, ranks: 0,
    "to oneself": lambda rng, s, r, ranks: 2049 if s == r else 0,
    "unequal": lambda rng, s, r, ranks: rng.choice((1, 70_000, 3, 2048, 150_001)),
    "equal": lambda rng, s, r, ranks: 4099,
}


def all_to_all_v(world: World) -> Cases:
    """Odd, zero and unequal counts, each rank's parts in an order of its own and with gaps between them."""
    rng = world.random("all_to_all_v")
    counts = list(_COUNTS)
    if world.thorough:
        chosen = [(kind, how) for kind in VALUE_TYPES for how in counts]
    else:
        chosen = [(kind, counts[i % len(counts)]) for i, kind in enumerate(VALUE_TYPES)]
    for kind, how in chosen:
        data = rng.choice(DATA)
        yield f"all_to_all_v {kind.name}, {how}, {data}", functools.partial(_check_v, world, kind, how, data)
    if world.thorough:
        kind = value_type("bfloat16")
        yield "all_to_all_v bfloat16, large", functools.partial(_check_v, world, kind, "unequal", "weights", 60)


def _check_v(world: World, kind: ValueType, how: str, data: str, times: int = 1) -> Outcome:
    outcome = Outcome()
    everyone = range(world.ranks)
    shared = world.random("all_to_all_v", kind.name, how)
    table = [[times * _COUNTS[how](shared, s, r, world.ranks) for r in everyone] for s in everyone]
    own = world.random("all_to_all_v", kind.name, how, own=True)
    send_counts, recv_counts = table[world.rank], [table[s][world.rank] for s in everyone]
    send_offsets, send_elems = _placed(send_counts, own)
    recv_offsets, recv_elems = _placed(recv_counts, own)
    values = poison(send_elems * kind.bytes).view(kind.numpy)
    for r in everyone:
        part = _message(data, kind, world.rank * world.ranks + r, send_counts[r])
        values[send_offsets[r] : send_offsets[r] + part.size] = part
    right = poison(recv_elems * kind.bytes).view(kind.numpy)
    for s in everyone:
        part = _message(data, kind, s * world.ranks + world.rank, recv_counts[s])
        right[recv_offsets[s] : recv_offsets[s] + part.size] = part
    stream = world.streams[0]
    for codec in CODECS:
        world.place.reset()
        source, target = Guarded(world.place, values.nbytes), Guarded(world.place, right.nbytes)
        shifts = [own.choice((0, 1, 3)) * kind.bytes for _ in range(2)]
        where = f"{codec} at +{shifts[0]} and +{shifts[1]}"
        world.comm.all_to_all_v(
            source.lay(values, shifts[0], stream),
            target.lay(poison(right.nbytes), shifts[1], stream),
            send_counts,
            recv_counts,
            send_offsets=send_offsets,
            recv_offsets=recv_offsets,
            codec=codec,
            stream=stream,
            dtype=kind.name,
        )
        world.place.finish(world.comm, stream)
        outcome.note(f"{where}, the input", source.read(0, 0, stream)[1])
        found, changed = target.read(0, right.nbytes, stream)
        outcome.note(f"{where}, the output", changed)
        error = difference(found.view(kind.numpy), right, kind, nan_is_nan=False)
        outcome.note(f"{where}, counts {recv_counts} at {recv_offsets}", error)
    return outcome


def _placed(counts: list[int], rng: random.Random) -> tuple[list[int], int]:
    """Offsets for the counts, in any order and with gaps; and how long the whole is."""
    offsets, end = [0] * len(counts), 0
    for i in rng.sample(range(len(counts)), len(counts)):
        end += rng.choice((0, 1, 5))
        offsets[i] = end
        end += counts[i]
    return offsets, end + 1


# Groups.


@dataclass(frozen=True)
class Message:
    """From one rank to another. Those of two ranks are received in the order in which they are sent."""

    sender: int
    receiver: int
    kind: ValueType
    codec: str
    data: str
    count: int
    number: int

    @property
    def values(self) -> np.ndarray:
        return _message(self.data, self.kind, self.number, self.count)


class Mailbox:
    """This rank's messages of one group, in memory between canaries."""

    def __init__(self, world: World, messages: list[Message], rng: random.Random, stream: Any) -> None:
        self._world, self._stream = world, stream
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
        """All of them in one buffer, aligned to their value type and nothing more."""
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
        """Sends and receives in an open group: in any order, but for those between the same two ranks."""
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
            getattr(comm, what)(array, peer, codec=message.codec, stream=stream, dtype=message.kind.name)

    def check(self, outcome: Outcome, where: str = "") -> None:
        """After the streams."""
        name = f"{where}, the input" if where else "the input"
        outcome.note(name, self._source.read(0, 0, self._stream)[1])
        found, changed = self._target.read(0, self._right.size, self._stream)
        outcome.note(where, changed)
        for start, message in zip(self._recvs, self.received, strict=True):
            raw_bytes = message.count * message.kind.bytes
            part = found[start : start + raw_bytes]
            error = difference(part.view(message.kind.numpy), message.values, message.kind, nan_is_nan=False)
            what = f"{message.count} {message.kind.name} ({message.codec}) from rank {message.sender}"
            outcome.note(where, error and f"{what}: {error}")
        if not outcome.wrong:
            outcome.note(where, difference(found, self._right, _BYTES, nan_is_nan=False))


def messages_of(world: World, name: str) -> list[Message]:
    """The messages of a group, the same list on every rank."""
    rng = world.random("groups", name)
    everyone = range(world.ranks)
    pairs = [(s, r) for s in everyone for r in everyone]
    numbers = iter(range(1 << 30))
    floats = [kind for kind in VALUE_TYPES if kind.is_float]

    def message(s: int, r: int, kind: ValueType, codec: str, count: int, data: str | None = None) -> Message:
        return Message(s, r, kind, codec, data or rng.choice(DATA), count, next(numbers))

    bf16, fp32 = value_type("bfloat16"), value_type("float32")
    if name == "a ring":
        return [message(s, (s + 1) % world.ranks, fp32, "auto", 3001) for s in everyone]
    if name == "everyone to everyone":
        return [message(s, r, bf16, rng.choice(CODECS), 1 + rng.randrange(9000)) for s, r in pairs]
    if name == "many of all types and codecs between any two":
        kinds = VALUE_TYPES if world.thorough else rng.sample(VALUE_TYPES, 5)
        sizes = (0, 1, 2, 3, 1023, 1024, 2047, 2049, 5000)
        return [message(s, r, kind, rng.choice(CODECS), rng.choice(sizes)) for s, r in pairs for kind in kinds]
    if name == "all types that window shrinks at once":
        # The n-th of any two ranks meet: every pair begins with another type, and sends one raw.
        some = [
            message(s, r, floats[(2 * s + r + i) % len(floats)], "raw" if i == (2 * s + r) % 7 else "window", 9001)
            for s, r in pairs
            for i in range(len(floats) + 1)
        ]
        return some if world.thorough or world.ranks < 4 else [one for one in some if one.sender < one.receiver]
    if name == "large in all directions":
        most = 3_000_001 if world.thorough else 300_001
        return [message(s, r, bf16, rng.choice(CODECS), most - s - 2 * r, "weights") for s, r in pairs]
    if name == "many alike":
        neighbours = [(s, (s + step) % world.ranks) for s in everyone for step in (0, 1, world.ranks - 1)]
        sizes = (1, 7, 2047, 2048, 2049, 5000, 9001)
        ways = [(s, r, "raw" if s < r else "window") for s, r in neighbours for _ in range(60)]
        return [message(s, r, bf16, codec, rng.choice(sizes)) for s, r, codec in ways]
    if name == "one way":
        return [message(0, r, bf16, "window", 40_000) for r in everyone[1:] for _ in range(3)]
    if name == "nothing but zeros":
        return [message(s, r, rng.choice(VALUE_TYPES), rng.choice(CODECS), 0) for s, r in pairs]
    assert name == "any"
    return [
        message(s, r, rng.choice(VALUE_TYPES), rng.choice(CODECS), int(2 ** rng.uniform(0, 16)) - 1)
        for s, r in rng.choices(pairs, k=3 * world.ranks)
    ]


_GROUPS = (
    "a ring",
    "everyone to everyone",
    "many of all types and codecs between any two",
    "all types that window shrinks at once",
    "large in all directions",
    "many alike",
    "one way",
    "nothing but zeros",
)


def groups(world: World) -> Cases:
    for name in _GROUPS:
        yield f"group: {name}", functools.partial(_check_group, world, name)
    for i in range(20 if world.thorough else 3):
        yield f"group: any {i}", functools.partial(_check_group, world, "any", i)
    for grouped in ("sends", "receives"):
        yield f"only {grouped} are grouped", functools.partial(_check_unequal, world, grouped)
    yield "only rank 0 groups what goes both ways", functools.partial(_check_pairs, world)
    for way, messages in _ORDERS.items():
        if max(map(max, messages)) < world.ranks:
            yield f"only rank 0 groups {way}", functools.partial(_check_order, world, messages)
    yield "only rank 0 groups a collective and what it sends", functools.partial(_check_collective_grouped, world)
    if world.ranks > 2:
        for codec, waiting in (("raw", 1), ("raw", 2), ("window", 1), ("window", 2)):
            yield (
                f"rank {waiting} waits for another receiver, {codec}",
                functools.partial(_check_waiting, world, codec, waiting),
            )
    yield "groups in groups, and collectives among sends", functools.partial(_check_mixed, world)
    yield "sends on one stream, receives on another", functools.partial(_check_group, world, "any", "streams", True)


def _check_group(world: World, name: str, salt: object = 0, two_streams: bool = False) -> Outcome:
    outcome = Outcome()
    place, stream = world.place, world.streams[0]
    other = world.streams[1] if two_streams else None
    place.reset()
    own = world.random("groups", name, salt, own=True)
    # `any` is another one with each salt.
    messages = messages_of(dataclasses.replace(world, seed=hash_of(world.seed, salt)), name)
    mailbox = Mailbox(world, messages, own, stream)
    with narrowcast.group():
        mailbox.post(world.comm, own, other)
    if other is not None:
        place.wait(other)
    place.finish(world.comm, stream)
    mailbox.check(outcome)
    return outcome


def _check_unequal(world: World, grouped: str) -> Outcome:
    """Rank 0 sends several messages to each of the others: one side makes a group of all its calls, the other none."""
    outcome = Outcome()
    stream = world.streams[0]
    world.place.reset()
    own = world.random("unequal groups", grouped, own=True)
    mailbox = Mailbox(world, messages_of(world, "one way"), own, stream)
    is_grouped = (world.rank == 0) == (grouped == "sends")
    with narrowcast.group() if is_grouped else contextlib.nullcontext():
        mailbox.post(world.comm, own)
    world.place.finish(world.comm, stream)
    mailbox.check(outcome)
    return outcome


def _check_pairs(world: World) -> Outcome:
    """Rank 0 sends to and receives from each of the others in one group, of which they have a pair at a time."""
    outcome = Outcome()
    stream = world.streams[0]
    world.place.reset()
    rng, own = world.random("pairs"), world.random("pairs", own=True)
    kinds = [value_type("bfloat16")] * 3 + [value_type("float32")]
    numbers = iter(range(1 << 30))

    def message(sender: int, receiver: int) -> Message:
        count = rng.choice((0, 1, 2048, 5000, 40_000))
        return Message(sender, receiver, rng.choice(kinds), rng.choice(CODECS), "weights", count, next(numbers))

    pairs = [(message(0, r), message(r, 0)) for _ in range(60) for r in range(1, world.ranks)]
    mailboxes = [Mailbox(world, list(pair), own, stream) for pair in pairs]
    with narrowcast.group() if world.rank == 0 else contextlib.nullcontext():
        for mailbox in mailboxes:
            mailbox.post(world.comm, own)
    world.place.finish(world.comm, stream)
    for mailbox in mailboxes:
        mailbox.check(outcome)
    return outcome


# Messages, sender and receiver, in an order in which the ranks other than 0 can have them one by one.
_ORDERS = {
    "two that it sends and one that comes back": ((0, 1), (0, 1), (1, 0)),
    "two that come and one that it sends": ((1, 0), (1, 0), (0, 1)),
    "what goes to two ranks, one of which waits for the other": ((0, 1), (0, 1), (1, 2), (0, 2)),
}


def _check_order(world: World, messages: tuple[tuple[int, int], ...]) -> Outcome:
    """More than lies between two ranks: what waits for the end of another message waits for its receiver."""
    outcome = Outcome()
    stream = world.streams[0]
    world.place.reset()
    own = world.random("order", own=True)
    bf16, count = value_type("bfloat16"), 12_000_001
    mailboxes = [
        Mailbox(world, [Message(*ends, bf16, CODECS[i % len(CODECS)], "weights", count, i)], own, stream)
        for i, ends in enumerate(messages)
    ]
    with narrowcast.group() if world.rank == 0 else contextlib.nullcontext():
        for mailbox in mailboxes:
            mailbox.post(world.comm, own)
    world.place.finish(world.comm, stream)
    for mailbox in mailboxes:
        mailbox.check(outcome)
    return outcome


def _check_collective_grouped(world: World) -> Outcome:
    """The others have a collective, and then receive."""
    outcome = Outcome()
    place, stream = world.place, world.streams[0]
    place.reset()
    own = world.random("collective grouped", own=True)
    mailbox = Mailbox(world, messages_of(world, "one way"), own, stream)
    call = Choice("all_reduce", value_type("bfloat16"), "sum", "weights", 200_001, 0).call(world.rank, world.ranks)
    sample = pool("weights", call.kind.name)
    raw, right = call.sent(sample, world.rank), expected(call, sample, 0)
    source, target = Guarded(place, raw.nbytes), Guarded(place, right.nbytes)
    inputs, results = source.lay(raw, 0, stream), target.lay(poison(right.nbytes), 0, stream)
    with narrowcast.group() if world.rank == 0 else contextlib.nullcontext():
        if world.rank == 0:
            mailbox.post(world.comm, own)
        call.run(world.comm, inputs, results, codec="window", stream=stream)
        if world.rank != 0:
            mailbox.post(world.comm, own)
    place.finish(world.comm, stream)
    mailbox.check(outcome)
    found, changed = target.read(0, right.nbytes, stream)
    outcome.note("all_reduce", changed)
    outcome.note("all_reduce", difference(found.view(call.kind.numpy), right, call.kind, nan_is_nan=True))
    return outcome


def _check_waiting(world: World, codec: str, waiting: int) -> Outcome:
    """Rank 0 sends to ranks 1 and 2 in a group, more than lies between two ranks. One of them takes it after what the
    other sends when it has its own."""
    outcome = Outcome()
    stream = world.streams[0]
    world.place.reset()
    own = world.random("waiting", own=True)
    bf16, first, count = value_type("bfloat16"), 3 - waiting, 12_000_001
    from_root = [Message(0, receiver, bf16, codec, "weights", count, receiver) for receiver in (1, 2)]
    mailbox = Mailbox(world, from_root, own, stream)
    later = Mailbox(world, [Message(first, waiting, bf16, codec, "weights", 3001, 0)], own, stream)
    for one in (later, mailbox) if world.rank == waiting else (mailbox, later):
        with narrowcast.group():
            one.post(world.comm, own)
    world.place.finish(world.comm, stream)
    mailbox.check(outcome)
    later.check(outcome)
    return outcome


def hash_of(*words: object) -> int:
    return random.Random(repr(words)).getrandbits(32)


def _check_mixed(world: World) -> Outcome:
    """Sends and receives run last, whatever stands between them."""
    outcome = Outcome()
    place, comm = world.place, world.comm
    place.reset()
    stream = world.streams[0]
    own = world.random("mixed", own=True)
    mailbox = Mailbox(world, messages_of(world, "everyone to everyone"), own, stream)
    choices = [
        Choice("all_reduce", value_type("bfloat16"), "sum", "weights", 3001, 0),
        Choice("broadcast", value_type("float32"), "sum", "normal", 40_000, world.ranks - 1),
        Choice("all_gather", value_type("int32"), "sum", "random", 1000, 0),
    ]
    calls = []
    for choice in choices:
        call, sample = choice.call(world.rank, world.ranks), pool(choice.data, choice.kind.name)
        raw, right = call.sent(sample, world.rank), expected(call, sample, 0)
        source, target = Guarded(place, raw.nbytes), Guarded(place, right.nbytes)
        calls.append((call, source.lay(raw, 0, stream), target.lay(poison(right.nbytes), 0, stream), target, right))
    with narrowcast.group():
        calls[0][0].run(comm, calls[0][1], calls[0][2], codec="window", stream=stream)
        with narrowcast.group():
            mailbox.post(comm, own)
            calls[1][0].run(comm, calls[1][1], calls[1][2], codec="auto", stream=stream)
        calls[2][0].run(comm, calls[2][1], calls[2][2], codec="raw", stream=stream)
    place.finish(comm, stream)
    mailbox.check(outcome)
    for (call, _, _, target, right), choice in zip(calls, choices, strict=True):
        found, changed = target.read(0, right.nbytes, stream)
        outcome.note(choice.name, changed)
        outcome.note(choice.name, difference(found.view(call.kind.numpy), right, call.kind, nan_is_nan=True))
    return outcome
