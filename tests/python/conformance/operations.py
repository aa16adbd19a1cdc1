"""Every operation, value type and reduction, by every codec, in place and not, over counts where the way they are run
changes."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from narrowcast._bench import operations, oracle
from narrowcast._bench.operations import Call, describe
from narrowcast._comm.explain import changes
from narrowcast.types import REDUCTIONS as OPS
from narrowcast.types import VALUE_TYPES, ValueType, value_type

from .guarded import Guarded
from .values import DATA, difference, poison, pool
from .world import CODECS, Case, Cases, Outcome, World

# A block has 4 KiB of values, float64's 8 KiB by window.
SMALL_COUNTS = (0, 1, 2, 3, 7, 100, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 6001)
KIB, MIB = 1 << 10, 1 << 20
# A call with more is made out of place or in place, not both.
_BOTH_WAYS_BYTES = 4 * MIB
# Beyond, a change of way is left to the tests of each way.
_MOST_SWITCH_BYTES = 16 * MIB


@dataclass(frozen=True)
class Choice:
    """What a case calls; every rank makes the same."""

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


def expected(call: Call, sample: np.ndarray, variant: int) -> np.ndarray:
    """The bits of the rank's output."""
    parts = []
    for inputs in call.pieces(sample, variant):
        bits = oracle.reduce(inputs, call.op, call.kind) if describe(call.operation).reduces else inputs[0]
        parts.append(bits if bits.size == call.count else np.resize(bits, call.count))
    return np.concatenate(parts)


def small(world: World) -> Cases:
    """Every operation, type and reduction at small counts; where time is short, each at one of them, or one in five."""
    section = "small"
    every = [
        (operation, kind, op)
        for operation in operations.NAMES
        for kind in VALUE_TYPES
        for op in (OPS if describe(operation).reduces else ("sum",))
    ]
    rng = world.random(section)
    if world.amount == "few":
        every = every[world.ranks % 5 :: 5]
    for i, (operation, kind, op) in enumerate(every):
        counts = SMALL_COUNTS if world.thorough else (SMALL_COUNTS[i % len(SMALL_COUNTS)],)
        for count in counts:
            data, root = rng.choice(DATA), rng.randrange(world.ranks)
            yield _case(world, section, Choice(operation, kind, op, data, count, root))


def larger(world: World) -> Cases:
    """Around the sizes where a call is run in another way, and some in between."""
    section = "larger"
    rng = world.random(section)

    floats = [kind for kind in VALUE_TYPES if kind.is_float]

    def choice(operation: str, count_bytes: int, off: int, kinds: Sequence[ValueType]) -> Choice:
        kind = rng.choice(kinds)
        op, data, root = rng.choice(list(OPS)), rng.choice(DATA), rng.randrange(world.ranks)
        return Choice(operation, kind, op, data, max(0, count_bytes // kind.bytes + off), root)

    for operation in operations.NAMES:
        for count_bytes in _switch_bytes(operation, world):
            kinds = floats if count_bytes >= 4 * MIB else VALUE_TYPES  # those that are coded
            offs = (-1, 0, 1) if count_bytes <= _BOTH_WAYS_BYTES else (-1, 0) if world.ranks <= 4 else (0,)
            for off in offs:
                yield _case(world, section, choice(operation, count_bytes, off, kinds))
        for _ in range(12 if world.thorough else 1):
            count_bytes = int(4 * KIB * 2 ** rng.uniform(0, 11 if world.thorough else 7))
            yield _case(world, section, choice(operation, count_bytes, rng.randrange(4), VALUE_TYPES))
    if world.thorough:
        bf16, fp32 = value_type("bfloat16"), value_type("float32")
        yield _case(world, section, Choice("all_reduce", bf16, "sum", "weights", 50 * MIB + 17, 0))
        yield _case(world, section, Choice("all_gather", fp32, "sum", "weights", 25 * MIB // world.ranks + 3, 0))


def _switch_bytes(operation: str, world: World) -> Iterator[int]:
    """Bytes of `count` values where the call is run in another way: up to _MOST_SWITCH_BYTES, as explained."""
    if world.place.backend == "host":
        # More than one chunk of its staging.
        yield 128 * KIB
        return
    # What one buffer of packets holds.
    yield 3 * MIB // max(1, world.ranks - 1)

    def way(count_bytes: int) -> tuple[str, int | None, str]:
        said = world.comm.explain(operations.call_of(operation), count_bytes, dtype="float8_e4m3")
        return said.path, said.shots, said.codec

    for first, _ in changes(way, 4 * KIB, _MOST_SWITCH_BYTES)[1:]:
        yield first - 1


def _case(world: World, section: str, choice: Choice) -> Case:
    return choice.name, functools.partial(check, world, section, choice)


def check(world: World, section: str, choice: Choice) -> Outcome:
    """Makes the call in all ways and compares each result with the oracle, and the results with each other."""
    outcome = Outcome()
    call = choice.call(world.rank, world.ranks)
    sample = pool(choice.data, choice.kind.name)
    rng, own = world.random(section, choice.name), world.random(section, choice.name, own=True)
    variant = rng.randrange(1 << 20)
    right = expected(call, sample, variant) if call.has_result else None
    sent = call.sent(sample, call.rank, variant)
    ways = [False] if not describe(choice.operation).in_place else [False, True]
    if max(call.send_elems, call.recv_elems) * choice.kind.bytes > _BOTH_WAYS_BYTES:
        ways = [rng.choice(ways)]
    first: np.ndarray | None = None
    for in_place in ways:
        for codec in CODECS:
            # Aligned to the value type and nothing more, or better.
            shifts = [own.choice((0, 1, 3, 16 // choice.kind.bytes)) * choice.kind.bytes for _ in range(2)]
            stream = None if world.default_stream and own.random() < 0.2 else world.streams[0]
            where = f"{codec}{' in place' if in_place else ''} at +{shifts[0]} and +{shifts[1]}"
            found = _call(world, call, sent, codec, in_place, shifts, stream, outcome, where)
            if found is None or right is None:
                continue
            reduces = describe(choice.operation).reduces
            error = difference(found, right, choice.kind, nan_is_nan=reduces)
            outcome.note(where, error)
            if reduces and error is None:
                first = found if first is None else first
                nan = difference(found, first, choice.kind, nan_is_nan=False)
                if nan:
                    outcome.nans.append(f"{where}, against the first result: {nan}")
    if choice.operation == "all_reduce" and first is not None:
        outcome.same_everywhere(first)
    return outcome


def _call(
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
    """One call; the bits of its output, None if this rank has none."""
    place, value_bytes = world.place, call.kind.bytes
    place.reset()
    sent_bytes, out_bytes = call.send_elems * value_bytes, call.recv_elems * value_bytes
    raw = np.ascontiguousarray(sent).view(np.uint8)
    source: Guarded | None = None
    begin = 0  # of the output in its buffer
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
    call.run(world.comm, values, out, codec=codec, stream=stream)
    place.finish(world.comm, stream)
    if source is not None:
        outcome.note(f"{where}, the input", source.read(0, 0, stream)[1])
    found, changed = target.read(begin, out_bytes if call.has_result else 0, stream)
    outcome.note(f"{where}, the output", changed)
    return found.view(call.kind.numpy) if call.has_result else None
