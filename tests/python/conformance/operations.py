"""Every operation, value type, reduction and codec, in place and not, around counts where the path changes."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from narrowcast._bench import operations, oracle
from narrowcast._bench.operations import Call, describe
from narrowcast._comm.explain import changes
from narrowcast._native.codecs import forced
from narrowcast.types import REDUCTIONS as OPS
from narrowcast.types import VALUE_TYPES, ValueType, value_type

from . import tolerance
from .guarded import Guarded
from .values import DATA, difference, poison, pool
from .world import Case, Cases, Outcome, World, codecs_of_case, suited

# A block has 4 KiB of values (float64: 8 KiB with window).
SMALL_COUNTS = (0, 1, 2, 3, 7, 100, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 6001)
KIB, MIB = 1 << 10, 1 << 20
# Larger calls are made either in place or not, but not both.
_BOTH_WAYS_BYTES = 4 * MIB
# Tolerances of more values take too much memory.
_MOST_BOUNDED_BYTES = 32 * MIB
# Larger changes of the path are tested elsewhere.
_MAX_SWITCH_BYTES = 16 * MIB


@dataclass(frozen=True)
class Choice:
    """The call of a case, the same on every rank."""

    operation: str
    kind: ValueType
    op: str
    data: str
    count: int
    root: int

    @property
    def name(self) -> str:
        op = f" {self.op}" if describe(self.operation).reduces else ""
        root = f", root {self.root}" if describe(self.operation).has_root else ""
        return f"{self.operation} {self.kind.name}{op}, {self.count} values, {self.data}{root}"

    def call(self, rank: int, ranks: int) -> Call:
        return Call(self.operation, self.kind, self.count, rank, ranks, op=self.op, root=self.root)


def reduced(inputs: Sequence[np.ndarray], op: str, kind: ValueType, hosts: Sequence[int]) -> np.ndarray:
    """The bits of a reduction. hosts: of the ranks, if there are several."""
    rounds = os.environ.get("NARROWCAST_PARTIAL_SUMS") == "rounded"
    return oracle.reduce(inputs, op, kind, hosts, rounds_partial_sums=rounds)


def expected(call: Call, sample: np.ndarray, variant: int, hosts: Sequence[int] = ()) -> np.ndarray:
    """The bits of the rank's output. hosts: of the ranks, if there are several."""
    parts = []
    for inputs in call.pieces(sample, variant):
        bits = reduced(inputs, call.op, call.kind, hosts) if describe(call.operation).reduces else inputs[0]
        parts.append(bits if bits.size == call.count else np.resize(bits, call.count))
    return np.concatenate(parts)


def tolerances(call: Call, sample: np.ndarray, variant: int, codec: str) -> np.ndarray | None:
    """How far the rank's output may be from `expected`; None: not at all."""
    if tolerance.bounded_type(codec, call.kind) is None:
        return None
    parts = []
    for inputs in call.pieces(sample, variant):
        whole = [np.resize(one, call.count) for one in inputs]
        parts.append(tolerance.of_call(operations.call_of(call.operation), codec, call.kind, call.op, whole))
    return np.concatenate(parts)


# All ranks must have the same bits, even if the codec is bounded.
_SAME_EVERYWHERE = ("all_reduce", "all_gather", "broadcast")


