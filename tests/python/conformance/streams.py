"""Calls run in stream order, without synchronisation by the user."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import narrowcast
import numpy as np
from narrowcast._native.codecs import forced
from narrowcast.types import value_type

from .guarded import Guarded
from .messages import Mailbox, messages_of
from .operations import Choice, expected, tolerances
from .values import difference, poison, pool
from .world import Cases, Outcome, World, codecs, exact, suited

_BF16, _FP32, _INT32 = value_type("bfloat16"), value_type("float32"), value_type("int32")


class Pending:
    """A call with its own buffers, launched now and checked later."""

    def __init__(self, world: World, choice: Choice, variant: int, codec: str) -> None:
        self._choice, self._codec = choice, codec
        self._call, sample = choice.call(world.rank, world.ranks), pool(choice.data, choice.kind.name)
        raw = self._call.sent(sample, world.rank, variant)
        self._right = expected(self._call, sample, variant, world.hosts) if self._call.has_result else None
        self._tolerances = tolerances(self._call, sample, variant, codec) if self._call.has_result else None
        self._out_bytes = self._call.recv_elems * choice.kind.bytes
        source, self._target = Guarded(world.place, raw.nbytes), Guarded(world.place, self._out_bytes)
        stream = world.streams[0]
        self._values = source.lay(raw, 0, stream)
        self._out = self._target.lay(poison(self._out_bytes), 0, stream)
        world.place.wait(stream)

    def launch(self, comm: narrowcast.Communicator, stream: Any) -> None:
        self._call.run(comm, self._values, self._out, codec=forced(self._codec), stream=stream)

    def check(self, outcome: Outcome, where: str) -> None:
        """Compares the result. The stream must be idle."""
        where = f"{where}, {self._codec} {self._choice.name}"
        found, changed = self._target.read(0, self._out_bytes if self._right is not None else 0)
        outcome.note(where, changed)
        if self._right is not None:
            values = found.view(self._choice.kind.numpy)
            outcome.note(
                where,
                difference(values, self._right, self._choice.kind, nan_is_nan=True, tolerances=self._tolerances),
            )


def _choices(world: World, salt: str, count: int, most: int = 70_000) -> list[tuple[Choice, str]]:
    """Different calls, small and large."""
    rng = world.random("streams", salt)
    operations = ("all_reduce", "all_gather", "reduce_scatter", "sendrecv", "broadcast", "all_to_all", "gather")
    chosen = [
        (
            Choice(
                rng.choice(operations),
                rng.choice((_BF16, _BF16, _FP32, _INT32)),
                rng.choice(("sum", "max", "avg")),
                rng.choice(("weights", "normal")),
                rng.choice((1, 33, 1000, 4097, most)),
                rng.randrange(world.ranks),
            ),
            rng.choice(codecs()),
        )
        for _ in range(count)
    ]
    return [(choice, suited(codec, choice.kind, choice.op)) for choice, codec in chosen]


def _prepared(world: World, salt: str, count: int, most: int = 70_000) -> list[Pending]:
    chosen = _choices(world, salt, count, most)
    return [Pending(world, choice, variant, codec) for variant, (choice, codec) in enumerate(chosen)]


def streams(world: World) -> Cases:
    yield "calls on two streams in turn", functools.partial(_in_turn, world)
    yield "each call reads the result of the previous one on another stream", functools.partial(_chain, world)
    yield "200 calls back to back", functools.partial(_back_to_back, world)
    yield "two communicators on two streams at once", functools.partial(_two_communicators, world)
    yield "a group over two communicators", functools.partial(_group_over_two, world)
    if world.place.backend == "cuda":
        yield "200 calls with the same buffers, refilled on the stream", functools.partial(_refilled, world)
        yield "large calls of two communicators, in another order on each rank", functools.partial(_crossed, world)


def _finish(world: World) -> None:
    for stream in world.streams:
        for comm in world.comms:
            world.place.finish(comm, stream)


def _in_turn(world: World) -> Outcome:
    outcome = Outcome()
    world.place.reset()
    calls = _prepared(world, "in turn", 60 if world.thorough else 20)
    for i, call in enumerate(calls):
        call.launch(world.comm, world.streams[i % 2])
    _finish(world)
    for i, call in enumerate(calls):
        call.check(outcome, f"call {i}")
    return outcome


def _chain(world: World) -> Outcome:
    """Values move around the ring, one step for each call."""
    outcome = Outcome()
    place = world.place
    place.reset()
    steps, before, after = 24, (world.rank - 1) % world.ranks, (world.rank + 1) % world.ranks
    for count in (40, 30_001):
        sample = pool("weights", "bfloat16")
        start = [Choice("sendrecv", _BF16, "sum", "weights", count, 0).call(r, world.ranks) for r in range(world.ranks)]
        own = start[world.rank].sent(sample, world.rank, count)
        buffers = [Guarded(place, own.nbytes) for _ in range(steps + 1)]
        arrays = [
            buffer.lay(own if i == 0 else poison(own.nbytes), 2 * (i % 8), world.streams[0])
            for i, buffer in enumerate(buffers)
        ]
        place.wait(world.streams[0])
        for i in range(steps):
            options = {"codec": forced(exact()[i % len(exact())]), "stream": world.streams[i % 2], "dtype": "bfloat16"}
            with narrowcast.group():
                world.comm.send(arrays[i], after, **options)
                world.comm.recv(arrays[i + 1], before, **options)
        _finish(world)
        for i, buffer in enumerate(buffers):
            first = (world.rank - i) % world.ranks
            found, changed = buffer.read(0, own.nbytes)
            right = start[first].sent(sample, first, count)
            outcome.note(f"{count} values, step {i}", changed)
            outcome.note(f"{count} values, step {i}", difference(found.view(np.uint16), right, _BF16, nan_is_nan=False))
    return outcome


def _back_to_back(world: World) -> Outcome:
    outcome = Outcome()
    world.place.reset()
    calls = _prepared(world, "back to back", 200, 20_000)
    for call in calls:
        call.launch(world.comm, world.streams[0])
    _finish(world)
    for i, call in enumerate(calls):
        call.check(outcome, f"call {i}")
    return outcome


def _two_communicators(world: World) -> Outcome:
    outcome = Outcome()
    world.place.reset()
    calls = [_prepared(world, f"of {i}", 60 if world.thorough else 20) for i in range(2)]
    for pair in zip(*calls, strict=True):
        for call, comm, stream in zip(pair, world.comms, world.streams, strict=True):
            call.launch(comm, stream)
    _finish(world)
    for which, its_calls in enumerate(calls):
        for i, call in enumerate(its_calls):
            call.check(outcome, f"communicator {which}, call {i}")
    return outcome


def _crossed(world: World) -> Outcome:
    """Every GPU starts a call of a different communicator before it waits for the others."""
    outcome = Outcome()
    # With this many values every warp of a GPU has several blocks, so that the kernel occupies the whole GPU.
    kinds = [("all_reduce", "window", 16), ("all_to_all", "raw", 4), ("reduce_scatter", "window", 4)]
    kinds += [("all_gather", "window", 4), ("all_reduce", "raw", 16)]
    kinds = [(name, codec, count * (1_000_000 if world.thorough else 125_000)) for name, codec, count in kinds]
    for pair in itertools.combinations_with_replacement(kinds, 2):
        world.place.reset()
        calls = [
            Pending(world, Choice(name, _BF16, "sum", "weights", count, 0), variant, codec)
            for variant, (name, codec, count) in enumerate(pair)
        ]
        for i in (0, 1) if world.rank % 2 == 0 else (1, 0):
            calls[i].launch(world.comms[i], world.streams[i])
        _finish(world)
        for call, (name, codec, _) in zip(calls, pair, strict=True):
            call.check(outcome, f"{codec} {name} beside {[kind[:2] for kind in pair]}")
    return outcome


def _group_over_two(world: World) -> Outcome:
    outcome = Outcome()
    world.place.reset()
    own = world.random("over two", own=True)
    boxes = [
        Mailbox(world, messages_of(world, name), own, world.streams[0])
        for name in ("everyone to everyone", "many of all types and codecs between any two")
    ]
    with narrowcast.group():
        for box, comm in zip(boxes, world.comms, strict=True):
            box.post(comm, own)
    _finish(world)
    for i, box in enumerate(boxes):
        box.check(outcome, f"communicator {i}")
    return outcome


def _refilled(world: World) -> Outcome:
    """Inputs and outputs are copied on the stream."""
    outcome = Outcome()
    place, stream = world.place, world.streams[0]
    variants, calls = 10, 200 if world.thorough else 40
    for count, codec in ((500, "raw"), (20_000, "window")):
        place.reset()
        choice = Choice("all_reduce", _BF16, "sum", "weights", count, 0)
        call, sample = choice.call(world.rank, world.ranks), pool("weights", "bfloat16")
        inputs = np.concatenate([call.sent(sample, world.rank, i) for i in range(variants)])
        size = call.send_elems * 2
        source, slots = place.carve(inputs.nbytes), place.carve(calls * size)
        values, out = place.carve(size), place.carve(size)
        place.write(source, inputs.view(np.uint8), stream)
        for i in range(calls):
            values.copy_from(source, i % variants * size, stream)
            call.run(world.comm, values, out, codec=forced(codec), stream=stream)
            place.part(slots, i * size, size).copy_from(out, 0, stream)
        place.finish(world.comm, stream)
        found = place.read(slots, stream).view(np.uint16)
        for i in range(calls):
            right = expected(call, sample, i % variants, world.hosts)
            error = difference(found[i * count : (i + 1) * count], right, _BF16, nan_is_nan=True)
            outcome.note(f"{codec} {choice.name}, call {i}", error)
    return outcome
