"""The traffic that the fake drop-in reports in tests of `narrowcast run`."""

from __future__ import annotations

REASON = 'count is below the "floor"'
COMMUNICATORS = [
    {
        "id": "c0ffee00c0ffee00",
        "rank": 1,
        "ranks": 2,
        "scratch_bytes": 1 << 20,
        "operations": [
            {
                "operation": "all_gather",
                "taken": 3,
                "captured": 0,
                "forwarded": 2,
                "reasons": {REASON: 2},
                "plans": {"a plan": 1},
                "lossy": [{"rule": 'a "rule"', "codec": "int8:group=32", "calls": 2}],
                "raw_bytes": 3000,
                "wire_bytes": 2100,
                "predicted": 0,
                "saved_seconds": 0,
            }
        ],
    }
]
