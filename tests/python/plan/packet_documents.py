"""Plans that store packets in scratch."""

from __future__ import annotations

import json
from typing import Any


def packets_in_loops(write_unit: int, read_unit: int, codec: str) -> str:
    """A broadcast by packets, which rank 0 writes, and rank 1 reads, in a loop. A unit of 0 bytes: not in a loop."""
    packets = {"buffer": "scratch", "chunk": 0, "packets": True, "codec": codec}

    def steps(unit: int, step: dict[str, Any]) -> dict[str, Any]:
        return {"step": "loop", "unit_bytes": unit, "steps": [step]} if unit else step

    write = {"step": "copy", "from": [{"buffer": "input", "chunk": 0}], "to": [packets | {"channel": 0}]}
    read = {"step": "copy", "from": [packets], "to": [{"buffer": "output", "chunk": 0}]}
    keep = {"step": "copy", "from": write["from"], "to": read["to"]}
    writing = [{"step": "wait", "channels": [1]}, steps(write_unit, write), keep]
    reading = [{"step": "signal", "channels": [1]}, steps(read_unit, read)]
    document = {
        "narrowcast_plan": 1,
        "operation": "broadcast",
        "channels": [{"kind": "memory", "from": 0, "to": 1}, {"kind": "memory", "from": 1, "to": 0}],
        "ranks": [{"groups": [{"steps": writing}]}, {"scratch_chunks": 1, "groups": [{"steps": reading}]}],
    }
    return json.dumps(document)


def packets_relay(codec: str) -> str:
    """An all-gather between four ranks, from each to the next.

    First as packets in the next rank's scratch, then as messages, then as packets in the own scratch, which it gets.
    """
    ranks = range(4)

    def packets(chunk: int, **more: Any) -> dict[str, Any]:
        return {"buffer": "scratch", "chunk": chunk, "packets": True, "codec": codec, **more}

    def copy(source: dict[str, Any], *to: dict[str, Any]) -> dict[str, Any]:
        return {"step": "copy", "from": [source], "to": list(to)}

    def steps(rank: int) -> list[dict[str, Any]]:
        before = (rank - 1) % 4
        out = [{"buffer": "output", "chunk": (rank - back) % 4} for back in ranks]
        return [
            copy({"buffer": "input", "chunk": 0}, out[0], packets(0, channel=4 + rank)),
            copy(packets(0), out[1], {"channel": rank, "codec": codec}),
            copy({"channel": before, "codec": codec}, packets(1), out[2]),
            copy(packets(1, channel=4 + before), out[3]),
        ]

    rings = [{"kind": "ring", "from": rank, "to": (rank + 1) % 4, "depth": 2} for rank in ranks]
    document = {
        "narrowcast_plan": 1,
        "operation": "all_gather",
        "scratch_copies": 2,
        "channels": rings + [{"kind": "memory", "from": rank, "to": (rank + 1) % 4} for rank in ranks],
        "ranks": [{"scratch_chunks": 2, "groups": [{"steps": steps(rank)}]} for rank in ranks],
    }
    return json.dumps(document)
