"""Calls send the bytes that their plans say."""

from __future__ import annotations

import functools
import itertools

from narrowcast._bench import operations
from narrowcast._bench.operations import describe
from narrowcast._native.codecs import forced
from narrowcast.plan import build
from narrowcast.types import value_type

from .operations import Choice, make_call
from .plan_traffic import Blocks, Frames, Medium, Packets, Sent, Values
from .plan_traffic import traffic as traffic_of
from .values import pool
from .world import Cases, Outcome, World

_CODECS = ("raw", "window")
_TYPES = ("float32", "bfloat16")
_COUNTS = (1, 257, 5_000, 100_000)
_LONG = 700_001
# The values of a micro-batch of the host backend with its default memory, as they are sent or accumulated.
_PART_BYTES = 256 << 10


def traffic(world: World) -> Cases:
    counts = (*_COUNTS, _LONG) if world.thorough else _COUNTS
    for operation, dtype, count in itertools.product(operations.names(), _TYPES, counts):
        choice = Choice(operation, value_type(dtype), "sum", "weights", count, world.ranks - 1)
        plan = world.comm.explain(operations.call_of(operation), count, dtype=dtype).plan
        if plan is not None and plan != "two_level":  # whose bytes test_hosts.py compares
            yield choice.name, functools.partial(_check, world, choice)


def _check(world: World, choice: Choice) -> Outcome:
    outcome = Outcome()
    sample, call = pool(choice.data, choice.kind.name), choice.call(world.rank, world.ranks)

    @functools.cache
    def inputs(rank: int) -> Values:
        return choice.call(rank, world.ranks).sent(sample, rank)

    for codec in _CODECS:
        before = world.comm.counters()
        make_call(world, call, inputs(world.rank), codec, False, [0, 0], world.streams[0], outcome, codec)
        after = world.comm.counters()
        found = Sent(after.raw_bytes - before.raw_bytes, after.wire_bytes - before.wire_bytes)
        name, medium = _medium(world, choice, codec)
        root = choice.root if describe(choice.operation).has_root else 0
        plan = build(name, choice.operation, world.ranks, root=root, codec=codec).model
        right = traffic_of(plan, inputs, choice.count, choice.kind, medium)[world.rank]
        outcome.note(f"{codec}, {name}", f"{found}, not {right}" if found != right else None)
    return outcome


def _medium(world: World, choice: Choice, codec: str) -> tuple[str, Medium]:
    """The plan that the call runs, and how it sends values."""
    root = choice.root if describe(choice.operation).has_root else 0
    said = world.comm.explain(choice.operation, choice.count, dtype=choice.kind, codec=forced(codec), root=root)
    assert said.plan is not None
    if said.packet_bytes is not None:
        return said.plan, Packets(said.packet_bytes)
    if said.block_bytes is not None:
        return said.plan, Blocks(codec, said.block_bytes)
    accumulates = describe(choice.operation).reduces
    return said.plan, Frames(codec, _PART_BYTES // (4 if accumulates else choice.kind.bytes))
