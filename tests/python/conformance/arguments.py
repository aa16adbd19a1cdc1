"""Invalid arguments raise an error of that call only. The communicator remains usable."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import narrowcast
import numpy as np
from narrowcast._native.library import check, library
from narrowcast.types import value_type

from .operations import Choice
from .operations import check as check_call
from .world import Cases, Outcome, World

_FP32 = value_type("float32")
_AFTER = Choice("all_reduce", _FP32, "sum", "normal", 1000, 0)


class _Elsewhere:
    """An array in memory of the wrong kind for the communicator."""

    def __init__(self) -> None:
        self.__cuda_array_interface__ = {"shape": (12,), "typestr": "<f4", "data": (4096, False), "version": 3}


def arguments(world: World) -> Cases:
    for name, message, call in _rejected(world):
        yield f"rejected: {name}", functools.partial(_check, world, message, call)
    yield "a group with a rejected call runs nothing", functools.partial(_group, world)
    yield "later calls work", functools.partial(check_call, world, "arguments", _AFTER)


def _rejected(world: World) -> list[tuple[str, str, Callable[[], Any]]]:
    place, comm, ranks = world.place, world.comm, world.ranks
    place.reset()
    memory = place.carve(1 << 16)
    options: dict[str, Any] = {"dtype": "float32", "stream": world.streams[0]}
    if place.backend == "host":
        elsewhere: Any = _Elsewhere()
        other_stream: Any = 7
        memory_message, stream_message = "GPU memory", "not a narrowcast.Stream"
    else:
        elsewhere, other_stream = np.zeros(12, np.float32), narrowcast.Stream()
        memory_message, stream_message = "host memory", "host backend"

    def values(first: int, elems: int) -> Any:
        return place.part(memory, first, 4 * elems)

    def raw_call(send: int | None, recv: int | None, **changed: int) -> None:
        """Calls the library directly, with arguments that the bindings would reject."""
        given = {"count": 12, "dtype": _FP32.number, "op": 0, "codec": 0, **changed}
        handle = world.streams[0].handle
        check(library().ncast_all_reduce(send, recv, *given.values(), comm.handle, handle))

    def no_communicator() -> None:
        check(library().ncast_all_reduce(at, at, 1, _FP32.number, 0, 0, None, None))

    at = place.address(memory)
    out = 32 << 10
    return [
        ("NULL to read", "send is NULL", lambda: raw_call(None, at)),
        ("NULL to write", "recv is NULL", lambda: raw_call(at, None)),
        ("an unknown type", "dtype is 99", lambda: raw_call(at, at, dtype=99)),
        ("an unknown reduction", "op is 17", lambda: raw_call(at, at, op=17)),
        ("an unknown codec id", "codec is 77", lambda: raw_call(at, at, codec=77)),
        ("too many values", "exceeds the address space", lambda: raw_call(at, at, count=1 << 62)),
        ("no communicator", "comm is NULL", no_communicator),
        ("misaligned values", "aligned", lambda: comm.all_reduce(values(2, 12), values(out, 12), **options)),
        (
            "a misaligned result",
            "aligned",
            lambda: comm.all_gather(values(0, 3), values(out + 1, 3 * ranks), **options),
        ),
        ("overlap", "overlap", lambda: comm.all_reduce(values(0, 12), values(4, 12), **options)),
        (
            "the part of another rank",
            "overlap",
            lambda: comm.all_gather(values(12 * ((world.rank + 1) % ranks), 3), values(0, 3 * ranks), **options),
        ),
        ("all_to_all in place", "overlap", lambda: comm.all_to_all(values(0, ranks), values(0, ranks), **options)),
        (
            "parts that overlap",
            "overlap",
            lambda: comm.all_to_all_v(
                values(0, ranks), values(out, ranks), [1] * ranks, [1] * ranks, recv_offsets=[0] * ranks, **options
            ),
        ),
        ("another kind of memory", memory_message, lambda: comm.all_reduce(elsewhere, stream=world.streams[0])),
        (
            "another kind of stream",
            stream_message,
            lambda: comm.all_reduce(values(0, 12), stream=other_stream, dtype="float32"),
        ),
        ("no such peer", "peer", lambda: comm.send(values(0, 3), ranks, **options)),
        ("no such root", "root", lambda: comm.broadcast(values(0, 3), root=-1, **options)),
        ("a single send to itself", "itself", lambda: comm.send(values(0, 3), world.rank, **options)),
        ("another size", "out holds", lambda: comm.all_reduce(values(0, 3), values(out, 4), **options)),
        ("auto, forced", "auto cannot be forced", lambda: comm.all_reduce(values(0, 3), codec="auto!", **options)),
        (
            "a lossy codec for extremes",
            r"all_reduce \(max\) of float32 cannot use codec int8",
            lambda: comm.all_reduce(values(0, 3), op="max", codec="int8", **options),
        ),
        (
            "a lossy codec for integers",
            "all_gather of int32 cannot use codec int4!",
            lambda: comm.all_gather(
                values(0, 3), values(out, 3 * ranks), codec="int4!", **{**options, "dtype": "int32"}
            ),
        ),
        ("an unknown codec", "is not a codec", lambda: comm.all_reduce(values(0, 3), codec="zip", **options)),
    ]


def _check(world: World, message: str, call: Callable[[], Any]) -> Outcome:
    outcome = Outcome()
    try:
        call()
        outcome.note("", "no error")
    except (ValueError, TypeError) as error:
        if not re.search(message, str(error)):
            outcome.note("", f"the message {str(error)!r} does not contain {message!r}")
    world.place.finish(world.comm, world.streams[0])
    return outcome


def _group(world: World) -> Outcome:
    outcome = Outcome()
    place, stream = world.place, world.streams[0]
    place.reset()
    memory = place.carve(4096)
    place.write(memory, np.zeros(4096, np.uint8), stream)
    one, other = place.part(memory, 0, 400), place.part(memory, 2048, 400)
    place.write(one, np.full(400, 1, np.uint8), stream)
    try:
        with narrowcast.group():
            world.comm.all_reduce(one, other, dtype="uint8", stream=stream)
            library().ncast_all_reduce(None, None, 1, 7, 0, 0, world.comm.handle, stream.handle)
        outcome.note("", "no error")
    except narrowcast.InvalidArgumentError as error:
        if "no call of the group was launched" not in str(error):
            outcome.note("", f"unexpected message {str(error)!r}")
    place.finish(world.comm, stream)
    if place.read(other, stream).any():
        outcome.note("", "a call of the group has run")
    return outcome
