"""The operations of MSCCL++ plans: what each one means in steps of a plan.

Both schemas are read into `Op`, with the names of the current schema. The meaning is what MSCCL++ documents, also where
its executor differs: a get reads its source and stores to its destination, flush waits, and every operand of a fused
operation has its own buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest

from ...model import Operand, Step
from ..json_document import Value

__all__ = ["DATA_OPERATIONS", "Op", "Ref", "steps_of"]


@dataclass(slots=True)
class Ref:
    """An operand of an operation, whose channel is already one of the plan."""

    operand: Operand
    size: int
    value: Value

    def packets(self) -> Operand:
        """The operand if it contains packets."""
        plain = self.operand
        return Operand(plain.buffer, plain.chunk, plain.channel, plain.switch, packets=True)


@dataclass(slots=True)
class Op:
    """An operation that moves or reduces values."""

    name: str
    value: Value
    sources: list[Ref] = field(default_factory=list)
    targets: list[Ref] = field(default_factory=list)
    channels: list[int] = field(default_factory=list)  #: of the plan, of pws and pwsf
    port: bool = False


def _step(op: Op, sources: list[Operand], targets: list[Operand], refs: list[Ref]) -> Step:
    sizes = {ref.size for ref in refs}
    if len(sizes) != 1:
        op.value.fail(f"{op.name} has operands of different sizes: {', '.join(map(str, sorted(sizes)))}")
    return Step("copy" if len(sources) == 1 else "reduce", sources, targets, sizes.pop())


def _pairs(op: Op, source: Callable[[Ref], Operand], target: Callable[[Ref], Operand]) -> Iterator[Step]:
    """One copy for each pair; a single one with several destinations if they have the same source."""
    if len(op.sources) != len(op.targets) or not op.sources:
        op.value.fail(f"{op.name} has {len(op.sources)} sources and {len(op.targets)} destinations")
    both = zip(op.sources, op.targets, strict=True)
    pairs = [(source(first), target(second), [first, second]) for first, second in both]
    if all(pair[0] == pairs[0][0] for pair in pairs):
        refs = [ref for pair in pairs for ref in pair[2]]
        yield _step(op, [pairs[0][0]], [pair[1] for pair in pairs], refs)
        return
    for first, second, refs in pairs:
        yield _step(op, [first], [second], refs)


def _plain(ref: Ref) -> Operand:
    return ref.operand


def _one(op: Op, source: Callable[[Ref], Operand], target: Callable[[Ref], Operand]) -> Iterator[Step]:
    if len(op.sources) != 1 or len(op.targets) != 1:
        op.value.fail(f"{op.name} has one source and one destination")
    yield from _pairs(op, source, target)


def _copy(op: Op) -> Iterator[Step]:
    yield from _one(op, _plain, _plain)


def _pack(op: Op) -> Iterator[Step]:
    yield from _one(op, _plain, Ref.packets)


def _unpack(op: Op) -> Iterator[Step]:
    yield from _one(op, Ref.packets, _plain)


def _move(op: Op) -> Iterator[Step]:
    yield from _pairs(op, _plain, _plain)


def _put_and_signal(op: Op) -> Iterator[Step]:
    yield from _move(op)
    # One thread puts and signals, so they are in order without a sync of MSCCL++; steps of a plan need one.
    yield Step("sync")
    yield Step("signal", channels=op.channels)
    if op.name == "pwsf":
        yield Step("flush", channels=op.channels)


def _put_packets(op: Op) -> Iterator[Step]:
    # A port copies memory, so the source must contain packets already.
    yield from _pairs(op, Ref.packets if op.port else _plain, Ref.packets)


def _forward_packets(op: Op) -> Iterator[Step]:
    if not op.sources or not op.targets or any(ref.operand != op.sources[0].operand for ref in op.sources):
        op.value.fail(f"{op.name} has one source and at least one destination")
    targets = [ref.packets() for ref in op.targets]
    yield _step(op, [op.sources[0].packets()], targets, [op.sources[0], *op.targets])


def _reduce(op: Op) -> Iterator[Step]:
    if not op.sources or not op.targets:
        op.value.fail(f"{op.name} has at least one source and one destination")
    sources = [ref.operand for ref in op.sources]
    yield _step(op, sources, [ref.operand for ref in op.targets], [*op.sources, *op.targets])


def _reduce_packets(op: Op) -> Iterator[Step]:
    if not op.sources or not op.targets:
        op.value.fail(f"{op.name} has at least one source and one destination")
    sources = [op.sources[0].operand, *(ref.packets() for ref in op.sources[1:])]
    targets = [op.targets[0].operand, *(ref.packets() for ref in op.targets[1:])]
    yield _step(op, sources, targets, [*op.sources, *op.targets])


def _multicast_packets(op: Op) -> Iterator[Step]:
    yield from _pairs(op, Ref.packets, Ref.packets)


_L, _R, _S = "local", "remote", "everywhere"  # the places of operands, as in Operand.place

# Name: (steps, places of sources, places of destinations). The last place of each stands for all further operands.
DATA_OPERATIONS: dict[str, tuple[Callable[[Op], Iterator[Step]], tuple[str, ...], tuple[str, ...]]] = {
    "copy": (_copy, (_L,), (_L,)),
    "cpkt": (_pack, (_L,), (_L,)),
    "upkt": (_unpack, (_L,), (_L,)),
    "put": (_move, (_L,), (_R,)),
    "pws": (_put_and_signal, (_L,), (_R,)),
    "pwsf": (_put_and_signal, (_L,), (_R,)),
    "get": (_move, (_R,), (_L,)),
    "ppkt": (_put_packets, (_L,), (_R,)),
    "rppkt": (_forward_packets, (_L,), (_R,)),
    "re": (_reduce, (_L,), (_L,)),
    "res": (_reduce, (_L,), (_L, _R)),
    "rre": (_reduce, (_L, _R), (_L,)),
    "rres": (_reduce, (_L, _R), (_L, _R)),
    "repkt": (_reduce_packets, (_L,), (_L,)),
    "respkt": (_reduce_packets, (_L,), (_L, _R)),
    "recpkt": (_reduce_packets, (_L,), (_L, _L)),
    "recspkt": (_reduce_packets, (_L,), (_L, _L, _R)),
    "glre": (_move, (_S,), (_L,)),
    "glres": (_move, (_S,), (_S,)),
    "gstore": (_move, (_L,), (_S,)),
    "gstorepkt": (_multicast_packets, (_L,), (_S,)),
}
_MOST_TARGETS = {"re": 1, "rre": 1, "repkt": 1, "recpkt": 2}


def steps_of(op: Op) -> Iterator[Step]:
    """The steps of an operation. Its operands must be in the places that it has."""
    steps, source_places, target_places = DATA_OPERATIONS[op.name]
    for refs, places, what in ((op.sources, source_places, "source"), (op.targets, target_places, "destination")):
        for ref, place in zip_longest(refs, places[: len(refs)], fillvalue=places[-1]):
            if isinstance(ref, Ref) and ref.operand.place != place:
                ref.value.fail(f"this {what} of {op.name} must be {place}, and is {ref.operand.place}")
    if len(op.targets) > _MOST_TARGETS.get(op.name, len(op.targets)):
        op.value.fail(f"{op.name} has {_MOST_TARGETS[op.name]} destinations at most")
    yield from steps(op)
