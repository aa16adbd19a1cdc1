"""Predicted times against measured ones, of the machines that have been measured."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import narrowcast
from narrowcast import plan
from narrowcast._comm.explain import changes
from narrowcast._native.plan import NativePlan

ROOT = Path(__file__).parents[3]
MEASURED = ("2xh200/2026-11-23_collectives.json", "4xh200/2026-11-22_collectives.json")
MACHINE = (Path(narrowcast.__file__).with_name("data") / "machines" / "4xh200.json").read_text()
SMALLEST_BYTES = 1 << 20
#: A description that was fitted to calls between two GPUs, with its predictions of all others.
FITTED = ROOT / "bench" / "results" / "simulated" / "2026-11-24_fit_two_gpus.json"


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


def predicted_us(operation: str, ranks: int, row: dict[str, Any], machine: str = MACHINE) -> float:
    model = json.loads(plan.build("all_pairs", operation, ranks, codec=row["codec"], depth=8).json())
    for channel in model["channels"]:
        channel["packets"] = row["ratio"] > 1  # packets are larger than their values
    piece_bytes = row["size_bytes"] // (ranks if operation == "all_gather" else 1)
    lowered = NativePlan.read(json.dumps(model)).lower()
    report = lowered.simulate(machine, piece_bytes=piece_bytes, ratio=min(1, row["ratio"]))
    return float(report["microseconds"])


def test_predictions_are_within_15_percent_of_the_measurements() -> None:
    errors = [predicted_us(*case) / case[2]["time_us"] - 1 for case in measured_rows()]
    assert len(errors) == 48
    assert max(abs(error) for error in errors) <= 0.15


def test_raw_and_encoded_calls_are_ranked_as_measured() -> None:
    """Where the measured times differ by more than the measurements of one call do."""
    times: dict[tuple[str, int, int], dict[str, tuple[float, float]]] = defaultdict(dict)
    for operation, ranks, row in measured_rows():
        both = row["time_us"], predicted_us(operation, ranks, row)
        times[operation, ranks, row["size_bytes"]][row["codec"]] = both
    distinct = 0
    for case, by_codec in times.items():
        (raw, predicted_raw), (window, predicted_window) = by_codec["raw"], by_codec["window"]
        if abs(window / raw - 1) > 0.03:
            distinct += 1
            assert (predicted_window < predicted_raw) == (window < raw), case
    assert (len(times), distinct) == (24, 20)


def test_one_shot_and_two_shots_are_ranked_as_measured() -> None:
    """Between four H200 two shots were measured to be faster from a size that the selection of kernels knows."""

    def shots(count: int) -> int | None:
        return narrowcast.explain("all_reduce", count, dtype="int8", ranks=4, codec="raw").shots

    ((_, first), (switch, second)) = changes(shots, 1 << 14, 1 << 20)
    assert (first, second) == (1, 2)

    def microseconds(name: str, nbytes: int) -> float:
        return plan.build(name, "all_reduce", 4).simulate(nbytes, machine="4xh200").microseconds

    for nbytes in (1 << 12, 1 << 14, 1 << 16, switch // 2):
        assert microseconds("one_shot", nbytes) < microseconds("two_shot", nbytes)
    for nbytes in (2 * switch, 1 << 20, 4 << 20):
        assert microseconds("two_shot", nbytes) < microseconds("one_shot", nbytes)


def test_calls_between_four_gpus_are_predicted_from_calls_between_two() -> None:
    """All-gathers and all-reduces between four GPUs, none of which the description was fitted to."""
    found = json.loads(FITTED.read_text())
    fitted = {(call["operation"], call["ranks"]) for call in found["calls"] if call["is_fitted"]}
    assert fitted == {("all_gather", 2), ("all_reduce", 2)}
    machine = json.dumps(found["description"])
    times = {
        (operation, row["size_bytes"], row["codec"]): (row["time_us"], predicted_us(operation, ranks, row, machine))
        for operation, ranks, row in measured_rows()
        if ranks == 4
    }
    errors = [abs(predicted / measured - 1) for measured, predicted in times.values()]
    assert (len(errors), sum(error <= 0.15 for error in errors)) == (24, 20)
    assert max(errors) <= 0.18
    for operation, size, codec in times:
        if codec == "raw":
            continue
        raw, window = times[operation, size, "raw"], times[operation, size, codec]
        if abs(window[0] / raw[0] - 1) > 0.03:
            assert (window[1] < raw[1]) == (window[0] < raw[0]), (operation, size)
