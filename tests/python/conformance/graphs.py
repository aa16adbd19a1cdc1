"""Calls captured in CUDA graphs and replayed with new inputs."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import narrowcast
import numpy as np
from narrowcast import Counters, OperationCounters
from narrowcast._native.codecs import forced
from narrowcast._native.cuda_driver import Graph
from narrowcast.types import value_type

from .operations import Choice, expected
from .streams import Pending, _choices
from .values import difference, poison, pool
from .world import Cases, Outcome, World

_VARIANTS = 7
_BF16, _FP32, _INT32 = value_type("bfloat16"), value_type("float32"), value_type("int32")

# Small and large calls, as packets and as blocks, coded and raw; the last all_reduce is in place.
_SEQUENCE = (
    (Choice("all_reduce", _BF16, "sum", "weights", 1000, 0), "raw", False),
    (Choice("all_reduce", _BF16, "sum", "weights", 150_001, 0), "window", False),
    (Choice("all_gather", _FP32, "sum", "normal", 5003, 0), "auto", False),
    (Choice("sendrecv", _BF16, "sum", "weights", 60_007, 0), "window", False),
    (Choice("reduce_scatter", _BF16, "avg", "weights", 20_011, 0), "window", False),
    (Choice("broadcast", _INT32, "sum", "random", 33, 1), "raw", False),
    (Choice("all_to_all", _BF16, "sum", "weights", 30_000, 0), "window", False),
    (Choice("reduce", _FP32, "max", "normal", 70_001, 0), "raw", False),
    (Choice("scatter", _BF16, "sum", "weights", 9001, 1), "window", False),
    (Choice("gather", _FP32, "sum", "random", 2049, 0), "window", False),
    (Choice("all_reduce", _FP32, "sum", "normal", 3000, 0), "auto", True),
)


class Repeated:
    """A call with a different input for each replay, and its results."""

    def __init__(self, world: World, choice: Choice, codec: str, in_place: bool, replays: int) -> None:
        self._choice, self._codec, self._place = choice, codec, world.place
        self._call, self._sample = choice.call(world.rank, world.ranks), pool(choice.data, choice.kind.name)
        place, stream = world.place, world.streams[0]
        inputs = [self._call.sent(self._sample, world.rank, i) for i in range(_VARIANTS)]
        self._in_bytes, self._out_bytes = inputs[0].nbytes, self._call.recv_elems * choice.kind.bytes
        self._inputs, self._results = place.carve(_VARIANTS * self._in_bytes), place.carve(replays * self._out_bytes)
        self._values = place.carve(self._in_bytes)
        self._out = self._values if in_place else place.carve(self._out_bytes)
        place.write(self._inputs, np.concatenate(inputs).view(np.uint8), stream)
        place.write(self._values, inputs[0].view(np.uint8), stream)
        if not in_place:
            place.write(self._out, poison(self._out_bytes), stream)
        self._right = [expected(self._call, self._sample, i, world.hosts) for i in range(_VARIANTS)]

    def run(self, comm: narrowcast.Communicator, stream: Any) -> None:
        self._call.run(comm, self._values, self._out, codec=forced(self._codec), stream=stream)

    def refill(self, replay: int, stream: Any) -> None:
        self._values.copy_from(self._inputs, replay % _VARIANTS * self._in_bytes, stream)

    def keep(self, replay: int, stream: Any) -> None:
        slot = self._place.part(self._results, replay * self._out_bytes, self._out_bytes)
        slot.copy_from(self._out, 0, stream)

    def check(self, outcome: Outcome, replays: int, stream: Any) -> None:
        if not self._call.has_result:
            return
        kind = self._choice.kind
        found = self._place.read(self._results, stream).view(kind.numpy)
        count = self._call.recv_elems
        for i in range(replays):
            error = difference(found[i * count : (i + 1) * count], self._right[i % _VARIANTS], kind, nan_is_nan=True)
            outcome.note(f"{self._codec} {self._choice.name}, replay {i}", error)


def _captured(world: World, comm: narrowcast.Communicator, calls: list[Repeated], stream: Any) -> Graph:
    """Makes the calls once directly, as is usual before a capture, then captures them."""
    for call in calls:
        call.run(comm, stream)
    world.place.finish(comm, stream)
    with stream.capture() as graph:
        for call in calls:
            call.run(comm, stream)
    return graph


def graphs(world: World) -> Cases:
    yield (
        "a graph of many operations, replayed",
        functools.partial(replayed, world, _SEQUENCE, 100 if world.thorough else 10),
    )
    yield "two graphs and direct calls in turn", functools.partial(_by_turns, world)
    yield "captured in one of two communicators", functools.partial(_one_of_two, world)


def _replay(graph: Graph, calls: list[Repeated], replay: int, stream: Any) -> None:
    for call in calls:
        call.refill(replay, stream)
    graph.launch(stream)
    for call in calls:
        call.keep(replay, stream)


def replayed(world: World, sequence: Sequence[tuple[Choice, str, bool]], replays: int) -> Outcome:
    """One graph of several calls: operation, codec, in place."""
    outcome = Outcome()
    world.place.reset()
    stream = world.streams[0]
    calls = [Repeated(world, *one, replays) for one in sequence]
    before = world.comm.counters()
    graph = _captured(world, world.comm, calls, stream)
    made = world.comm.counters()
    for replay in range(replays):
        _replay(graph, calls, replay, stream)
    world.place.finish(world.comm, stream)
    for error in _miscounted(world, sequence, replays, before, made):
        outcome.note("what was sent", error)
    for call in calls:
        call.check(outcome, replays, stream)
    graph.close()
    return outcome


def _miscounted(
    world: World, sequence: Sequence[tuple[Choice, str, bool]], replays: int, before: Counters, made: Counters
) -> Iterator[str]:
    """made: counters after the direct calls and the capture."""
    nothing = OperationCounters(0, 0, 0)
    for name, last in world.comm.counters().operations.items():
        first, once = before.operations.get(name, nothing), made.operations[name]
        raw_bytes, again = once.raw_bytes - first.raw_bytes, last.raw_bytes - once.raw_bytes
        # Calls with packets count when they are made, and not in replays. Coded calls use blocks; with two levels, some
        # of their parts may use packets.
        codecs = {codec for choice, codec, _ in sequence if choice.operation in (name, name + "recv")}
        all_count = codecs == {"window"} and not world.two_levels
        if again != replays * raw_bytes if all_count else again % replays or again > replays * raw_bytes:
            yield f"{name}: {raw_bytes} bytes of values, and {again} in {replays} replays"
        if (last.wire_bytes > once.wire_bytes) != (again > 0):
            yield f"{name}: {last.wire_bytes - once.wire_bytes} bytes on the link in {replays} replays"
        if last.calls != once.calls:
            yield f"{name}: {last.calls - once.calls} calls in {replays} replays"


def _by_turns(world: World) -> Outcome:
    outcome = Outcome()
    world.place.reset()
    stream, replays = world.streams[0], 20 if world.thorough else 4
    parts = [[Repeated(world, *one, replays) for one in _SEQUENCE[i::2]] for i in range(2)]
    made = [_captured(world, world.comm, calls, stream) for calls in parts]
    chosen = _choices(world, "beside graphs", replays)
    beside = [Pending(world, choice, i, codec) for i, (choice, codec) in enumerate(chosen)]
    for replay in range(replays):
        for graph, calls in zip(made, parts, strict=True):
            _replay(graph, calls, replay, stream)
        beside[replay].launch(world.comm, stream)
    world.place.finish(world.comm, stream)
    for calls in parts:
        for call in calls:
            call.check(outcome, replays, stream)
    for i, one in enumerate(beside):
        one.check(outcome, f"beside replay {i}")
    for graph in made:
        graph.close()
    return outcome


def _one_of_two(world: World) -> Outcome:
    """A second communicator makes calls on another stream during the capture and the replays."""
    outcome = Outcome()
    place, (stream, other) = world.place, world.streams
    place.reset()
    replays = 20 if world.thorough else 4
    calls = [Repeated(world, *one, replays) for one in _SEQUENCE[:6]]
    chosen = _choices(world, "of the other", 2 * replays)
    beside = [Pending(world, choice, i, codec) for i, (choice, codec) in enumerate(chosen)]
    for call in calls:
        call.run(world.comms[0], stream)
    # Kernels are loaded at their first launch, which must not happen during a capture.
    for one in beside:
        one.launch(world.comms[1], other)
    place.finish(world.comms[0], stream)
    place.finish(world.comms[1], other)
    with stream.capture() as graph:
        for i, call in enumerate(calls):
            call.run(world.comms[0], stream)
            beside[i % replays].launch(world.comms[1], other)
    for replay in range(replays):
        _replay(graph, calls, replay, stream)
        beside[replays + replay].launch(world.comms[1], other)
    place.finish(world.comms[0], stream)
    place.finish(world.comms[1], other)
    for call in calls:
        call.check(outcome, replays, stream)
    for i, one in enumerate(beside):
        one.check(outcome, f"of the other communicator, call {i}")
    graph.close()
    return outcome
