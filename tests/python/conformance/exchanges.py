"""Messages between any two ranks: all_to_all_v, and groups of sends and receives."""

from __future__ import annotations

import dataclasses
import functools
import random

import narrowcast
from narrowcast._native.codecs import forced
from narrowcast.types import VALUE_TYPES, ValueType, value_type

from . import tolerance
from .guarded import Guarded
from .messages import Mailbox, message_values, messages_of
from .operations import Choice, expected
from .orders import orders
from .values import DATA, difference, poison, pool
from .world import Cases, Outcome, World, codecs_of_case, suited

# all_to_all_v.

# The number of values that rank s sends to rank r, by a random number generator.
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
    """Odd, zero and unequal counts, with parts in any order and gaps between them."""
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
        part = message_values(data, kind, world.rank * world.ranks + r, send_counts[r])
        values[send_offsets[r] : send_offsets[r] + part.size] = part
    right = poison(recv_elems * kind.bytes).view(kind.numpy)
    for s in everyone:
        part = message_values(data, kind, s * world.ranks + world.rank, recv_counts[s])
        right[recv_offsets[s] : recv_offsets[s] + part.size] = part
    stream = world.streams[0]
    for codec in codecs_of_case(world.random("codecs of all_to_all_v", kind.name, how)):
        if suited(codec, kind) != codec:
            continue
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
            codec=forced(codec),
            stream=stream,
            dtype=kind.name,
        )
        world.place.finish(world.comm, stream)
        outcome.note(f"{where}, the input", source.read(0, 0, stream)[1])
        found, changed = target.read(0, right.nbytes, stream)
        outcome.note(f"{where}, the output", changed)
        received, wanted = found.view(kind.numpy), right.copy()
        for first, count in zip(recv_offsets, recv_counts, strict=True):
            part = slice(first, first + count)
            margins = tolerance.of_call("all_to_all_v", codec, kind, "sum", [right[part]])
            if margins is not None:
                error = difference(received[part], right[part], kind, nan_is_nan=False, tolerances=margins)
                outcome.note(f"{where}, counts {recv_counts} at {recv_offsets}", error)
                wanted[part] = received[part]
        error = difference(received, wanted, kind, nan_is_nan=False)
        outcome.note(f"{where}, counts {recv_counts} at {recv_offsets}", error)
    return outcome


def _placed(counts: list[int], rng: random.Random) -> tuple[list[int], int]:
    """Offsets of the parts, in any order and with gaps, and the total length."""
    offsets, end = [0] * len(counts), 0
    for i in rng.sample(range(len(counts)), len(counts)):
        end += rng.choice((0, 1, 5))
        offsets[i] = end
        end += counts[i]
    return offsets, end + 1


# Groups.


_GROUPS = (
    "a ring",
    "everyone to everyone",
    "many of all types and codecs between any two",
    "all types that codecs shrink at once",
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
    yield from orders(world)
    yield "groups in groups, and collectives among sends", functools.partial(_check_mixed, world)
    yield "sends on one stream, receives on another", functools.partial(_check_group, world, "any", "streams", True)


def _check_group(world: World, name: str, salt: object = 0, two_streams: bool = False) -> Outcome:
    outcome = Outcome()
    place, stream = world.place, world.streams[0]
    other = world.streams[1] if two_streams else None
    place.reset()
    own = world.random("groups", name, salt, own=True)
    # `any` is a different one for each salt.
    messages = messages_of(dataclasses.replace(world, seed=hash_of(world.seed, salt)), name)
    mailbox = Mailbox(world, messages, own, stream)
    with narrowcast.group():
        mailbox.post(world.comm, own, other)
    if other is not None:
        place.wait(other)
    place.finish(world.comm, stream)
    mailbox.check(outcome)
    return outcome


def hash_of(*words: object) -> int:
    return random.Random(repr(words)).getrandbits(32)


def _check_mixed(world: World) -> Outcome:
    """Sends and receives run last, wherever they are in the group."""
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
        raw, right = call.sent(sample, world.rank), expected(call, sample, 0, world.hosts)
        source, target = Guarded(place, raw.nbytes), Guarded(place, right.nbytes)
        calls.append((call, source.lay(raw, 0, stream), target.lay(poison(right.nbytes), 0, stream), target, right))
    with narrowcast.group():
        calls[0][0].run(comm, calls[0][1], calls[0][2], codec=forced("window"), stream=stream)
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
