"""Registered memory: identical results with direct writes, for any part of the memory of any rank."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import narrowcast
import numpy as np
from narrowcast.types import value_type

from .exchanges import all_to_all_v, groups
from .graphs import replayed
from .operations import Choice
from .operations import check as check_call
from .world import Cases, Outcome, World

_BF16, _FP32, _INT8 = value_type("bfloat16"), value_type("float32"), value_type("int8")
_MOVES = ("sendrecv", "all_gather", "all_to_all", "broadcast", "scatter", "gather")
_SEQUENCE = (
    (Choice("sendrecv", _BF16, "sum", "weights", 2_200_003, 0), "raw", False),
    (Choice("all_gather", _FP32, "sum", "normal", 1_100_003, 0), "raw", False),
)


def registration(world: World) -> Cases:
    over_host = os.environ.get("NARROWCAST_P2P") == "0" or "NARROWCAST_HOSTID" in os.environ  # several hosts
    if world.place.backend == "host" or over_host:
        yield (
            "rejected: ranks cannot access each other's memory",
            functools.partial(_rejected, world, UNSUPPORTED, lambda: world.place.whole),
        )
        return
    for name, error, memory in _refusals(world):
        yield f"rejected: {name}", functools.partial(_rejected, world, error, memory)
    whole = world.place.whole
    half = world.place.part(whole, 0, whole.count_bytes // 2 - 1000)
    parts: dict[str, Any] = {
        "all of it": whole,
        "part of it, and none of the last rank's": None if world.rank == world.ranks - 1 else half,
    }
    for which, part in parts.items():
        registered = world.comm.register(part)
        other = world.comm.register(world.place.part(whole, 4096, 8192))
        for case, run in _calls(world):
            yield f"{case}, registered: {which}", run
        other.close()
        registered.close()
        registered.close()
    yield from _calls(world)


def _calls(world: World) -> Cases:
    """Calls that move values as blocks, some large enough to be written directly to registered memory."""
    for operation in _MOVES:
        for kind, count in ((_BF16, 2_200_003), (_INT8, 5_000_001)):
            choice = Choice(operation, kind, "sum", "random", count, world.ranks - 1)
            yield choice.name, functools.partial(check_call, world, "registration", choice)
    yield from all_to_all_v(world)
    yield from groups(world)
    if world.amount != "few":
        # Not with threads, because a capture of one thread blocks the others.
        yield "a graph of moves, replayed", functools.partial(replayed, world, _SEQUENCE, 10 if world.thorough else 5)


UNSUPPORTED, INVALID = narrowcast.UnsupportedError, narrowcast.InvalidArgumentError


def _refusals(world: World) -> list[tuple[str, type[Exception], Callable[[], Any]]]:
    """An error on one rank is reported to the others, and the communicator remains usable."""
    last = world.rank == world.ranks - 1
    whole = world.place.whole
    host = np.zeros(4096, np.uint8)
    return [
        ("host memory", INVALID, lambda: _At(host.ctypes.data, 4096) if last else whole),
        ("more than was allocated", INVALID, lambda: _At(whole.pointer, 1 << 38) if last else whole),
        ("nothing at an address", INVALID, lambda: _At(1 << 40, 4096) if last else None),
    ]


class _At:
    """An array of bytes that claims to be on a GPU."""

    def __init__(self, pointer: int, count_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (count_bytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
        }


def _rejected(world: World, error: type[Exception], memory: Callable[[], Any]) -> Outcome:
    outcome = Outcome()
    try:
        world.comm.register(memory()).close()
        outcome.note("", "nothing was raised")
    except error as raised:
        if error is INVALID and f"rank {world.ranks - 1}" not in str(raised):
            outcome.note("", f"the message does not name the rank: {raised}")
    return outcome
