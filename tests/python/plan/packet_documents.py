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
