"""Sends and receives that ranks group differently, or make in a different order."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random

import narrowcast
from narrowcast._native.codecs import forced
from narrowcast.types import value_type

from .guarded import Guarded
from .messages import Mailbox, Message, messages_of
from .operations import Choice, expected
from .values import difference, poison, pool
from .world import Cases, Outcome, World, codecs, exact


def orders(world: World) -> Cases:
    for grouped in ("sends", "receives"):
        yield f"only {grouped} are grouped", functools.partial(_check_unequal, world, grouped)
    yield "only rank 0 groups what goes both ways", functools.partial(_check_pairs, world)
    for way, messages in _ORDERS.items():
        if max(map(max, messages)) < world.ranks:
            yield f"only rank 0 groups {way}", functools.partial(_check_order, world, messages)
    yield "only rank 0 groups a collective and what it sends", functools.partial(_check_collective_grouped, world)
    if world.ranks > 2:
        defaults = [*(codec for codec in exact() if codec != "auto"), "int6"]
        for codec, waiting in itertools.product(defaults, (1, 2)):
            yield (
                f"rank {waiting} waits for another receiver, {codec}",
                functools.partial(_check_waiting, world, codec, waiting),
            )


def _check_unequal(world: World, grouped: str) -> Outcome:
    """Rank 0 sends several messages to each other rank. One side groups all its calls, the other none."""
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


def _grouped_by_rank_0(world: World, mailboxes: list[Mailbox], own: random.Random) -> Outcome:
    """Other ranks receive the messages of one mailbox after those of another."""
    outcome = Outcome()
    with narrowcast.group() if world.rank == 0 else contextlib.nullcontext():
        for mailbox in mailboxes:
            mailbox.post(world.comm, own)
    world.place.finish(world.comm, world.streams[0])
    for mailbox in mailboxes:
        mailbox.check(outcome)
    return outcome


def _check_pairs(world: World) -> Outcome:
    """Rank 0 exchanges messages with all others in one group. They make one pair of calls at a time."""
    stream = world.streams[0]
    world.place.reset()
    rng, own = world.random("pairs"), world.random("pairs", own=True)
    kinds = [value_type("bfloat16")] * 3 + [value_type("float32")]
    numbers = iter(range(1 << 30))

    def message(sender: int, receiver: int) -> Message:
        count = rng.choice((0, 1, 2048, 5000, 40_000))
        return Message(sender, receiver, rng.choice(kinds), rng.choice(codecs()), "weights", count, next(numbers))

    pairs = [(message(0, r), message(r, 0)) for _ in range(60) for r in range(1, world.ranks)]
    mailboxes = [Mailbox(world, list(pair), own, stream) for pair in pairs]
    return _grouped_by_rank_0(world, mailboxes, own)


# Messages (sender, receiver) in an order in which ranks other than 0 can handle them one by one.
_ORDERS = {
    "two that it sends and one that comes back": ((0, 1), (0, 1), (1, 0)),
    "two that come and one that it sends": ((1, 0), (1, 0), (0, 1)),
    "what goes to two ranks, one of which waits for the other": ((0, 1), (0, 1), (1, 2), (0, 2)),
}


def _exceeding_staging(world: World) -> int:
    """The number of 2-byte values of a message that the staging between two ranks does not hold, even encoded."""
    return 3_000_001 if world.place.backend == "host" else 12_000_001


def _check_order(world: World, messages: tuple[tuple[int, int], ...]) -> Outcome:
    """Messages that exceed the staging between two ranks wait for their receivers."""
    stream = world.streams[0]
    world.place.reset()
    own = world.random("order", own=True)
    bf16, count = value_type("bfloat16"), _exceeding_staging(world)
    mailboxes = [
        Mailbox(world, [Message(*ends, bf16, codecs()[i % len(codecs())], "weights", count, i)], own, stream)
        for i, ends in enumerate(messages)
    ]
    return _grouped_by_rank_0(world, mailboxes, own)


def _check_collective_grouped(world: World) -> Outcome:
    """Other ranks make a collective first and then receive."""
    outcome = Outcome()
    place, stream = world.place, world.streams[0]
    place.reset()
    own = world.random("collective grouped", own=True)
    mailbox = Mailbox(world, messages_of(world, "one way"), own, stream)
    call = Choice("all_reduce", value_type("bfloat16"), "sum", "weights", 200_001, 0).call(world.rank, world.ranks)
    sample = pool("weights", call.kind.name)
    raw, right = call.sent(sample, world.rank), expected(call, sample, 0, world.hosts)
    source, target = Guarded(place, raw.nbytes), Guarded(place, right.nbytes)
    inputs, results = source.lay(raw, 0, stream), target.lay(poison(right.nbytes), 0, stream)
    with narrowcast.group() if world.rank == 0 else contextlib.nullcontext():
        if world.rank == 0:
            mailbox.post(world.comm, own)
        call.run(world.comm, inputs, results, codec=forced("window"), stream=stream)
        if world.rank != 0:
            mailbox.post(world.comm, own)
    place.finish(world.comm, stream)
    mailbox.check(outcome)
    found, changed = target.read(0, right.nbytes, stream)
    outcome.note("all_reduce", changed)
    outcome.note("all_reduce", difference(found.view(call.kind.numpy), right, call.kind, nan_is_nan=True))
    return outcome


def _check_waiting(world: World, codec: str, waiting: int) -> Outcome:
    """Rank 0 sends to ranks 1 and 2 in a group, more than the staging between two ranks holds. One of them receives it
    only after a message that the other one sends after its own receive."""
    outcome = Outcome()
    stream = world.streams[0]
    world.place.reset()
    own = world.random("waiting", own=True)
    bf16, first, count = value_type("bfloat16"), 3 - waiting, _exceeding_staging(world)
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
