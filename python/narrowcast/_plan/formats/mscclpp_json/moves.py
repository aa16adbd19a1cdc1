"""Translates steps that move values into operations of MSCCL++.

A place of values is local, memory, port or switch, followed by + if it contains packets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from ...model import Operand, PlanModel, Step
from ..memory import Memory
from .tables import BlockTables

__all__ = ["MAX_CHANNELS", "Moves"]

# The capacity of an operation, which the executor does not check.
_MAX_BUFFERS = 10
MAX_CHANNELS = 8

_Json = dict[str, Any]

# (place of the source, place of the destination): the operation.
_COPIES = {
    ("local", "local"): "copy",
    ("local", "local+"): "cpkt",
    ("local", "memory"): "put",
    ("local", "memory+"): "ppkt",
    ("local", "port"): "put",
    ("local", "switch"): "gstore",
    ("local+", "local"): "upkt",
    ("local+", "memory+"): "rppkt",
    ("local+", "port+"): "rppkt",
    ("local+", "switch+"): "gstorepkt",
    ("memory", "local"): "get",
    ("switch", "local"): "glre",
    ("switch", "switch"): "glres",
}
_BATCHES = {"put": MAX_CHANNELS, "ppkt": MAX_CHANNELS, "rppkt": MAX_CHANNELS, "get": MAX_CHANNELS}
# (place of all sources but the first, copies packets, sends): the operation.
_REDUCTIONS = {
    ("local", False, False): "re",
    ("local", False, True): "res",
    ("memory", False, False): "rre",
    ("memory", False, True): "rres",
    ("local+", False, False): "repkt",
    ("local+", False, True): "respkt",
    ("local+", True, False): "recpkt",
    ("local+", True, True): "recspkt",
}
_DESCRIPTIONS = {
    "local": "values of the rank",
    "local+": "packets of the rank",
    "memory": "values behind a memory channel",
    "memory+": "packets behind a memory channel",
    "port": "values behind a port channel",
    "port+": "packets behind a port channel",
    "switch": "values behind a switch",
    "switch+": "packets behind a switch",
}


class Moves:
    """Those of one rank."""

    def __init__(self, plan: PlanModel, rank: int, reduction: str, refuse: Callable[[str], NoReturn]) -> None:
        """refuse: raises the error for a step that MSCCL++ cannot express."""
        self.plan = plan
        self.rank = rank
        self.reduction = reduction
        self.refuse = refuse
        self.memory = Memory(plan, rank, plan.in_place == "yes")

    def place(self, operand: Operand) -> str:
        if operand.packets and operand.buffer != "scratch":
            self.refuse("packets of MSCCL++ are in scratch only")
        if operand.partial:
            self.refuse("MSCCL++ has no partial sums")
        kind = "switch" if operand.switch is not None else "local"
        if operand.channel is not None:
            kind = self.plan.channels[operand.channel].kind
        return kind + ("+" if operand.packets else "")

    def copy(self, source: Operand, targets: list[Operand], count: int, block: BlockTables) -> Iterator[_Json]:
        start = self.place(source)
        if start in ("memory", "switch") and len(targets) > 1:
            # One operation reads it; the others copy what that one has stored.
            stored = next((target for target in targets if self.place(target) == "local"), targets[0])
            yield from self.copy(source, [stored], count, block)
            source, targets = stored, [target for target in targets if target is not stored]
            start = self.place(source)
        by_name: dict[tuple[str, str], list[Operand]] = {}
        for target in targets:
            place = self.place(target)
            if (start, place) not in _COPIES:
                self.refuse(f"MSCCL++ cannot copy {_DESCRIPTIONS[start]} to {_DESCRIPTIONS[place]}")
            by_name.setdefault((_COPIES[start, place], place), []).append(target)
        for (name, place), group in by_name.items():
            if name == "glre":
                for target in group:
                    yield self.group_load(source, target, count, block)
                continue
            size = _BATCHES.get(name, 1)
            for first in range(0, len(group), size):
                part = group[first : first + size]
                sources = [source] if name == "rppkt" else [source] * len(part)
                op: _Json = {
                    "name": name,
                    "src_buff": [block.operand(operand, count) for operand in sources],
                    "dst_buff": [block.operand(operand, count) for operand in part],
                }
                link = place if start == "local" or start == "local+" else start
                if link.rstrip("+") != "local":
                    op["channel_type"] = link.rstrip("+")
                if link.startswith("port"):
                    op["channel_ids"] = [block.channel(operand.channel) for operand in part]
                elif name == "get":
                    op["channel_ids"] = [block.channel(source.channel)] * len(part)
                if name == "glres":
                    op["reduce_op"] = self.reduction
                yield op

    def group_load(self, source: Operand, target: Operand, count: int, block: BlockTables) -> _Json:
        return {
            "name": "glre",
            "buffer_type": block.letter(source),
            "buffer_offset": source.chunk,
            "size": count,
            "dst_chunk": {"rank": self.rank, **block.operand(target, count)},
            "channel_ids": [block.operand(source, count)["switch_channel_id"]],
            "channel_type": "switch",
            "reduce_op": self.reduction,
        }

    def reduce(self, step: Step, block: BlockTables) -> Iterator[_Json]:
        """The operations of a reduction: each adds some of the sources to what the one before has stored."""
        sources: dict[str, list[Operand]] = {}
        for operand in step.sources:
            sources.setdefault(self.place(operand), []).append(operand)
        plain, remote, packets = (sources.pop(place, []) for place in ("local", "memory", "local+"))
        if sources:
            self.refuse(f"MSCCL++ cannot reduce {_DESCRIPTIONS[next(iter(sources))]}")
        targets = list(step.destinations)
        stored = self.stored(plain, targets)
        targets.remove(stored)

        so_far: list[Operand] = []
        if len(plain) == 1:
            so_far = [plain.pop()]
        elif not plain:  # the first operand of an operation is in the rank
            yield from self.copy((remote or packets).pop(0), [stored], step.count, block)
            so_far = [stored]
        plain.sort(key=lambda operand: not self.memory.same(operand, stored))
        stages: list[tuple[str, list[Operand]]] = []  # (place, operands), the first with the sum so far
        for place, operands in (("local", plain), ("memory", remote), ("local+", packets)):
            while operands:
                room = _MAX_BUFFERS - len(so_far)
                stages.append((place, [*so_far, *operands[:room]]))
                so_far, operands = [stored], operands[room:]
        for place, operands in stages[1:]:
            if place == "local" and any(self.memory.overlap(one, stored, step.count) for one in operands[1:]):
                self.refuse(f"an operation of MSCCL++ has {_MAX_BUFFERS} operands at most")

        for place, operands in stages[:-1]:
            yield self.reduction_op(place, operands, stored, [], [], step.count, block)
        place, operands = stages[-1]
        copies = [operand for operand in targets if place == "local+" and self.place(operand) == "local+"][:1]
        wanted = "memory+" if place == "local+" else "memory"
        sends = [operand for operand in targets if self.place(operand) == wanted][: _MAX_BUFFERS - 1 - len(copies)]
        yield self.reduction_op(place, operands, stored, copies, sends, step.count, block)
        rest = [operand for operand in targets if operand not in copies and operand not in sends]
        if rest:
            yield from self.copy(stored, rest, step.count, block)

    def stored(self, plain: list[Operand], targets: list[Operand]) -> Operand:
        """The target to which a reduction stores its result, in the rank: if possible, where a source is."""
        local = [target for target in targets if self.place(target) == "local"]
        if not local:
            self.refuse("MSCCL++ stores the result of a reduction in the rank")
        return next((target for target in local if any(self.memory.same(target, one) for one in plain)), local[0])

    def reduction_op(
        self,
        place: str,
        sources: list[Operand],
        stored: Operand,
        copies: list[Operand],
        sends: list[Operand],
        count: int,
        block: BlockTables,
    ) -> _Json:
        op: _Json = {
            "name": _REDUCTIONS[place, bool(copies), bool(sends)],
            "src_buff": [block.operand(operand, count) for operand in sources],
            "dst_buff": [block.operand(operand, count) for operand in (stored, *copies, *sends)],
        }
        if place == "memory" or sends:
            op["channel_type"] = "memory"
        op["reduce_op"] = self.reduction
        return op
