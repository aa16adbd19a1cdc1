"""Predicted times against measured ones, of the machines that have been measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import narrowcast
from narrowcast import plan
from narrowcast._native.plan import NativePlan

ROOT = Path(__file__).parents[3]
MEASURED = ("2xh200/2026-11-23_collectives.json", "4xh200/2026-11-22_collectives.json")
MACHINE = (Path(narrowcast.__file__).with_name("data") / "machines" / "4xh200.json").read_text()
SMALLEST_BYTES = 1 << 20


def measured_rows() -> list[tuple[str, int, dict[str, Any]]]:
    """(operation, ranks, row) of all-gather and all-reduce with each codec, of weights."""
    rows = []
    for name in MEASURED:
        for run in json.loads((ROOT / "bench" / "results" / name).read_text())["runs"]:
            if run["data"] != "weights" or run["operation"] not in ("all_gather", "all_reduce"):
                continue
            rows += [
                (run["operation"], run["ranks"], row)
                for row in run["rows"]
                if row["contender"] == "narrowcast" and row["size_bytes"] >= SMALLEST_BYTES
            ]
    return rows


def predicted_us(operation: str, ranks: int, row: dict[str, Any]) -> float:
    model = json.loads(plan.build("all_pairs", operation, ranks, codec=row["codec"], depth=8).json())
    for channel in model["channels"]:
        channel["packets"] = row["ratio"] > 1  # packets are larger than their values
    piece_bytes = row["size_bytes"] // (ranks if operation == "all_gather" else 1)
    lowered = NativePlan.read(json.dumps(model)).lower()
    report = lowered.simulate(MACHINE, piece_bytes=piece_bytes, ratio=min(1, row["ratio"]))
    return float(report["microseconds"])


def test_most_predictions_are_within_15_percent_of_the_measurements() -> None:
    errors = [predicted_us(*case) / case[2]["time_us"] - 1 for case in measured_rows()]
    assert len(errors) == 48
    assert sum(abs(error) <= 0.15 for error in errors) >= 40
    # Encoded all-gathers of 4 and 16 MiB are underestimated: a kernel's start with a codec is not modelled.
    assert max(abs(error) for error in errors) < 0.5