def small(world: World) -> Cases:
    """Every operation, type and reduction at small counts; with a smaller amount, some of them."""
    section = "small"
    every = [
        (operation, kind, op)
        for operation in operations.names()
        for kind in VALUE_TYPES
        for op in (OPS if describe(operation).reduces else ("sum",))
    ]
    rng = world.random(section)
    if world.amount == "few":
        step = 11 if world.hosts else 5  # the network carries bytes of any type
        every = every[world.ranks % step :: step]
    for i, (operation, kind, op) in enumerate(every):
        counts = SMALL_COUNTS if world.thorough else (SMALL_COUNTS[i % len(SMALL_COUNTS)],)
        for count in counts:
            data, root = rng.choice(DATA), rng.randrange(world.ranks)
            yield _case(world, section, Choice(operation, kind, op, data, count, root))
    # -0 is smaller than 0, on whichever rank it is: as packets, and as blocks.
    for kind in (kind for kind in VALUE_TYPES if kind.is_float):
        for op in ("min", "max"):
            for count in (1025, 4 * MIB // kind.bytes + 1) if world.thorough else (1025,):
                yield _case(world, section, Choice("all_reduce", kind, op, "zeros", count, 0))


def larger(world: World) -> Cases:
    """Sizes around changes of the path, and some between them."""
    section = "larger"
    rng = world.random(section)

    floats = [kind for kind in VALUE_TYPES if kind.is_float]

    def choice(operation: str, count_bytes: int, off: int, kinds: Sequence[ValueType]) -> Choice:
        kind = rng.choice(kinds)
        op, data, root = rng.choice(list(OPS)), rng.choice(DATA), rng.randrange(world.ranks)
        return Choice(operation, kind, op, data, max(0, count_bytes // kind.bytes + off), root)

    for operation in operations.names():
        for count_bytes in _switch_bytes(operation, world):
            kinds = floats if count_bytes >= 4 * MIB else VALUE_TYPES  # types that the codec supports
            offs = (-1, 0, 1) if count_bytes <= _BOTH_WAYS_BYTES else (-1, 0) if world.ranks <= 4 else (0,)
            for off in offs:
                yield _case(world, section, choice(operation, count_bytes, off, kinds))
        for _ in range(12 if world.thorough else 1):
            count_bytes = int(4 * KIB * 2 ** rng.uniform(0, 11 if world.thorough else 7))
            yield _case(world, section, choice(operation, count_bytes, rng.randrange(4), VALUE_TYPES))
    bf16, fp32 = value_type("bfloat16"), value_type("float32")
    if world.two_levels:
        for operation in ("all_reduce", "all_gather", "broadcast", "reduce_scatter"):
            pieces = 1 if operation in ("all_reduce", "broadcast") else world.ranks
            yield _case(world, section, Choice(operation, fp32, "sum", "weights", 6 * MIB // pieces + 3, 1))  # 3 parts
    if world.thorough:
        yield _case(world, section, Choice("all_reduce", bf16, "sum", "weights", 50 * MIB + 17, 0))
        yield _case(world, section, Choice("all_gather", fp32, "sum", "weights", 25 * MIB // world.ranks + 3, 0))


def _switch_bytes(operation: str, world: World) -> Iterator[int]:
    """Sizes in bytes where the path changes, from `explain`, up to _MAX_SWITCH_BYTES."""
    if world.place.backend == "host" or world.two_levels:
        # More than one chunk of staging.
        yield 128 * KIB
        return
    # The capacity of a buffer of packets.
    yield 3 * MIB // max(1, world.ranks - 1)

    def way(count_bytes: int) -> tuple[str, int | None, str]:
        said = world.comm.explain(operations.call_of(operation), count_bytes, dtype="float8_e4m3")
        return said.path, said.shots, said.codec

    for first, _ in changes(way, 4 * KIB, _MAX_SWITCH_BYTES)[1:]:
        yield first - 1


def _case(world: World, section: str, choice: Choice) -> Case:
    return choice.name, functools.partial(check, world, section, choice)


def check(world: World, section: str, choice: Choice) -> Outcome:
    """Makes the call with all codecs, in place and not. Compares results with the oracle and with each other."""
    outcome = Outcome()
    call = choice.call(world.rank, world.ranks)
    sample = pool(choice.data, choice.kind.name)
    rng, own = world.random(section, choice.name), world.random(section, choice.name, own=True)
    variant = rng.randrange(1 << 20)
    right = expected(call, sample, variant, world.hosts) if call.has_result else None
    sent = call.sent(sample, call.rank, variant)
    ways = [False] if not describe(choice.operation).in_place else [False, True]
    if max(call.send_elems, call.recv_elems) * choice.kind.bytes > _BOTH_WAYS_BYTES:
        ways = [rng.choice(ways)]
    first: np.ndarray | None = None
    chosen = codecs_of_case(rng)
    for in_place in ways:
        for codec in chosen:
            bounded = tolerance.bounded_type(codec, choice.kind)
            if ":" in codec and bounded is None:
                continue  # without this type, parameters make no difference
            if suited(codec, choice.kind, choice.op if describe(choice.operation).reduces else "sum") != codec:
                continue
            if bounded is not None and call.recv_elems * choice.kind.bytes > _MOST_BOUNDED_BYTES:
                continue
            # With the alignment of the value type, or a larger one.
            shifts = [own.choice((0, 1, 3, 16 // choice.kind.bytes)) * choice.kind.bytes for _ in range(2)]
            stream = None if world.default_stream and own.random() < 0.2 else world.streams[0]
            where = f"{codec}{' in place' if in_place else ''} at +{shifts[0]} and +{shifts[1]}"
            found = make_call(world, call, sent, codec, in_place, shifts, stream, outcome, where)
            if found is None or right is None:
                continue
            reduces = describe(choice.operation).reduces
            margins = tolerances(call, sample, variant, codec)
            error = difference(found, right, choice.kind, nan_is_nan=reduces, tolerances=margins)
            outcome.note(where, error)
            if bounded is not None:
                if choice.operation in _SAME_EVERYWHERE:
                    outcome.same_everywhere(found)
            elif reduces and error is None:
                first = found if first is None else first
                nan = difference(found, first, choice.kind, nan_is_nan=False)
                if nan:
                    outcome.nans.append(f"{where}, against the first result: {nan}")
    if choice.operation == "all_reduce" and first is not None:
        outcome.same_everywhere(first)
    return outcome


def make_call(
    world: World,
    call: Call,
    sent: np.ndarray,
    codec: str,
    in_place: bool,
    shifts: list[int],
    stream: Any,
    outcome: Outcome,
    where: str,
) -> np.ndarray | None:
    """Makes one call and forces the codec. Returns the bits of its output; None if this rank has none."""
    place, value_bytes = world.place, call.kind.bytes
    place.reset()
    sent_bytes, out_bytes = call.send_elems * value_bytes, call.recv_elems * value_bytes
    raw = np.ascontiguousarray(sent).view(np.uint8)
    source: Guarded | None = None
    begin = 0  # offset of the output in its buffer
    if in_place:
        whole = poison(max(sent_bytes, out_bytes))
        smaller = call.in_place_elems * value_bytes
        start = smaller if sent_bytes < out_bytes else 0
        begin = smaller if out_bytes < sent_bytes else 0
        whole[start : start + sent_bytes] = raw
        target = Guarded(place, whole.size)
        target.lay(whole, shifts[0], stream)
        values, out = target.part(start, sent_bytes), target.part(begin, out_bytes)
    else:
        source, target = Guarded(place, sent_bytes), Guarded(place, out_bytes)
        values = source.lay(raw, shifts[0], stream)
        out = target.lay(poison(out_bytes), shifts[1], stream)
    call.run(world.comm, values, out, codec=forced(codec), stream=stream)
    place.finish(world.comm, stream)
    if source is not None:
        outcome.note(f"{where}, the input", source.read(0, 0, stream)[1])
    found, changed = target.read(begin, out_bytes if call.has_result else 0, stream)
    outcome.note(f"{where}, the output", changed)
    return found.view(call.kind.numpy) if call.has_result else None
