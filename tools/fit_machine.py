"""Fits the description of a machine to measured calls, and says how well it predicts others.

    fit_machine.py FILE... [--predict FILE]... [--start DESCRIPTION] -o RESULT

The files are those that measured_calls.py reads. Measurements of calls that were repeated at a later commit, in any of
these files, are not fitted. The search begins with rounded numbers of an earlier one. It minimizes the errors of the
predictions (fourth powers, so that large errors count) of the other calls of FILE. Predictions are not smooth, so it
goes on from places around the best one (--restarts), and at last tries random changes of a few numbers (--changes),
which are kept if they make errors smaller or more calls predicted within 15%.
Calls of the files of --predict are predicted and not fitted. RESULT gets the description and the predictions of all
calls, also of superseded ones; with `--rounds 0 --restarts 0 --changes 0`, of the description of --start. Needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from measured_calls import MOST_CTAS, ROOT, Case, cases_of, current

MOST_ERROR = 0.15
#: Where the search begins: rounded numbers of an earlier search.
START = {
    "link_gbps": 370, "link_response_share": 0.07, "link_packets_gbps": 310, "link_packets_response_share": 0.13,
    "link_latency_us": 1.3, "link_packets_latency_us": 1.0, "cta_move_gbps": 100, "cta_reduce_gbps": 230,
    "cta_encode_gbps": 33, "cta_decode_gbps": 120, "reducing_codec_share": 0.71, "slow_sm_share": 0.87,
    "slot_latency_us": 1.4, "coded_latency_us": 1.3, "reduce_latency_us": 1.5, "step_us": 0.52, "launch_us": 0.07,
    "slots_launch_us": 1.9,
}  # fmt: skip
#: What is not fitted here. clustered_ctas is that of src/select/block_split.h. slow_sm_raw_share is the time of raw
#: all-reduces of 1 GiB in clusters, divided by that without (2xh200/2026-11-26_clusters.json, 64 CTAs). The last number
#: was fitted to the four encoded rings of 4xh200/2026-11-26_plan_bench_rings.json, the only calls that depend on it.
FIXED = {"ctas": MOST_CTAS, "clustered_ctas": 60, "slow_sm_raw_share": 0.94, "generated_codec_share": 0.18}
Vector = npt.NDArray[np.float64]


def machine_of(values: dict[str, float], ranks: int) -> dict[str, Any]:
    return {"narrowcast_machine": 1, "hosts": 1, "gpus_per_host": ranks, **FIXED, **values}


def values_of(logarithms: Vector) -> dict[str, float]:
    values = {key: float(value) for key, value in zip(START, np.exp(logarithms), strict=True)}
    return {key: min(1.0, value) if key.endswith("_share") else value for key, value in values.items()}


def cost(errors: Vector) -> float:
    return float(np.mean(errors**4))


def minimize(errors_of: Callable[[Vector], Vector], start: Vector, rounds: int, change: float) -> tuple[Vector, float]:
    """Levenberg-Marquardt, with weights that make it minimize fourth powers. The place and its cost.

    change: of each value, to find slopes."""
    at, errors, damping = start, errors_of(start), 0.01
    for _ in range(rounds):
        slopes = np.stack([errors_of(at + change * unit) - errors for unit in np.eye(len(at))], axis=1) / change
        weights = np.maximum(np.abs(errors), 0.02)
        weighted = slopes * weights[:, None]
        normal = weighted.T @ weighted
        for _ in range(6):
            damped = normal + damping * np.mean(np.diag(normal)) * np.eye(len(at))
            step = np.clip(np.linalg.solve(damped, -weighted.T @ (errors * weights)), -0.5, 0.5)
            found = errors_of(at + step)
            if cost(found) < cost(errors):
                break
            damping *= 4
        else:
            break  # no step is better
        at, errors, damping = at + step, found, damping / 3
    return at, cost(errors)


def search(errors_of: Callable[[Vector], Vector], start: Vector, rounds: int, restarts: int) -> Vector:
    """The best place of several searches; all but the first begin near the best one before."""
    random = np.random.default_rng(0)
    best, least = start, cost(errors_of(start))
    for number in range(restarts + 1):
        begin = best if number == 0 else best + random.normal(0, 0.15, len(best))
        found, its_cost = minimize(errors_of, begin, rounds, change=(0.05, 0.02, 0.1)[number % 3])
        if its_cost < least:
            best, least = found, its_cost
        print(f"fourth root of the mean fourth power: {least**0.25:.4f}", file=sys.stderr)
    return best


def refine(errors_of: Callable[[Vector], Vector], start: Vector, changes: int) -> Vector:
    """The best place that random changes of one to three values lead to."""
    worth = 0.0025  # of a call within 15%, as a change of the fourth root of the mean fourth power of errors
    random = np.random.default_rng(0)

    def rate(errors: Vector) -> float:
        return float(worth * np.sum(np.abs(np.expm1(errors)) <= MOST_ERROR) - cost(errors) ** 0.25)

    best, highest = start, rate(errors_of(start))
    for _ in range(changes):
        values = random.choice(len(best), size=random.integers(1, 4), replace=False)
        found = best.copy()
        found[values] += random.normal(0, 0.05, len(values))
        if (rated := rate(errors_of(found))) > highest:
            best, highest = found, rated
    return best


def fit(cases: list[Case], start: dict[str, float], options: argparse.Namespace) -> dict[str, float]:
    """The best description that was found."""
    ranks = max(case.ranks for case in cases)
    measured = np.array([case.measured_us for case in cases])

    def errors_of(logarithms: Vector) -> Vector:
        machine = machine_of(values_of(logarithms), ranks)
        errors: Vector = np.log(np.array([case.predict(machine) for case in cases]) / measured)
        return errors

    found = search(errors_of, np.log(np.array([start[key] for key in START])), options.rounds, options.restarts)
    found = refine(errors_of, found, options.changes)
    return {key: float(f"{value:.4g}") for key, value in values_of(found).items()}


def rows_of(cases: list[Case], machine: dict[str, Any], **marks: bool) -> list[dict[str, Any]]:
    rows = []
    for case in cases:
        predicted = case.predict(machine)
        rows.append({**case._asdict(), "predicted_us": round(predicted, 3),
                     "error": round(predicted / case.measured_us - 1, 4), **marks})  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--predict", action="append", default=[], type=Path, metavar="FILE", help="predict its calls")
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="RESULT")
    parser.add_argument("--start", type=Path, metavar="FILE", help="a description to begin with")
    parser.add_argument("--rounds", type=int, default=20, help="of each search, at most")
    parser.add_argument("--restarts", type=int, default=15, help="searches that follow the first one")
    parser.add_argument("--changes", type=int, default=300, help="of a few numbers, tried at last")
    options = parser.parse_args()
    every = [one for path in [*options.files, *options.predict] for one in cases_of(path)]
    cases = current(every)
    held_out = {one.file for path in options.predict for one in cases_of(path)}
    fitted = [one for one in cases if one.file not in held_out]
    if not fitted:
        parser.error("the files have no such calls")
    start = START if options.start is None else json.loads(options.start.read_text())
    start = {key: start[key] for key in START}
    ranks = max(case.ranks for case in cases)
    machine = machine_of(fit(fitted, start, options), ranks)
    rows = rows_of(fitted, machine, is_fitted=True)
    rows += rows_of([one for one in cases if one.file in held_out], machine, is_fitted=False)
    superseded = set(every) - set(cases)
    rows += rows_of([one for one in every if one in superseded], machine, is_fitted=False, is_superseded=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    header = {
        "command": shlex.join(["tools/fit_machine.py", *sys.argv[1:]]),
        "commit": commit.strip(),
        "start": start,
        "description": machine,
    }
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    text = json.dumps(header, indent=1).removesuffix("\n}")
    options.output.write_text(f'{text},\n "calls": [\n  {lines}\n ]\n}}\n')
    counted = [row for row in rows if "is_superseded" not in row]
    for name in dict.fromkeys(row["file"] for row in counted):
        errors = [abs(row["error"]) for row in counted if row["file"] == name]
        print(
            f"{name}: {len(errors)} calls, {sum(one <= MOST_ERROR for one in errors)} within 15%,"
            f" median {statistics.median(errors):.1%}, largest {max(errors):.1%}"
        )


if __name__ == "__main__":
    main()
