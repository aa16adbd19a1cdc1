"""Compares the reports of a program (bench/programs/ranks.py) that ran with NCCL and with Narrowcast.

- Results of calls that only move data must have the same bits in both.
- Results that depend on sums must have the same bits in two runs with Narrowcast that execute the same calls. NCCL may
  add more than two values in another order, so its results may differ by the program's tolerance, if it states one.
- A test of torch that passes with NCCL must pass with Narrowcast.
- A token selected by sums must be the same if its margin over the next candidate is large enough, and the margins of
  all tokens before it are too.
"""

from __future__ import annotations

import math
from typing import Any

Report = dict[str, Any]


def with_nccl(nccl: Report, narrowcast: Report) -> tuple[list[str], dict[str, Any]]:
    """The violations, and the results of the comparison."""
    faults = _different_bits(nccl, narrowcast, ("moved",), "NCCL")
    passed = narrowcast.get("passed", [])
    faults += [f"{name}: passes with NCCL only" for name in nccl.get("passed", []) if name not in passed]
    found: dict[str, Any] = {"moved": len(nccl.get("moved", {}))}
    if nccl.get("summed"):
        found["sums have NCCL's bits"] = nccl["summed"] == narrowcast.get("summed")
    for name, values in nccl.get("near", {}).items():
        other = narrowcast.get("near", {}).get(name, {"values": []})
        difference = _difference(values["values"], other["values"])
        found[f"{name}: largest difference"] = None if math.isnan(difference) else difference
        if values["tolerance"] is not None and not difference <= values["tolerance"]:
            faults.append(f"{name}: differs from NCCL's by {difference:g}; the tolerance is {values['tolerance']:g}")
    for name, rows in nccl.get("chosen", {}).items():
        compared, wrong = _chosen(rows, narrowcast.get("chosen", {}).get(name))
        found[f"{name}: compared"] = compared
        if wrong or not compared:
            faults.append(f"{name}: {wrong} of {compared} with a sufficient margin differ from NCCL's")
    ratios = {
        name: round(seconds / narrowcast["seconds"][name], 4)
        for name, seconds in nccl.get("seconds", {}).items()
        if narrowcast.get("seconds", {}).get(name)
    }
    return faults, {**found, "times faster than NCCL": ratios}


def between_runs(first: Report, second: Report) -> list[str]:
    """The violations between two runs with Narrowcast."""
    return _different_bits(first, second, ("moved", "summed", "near"), "the first run")


def _different_bits(first: Report, second: Report, kinds: tuple[str, ...], whose: str) -> list[str]:
    return [
        f"{name}: the bits differ from those of {whose}"
        for kind in kinds
        for name, bits in first.get(kind, {}).items()
        if bits != second.get(kind, {}).get(name)
    ]


def _difference(first: list[str], second: list[str]) -> float:
    """The largest difference relative to the largest value; NaN if there is nothing to compare."""
    pairs = [(float.fromhex(a), float.fromhex(b)) for a, b in zip(first, second, strict=False)]
    values = [abs(value) for pair in pairs for value in pair]
    if len(first) != len(second) or not any(values) or not all(map(math.isfinite, values)):
        return math.nan
    return max(abs(a - b) for a, b in pairs) / max(values)


def _chosen(first: dict[str, Any], second: dict[str, Any] | None) -> tuple[int, int]:
    """How many tokens must be the same, and how many of them are not."""
    if second is None:
        return 0, 0
    compared = wrong = 0
    for row in range(len(first["tokens"])):
        tokens = zip(first["tokens"][row], second["tokens"][row], strict=True)
        margins = zip(first["margins"][row], second["margins"][row], strict=True)
        for (a, b), margin in zip(tokens, margins, strict=True):
            if min(margin) < first["enough"]:
                break
            compared += 1
            wrong += a != b
    return compared, wrong
