"""Sums of values that each rank multiplies by a factor of its own, and sums with a codec of their own."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from narrowcast._bench import oracle
from narrowcast._bench.operations import Call
from narrowcast._native.codecs import forced
from narrowcast._native.operations import describe
from narrowcast.types import VALUE_TYPES, value_type

from . import tolerance
from .operations import Choice, make_call, reduced
from .values import difference, pool
from .world import Cases, Outcome, World, codecs_of_case, suited

_OPERATIONS = ("reduce", "reduce_scatter", "all_reduce")
# Partial and whole blocks, and of more than one turn.
_COUNTS = (1, 2047, 4096, 40_001)


def _factor_of(rank: int, ranks: int) -> float:
    """Some products are exact, some are rounded, and some change their sign."""
    return (1 / ranks, 0.5, -3.0, 1 / 3)[rank % 4]


@dataclass(frozen=True)
class _Scaled(Call):
    world: World | None = None
    in_memory: bool = False

    def run(self, comm: Any, values: Any, out: Any, *, codec: str, stream: Any = None) -> None:
        assert self.world is not None
        number: Any = _factor_of(self.rank, self.ranks)
        if self.in_memory:
            bits = oracle.narrow(np.array([number], _accumulator(self.kind)), self.kind)
            number = self.world.place.carve(self.kind.bytes)
            self.world.place.write(number, bits.view(np.uint8), stream)
        root = {"root": self.root} if describe(self.operation).has_root else {}
        options = {"codec": codec, "stream": stream, "dtype": self.kind.name, **root}
        getattr(comm, self.operation)(values, out, factor=number, **options)


def _accumulator(kind: Any) -> Any:
    return np.float64 if kind.name == "float64" else np.float32


# Codecs of contributions and of results.
_TWO_CODECS = (("int8", "int4:group=128,rotate=128"), ("int6", "raw"), ("raw", "mxfp8"))


def factors(world: World) -> Cases:
    """Every reduction, type of floats and count, with factors that are numbers and in memory."""
    for codecs in _TWO_CODECS:
        yield f"codecs {codecs[0]} and {codecs[1]}", functools.partial(_check_two_codecs, world, *codecs)
    cases = [
        (Choice(operation, kind, "sum", data, count, world.ranks - 1), in_memory)
        for operation in _OPERATIONS
        for kind in VALUE_TYPES
        if kind.is_float
        for count, data in zip(_COUNTS, ("normal", "weights", "normal", "weights"), strict=True)
        for in_memory in (False, True)
    ]
    step = 1 if world.thorough else 11 if world.hosts else 5  # the network carries bytes of any type
    for choice, in_memory in cases[world.ranks % step :: step]:
        name = f"{choice.name}, factor {'in memory' if in_memory else 'as a number'}"
        yield name, functools.partial(_check, world, choice, in_memory)


def _check(world: World, choice: Choice, in_memory: bool) -> Outcome:
    outcome, kind = Outcome(), choice.kind
    call = _Scaled(
        choice.operation,
        kind,
        choice.count,
        world.rank,
        world.ranks,
        root=choice.root,
        world=world,
        in_memory=in_memory,
    )
    sample = pool(choice.data, kind.name)
    rng = world.random("factors", choice.name)
    right, margins = [], {}
    chosen = [codec for codec in codecs_of_case(rng) if suited(codec, kind) == codec]
    for inputs in call.pieces(sample, 0) if call.has_result else []:
        scaled = [np.resize(_times(bits, _factor(rank, call), kind), call.count) for rank, bits in enumerate(inputs)]
        right.append(reduced(scaled, "sum", kind, world.hosts))
        for codec in chosen:
            margins.setdefault(codec, []).append(tolerance.of_call(choice.operation, codec, kind, "sum", scaled))
    for codec in chosen:
        for in_place in (False, True):
            where = f"{codec}{' in place' if in_place else ''}"
            sent, stream = call.sent(sample, call.rank, 0), world.streams[0]
            found = make_call(world, call, sent, codec, in_place, [0, 0], stream, outcome, where)
            if found is None or not right:
                continue
            bounds = None if margins[codec][0] is None else np.concatenate(margins[codec])
            outcome.note(where, difference(found, np.concatenate(right), kind, nan_is_nan=True, tolerances=bounds))
            if choice.operation == "all_reduce":
                outcome.same_everywhere(found)
    return outcome


@dataclass(frozen=True)
class _WithTwoCodecs(Call):
    result_codec: str | None = None

    def run(self, comm: Any, values: Any, out: Any, *, codec: str, stream: Any = None) -> None:
        result = self.result_codec and forced(self.result_codec)
        comm.all_reduce(values, out, codec=codec, result_codec=result, stream=stream, dtype=self.kind.name)


def _check_two_codecs(world: World, codec: str, result_codec: str) -> Outcome:
    """Results are within the bound of both codecs, and the link carries half of the bytes of each."""
    outcome, kind = Outcome(), value_type("bfloat16")
    sample, wire = pool("normal", kind.name), []
    # Whole blocks for each rank, so that the bytes do not depend on how values are divided.
    elems = 4 * 2048 * world.ranks
    for sent_as, returned_as in ((codec, result_codec), (codec, codec), (result_codec, result_codec)):
        call = _WithTwoCodecs("all_reduce", kind, elems, world.rank, world.ranks, result_codec=returned_as)
        (inputs,) = call.pieces(sample, 0)
        whole = [np.resize(one, elems) for one in inputs]
        where, stream = f"{sent_as} and {returned_as}", world.streams[0]
        before = world.comm.counters().wire_bytes
        sent = call.sent(sample, call.rank, 0)
        found = make_call(world, call, sent, sent_as, False, [0, 0], stream, outcome, where)
        wire.append(world.comm.counters().wire_bytes - before)
        if found is None:
            continue
        margins = tolerance.of_call("all_reduce", sent_as, kind, "sum", whole, result_codec=returned_as)
        right = reduced(whole, "sum", kind, world.hosts)
        outcome.note(where, difference(found, right, kind, nan_is_nan=True, tolerances=margins))
        outcome.same_everywhere(found)
    if "raw" not in (codec, result_codec):  # which packets may carry if both are
        outcome.note("bytes", None if 2 * wire[0] == wire[1] + wire[2] else f"{wire[0]} of {wire[1]} and {wire[2]}")
    return outcome


def _factor(rank: int, call: _Scaled) -> Any:
    number = np.array([_factor_of(rank, call.ranks)], _accumulator(call.kind))
    return oracle.widen(oracle.narrow(number, call.kind), call.kind)[0] if call.in_memory else number[0]


def _times(bits: Any, factor: Any, kind: Any) -> Any:
    with np.errstate(all="ignore"):
        return oracle.narrow(oracle.widen(bits, kind) * factor, kind)
