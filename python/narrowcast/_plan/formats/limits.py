"""The capacities of other libraries, which reject larger plans, or overrun their tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from .msccl_xml.document import parse

__all__ = ["exceeded_limits"]

# (library, most) of microsoft/msccl and ROCm/rccl, and of the executor of MSCCL++ in both schemas.
_STEPS = (("RCCL", 64), ("MSCCL", 256))
_BLOCKS = (("RCCL", 64), ("MSCCL", 216))
_ELEMENTS = (("RCCL", 4095),)  # that a rank reads
_PEERS = (("RCCL", 32),)
_COUNT = (("RCCL", 71), ("MSCCL", 71))
_OPERATIONS = (("MSCCL++", 64),)
_CHANNELS = (("MSCCL++", 16),)
_BARRIERS = (("MSCCL++", 16),)

_Measure = tuple[int, str, str, tuple[tuple[str, int], ...]]  # number, where, of what, limits


def exceeded_limits(text: str, form: str) -> list[str]:
    """The limits that a document in one of FORMATS exceeds: for each, where it does most.

    Raises InvalidArgumentError for XML that is not a plan.
    """
    if form == "json":
        return []
    worst: dict[str, _Measure] = {}
    for measure in _of_xml(text) if form == "msccl_xml" else _of_json(json.loads(text)):
        if measure[2] not in worst or measure[0] > worst[measure[2]][0]:
            worst[measure[2]] = measure
    messages = []
    for number, where, what, limits in worst.values():
        smaller = [f"{library} for {most}" for library, most in limits if number > most]
        if smaller:
            messages.append(f"{where} has {number} {what}; there is room in {' and in '.join(smaller)}")
    return messages


def _of_xml(text: str) -> Iterator[_Measure]:
    algorithm = parse(text.encode())
    for gpu in algorithm.gpus:
        where = f"rank {gpu.number}"
        # Ranks leave out what the elements <gpu> of others contain.
        elements = 1 + len(algorithm.gpus) + sum(1 + len(block.rows) for block in gpu.blocks)
        yield elements, where, "elements", _ELEMENTS
        yield len(gpu.blocks), where, "thread blocks", _BLOCKS
        for side in ("send", "receive"):
            peers = Counter(block.channel for block in gpu.blocks if getattr(block, side) >= 0)
            for channel, count in peers.items():
                yield count, where, f"thread blocks that {side} on channel {channel}", _PEERS
        for block in gpu.blocks:
            where = f"rank {gpu.number} thread block {block.number}"
            yield len(block.rows), where, "steps", _STEPS
            yield max((row[6] for row in block.rows), default=0), where, "chunks in a step", _COUNT


def _of_json(document: dict[str, Any]) -> Iterator[_Measure]:
    for gpu in document["gpus"]:
        barriers: set[int] = set()
        for block in gpu["threadblocks"]:
            where = f"rank {gpu['id']} thread block {block['id']}"
            # Those of a pipeline are in the same table.
            operations = [inner for op in block["ops"] for inner in (op, *op.get("ops", ()))]
            yield len(operations), where, "operations", _OPERATIONS
            barriers.update(op["barrier_id"] for op in operations if op["name"] == "barrier")
            channels: dict[str, int] = {}
            for channel in block["channels"]:
                kind = channel["channel_type"]
                channels[kind] = channels.get(kind, 0) + len(channel["channel_ids"])
            for kind, count in channels.items():
                yield count, where, f"{kind} channels", _CHANNELS
        yield max(barriers, default=-1) + 1, f"rank {gpu['id']}", "barriers", _BARRIERS
