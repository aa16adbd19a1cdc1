"""Plans in place of an operation that is not defined so."""

from __future__ import annotations

import json
from typing import Any


def exchange_in_place(chunks: int) -> str:
    """An all-to-all of two ranks: each takes the part of the other one from its input, and replaces it by its own."""

    def rank(own: int) -> dict[str, Any]:
        other = (1 - own) * chunks
        local = {"buffer": "input", "chunk": other}
        keep = {"step": "copy", "count": chunks, "from": [local], "to": [{"buffer": "scratch", "chunk": 0}]}
        there = {"channel": 1 - own, "buffer": "scratch", "chunk": 0}
        take = {"step": "copy", "count": chunks, "from": [there], "to": [{"buffer": "output", "chunk": other}]}
        meet = [{"step": "signal", "channels": [own]}, {"step": "wait", "channels": [1 - own]}]
        return {"scratch_chunks": chunks, "groups": [{"steps": [keep, *meet, take, *meet]}]}

    channels = [{"kind": "memory", "from": one, "to": 1 - one} for one in (0, 1)]
    head = {"narrowcast_plan": 1, "operation": "all_to_all", "in_place": "yes", "chunks": chunks, "channels": channels}
    return json.dumps({**head, "ranks": [rank(0), rank(1)]})
