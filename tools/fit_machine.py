"""Fits the description of a machine to measured collectives, and says how well it predicts measurements left out.

    fit_machine.py REPORT... -o FILE [--fit-ranks 2] [--fit-operation all_gather]... [--seconds 60]

REPORT is a file of `narrowcast bench`. A random search, which begins with guesses that no measurement went into, looks
for the description with the smallest errors for calls of at least 1 MiB with the ranks and operations that are given
with --fit-ranks and --fit-operation. All other calls of the reports are predicted and not fitted. FILE gets the
description, and every call with its prediction. Needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import narrowcast
from narrowcast import plan
from narrowcast._native.operations import describe
from narrowcast._native.plan import NativePlan

ROOT = Path(__file__).parents[1]
SMALLEST_BYTES = 1 << 20
#: Guesses: NVLink's rate from its data sheet, and round numbers.
START = {
    "narrowcast_machine": 1, "name": "4 H200", "hosts": 1, "gpus_per_host": 4,
    "link_gbps": 450, "link_packets_gbps": 300, "link_latency_us": 1.0,
    "ctas": 64, "cta_move_gbps": 100, "cta_reduce_gbps": 100, "cta_encode_gbps": 20, "cta_decode_gbps": 20,
    "slot_latency_us": 1.0, "coded_latency_us": 3.0, "step_us": 0.3, "launch_us": 2.0,
}  # fmt: skip
FITTED = ("link_gbps", "link_packets_gbps", "link_latency_us", "cta_move_gbps", "cta_reduce_gbps", "cta_encode_gbps",
          "cta_decode_gbps", "slot_latency_us", "coded_latency_us", "step_us", "launch_us")  # fmt: skip


class Case(NamedTuple):
    """A measured call."""

    operation: str
    ranks: int
    codec: str
    nbytes: int
    ratio: float
    measured_us: float

    def lowered(self) -> NativePlan:
        """The plan that the hand-written kernel implements."""
        count = self.nbytes // 2
        name = narrowcast.explain(self.operation, count, dtype="bfloat16", ranks=self.ranks, codec=self.codec).plan
        if name in ("one_shot", "two_shot"):
            name = "all_pairs"
        assert name is not None
        model = json.loads(plan.build(name, self.operation, self.ranks, codec=self.codec, depth=8).json())
        for channel in model["channels"]:
            channel["packets"] = self.ratio > 1  # packets are larger than their values
        return NativePlan.read(json.dumps(model)).lower()

    def predict(self, lowered: NativePlan, machine: str) -> float:
        """The time of a call, in microseconds."""
        parts = self.ranks if describe(self.operation).parted else 1
        report = lowered.simulate(machine, piece_bytes=self.nbytes // parts, ratio=min(1, self.ratio))
        return float(report["microseconds"])


def cases_of(report: dict[str, Any]) -> Iterable[Case]:
    """The calls of a report that plans describe."""
    for run in report["runs"]:
        if run["data"] != "weights" or run["operation"] == "sendrecv":
            continue
        for row in run["rows"]:
            if row["contender"] == "narrowcast" and row["size_bytes"] >= SMALLEST_BYTES:
                yield Case(
                    run["operation"], run["ranks"], row["codec"], row["size_bytes"], row["ratio"], row["time_us"]
                )


def errors_of(cases: list[tuple[Case, NativePlan]], machine: dict[str, Any]) -> list[float]:
    """Relative errors of the predictions."""
    text = json.dumps(machine)
    return [case.predict(lowered, text) / case.measured_us - 1 for case, lowered in cases]


def badness(errors: list[float]) -> float:
    """What the search minimizes: the largest error and the mean one count alike."""
    sizes = [abs(error) for error in errors]
    return max(sizes) + statistics.mean(sizes)


def fit(cases: list[tuple[Case, NativePlan]], machine: dict[str, Any], seconds: float, seed: int) -> dict[str, Any]:
    """The best description that was found."""
    chance = random.Random(seed)
    best, least = machine, badness(errors_of(cases, machine))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        changed = dict(best)
        width = chance.choice((0.03, 0.1, 0.3))
        for key in chance.sample(FITTED, chance.choice((1, 1, 2, 3))):
            changed[key] = round(best[key] * chance.uniform(1 - width, 1 + width), 3)
        found = badness(errors_of(cases, changed))
        if found < least:
            best, least = changed, found
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT")
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="FILE")
    parser.add_argument("--fit-ranks", type=int, help="fit only calls of as many ranks")
    parser.add_argument("--fit-operation", action="append", help="fit only calls of this operation; can be repeated")
    parser.add_argument("--seconds", type=float, default=60, help="of the search")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    cases = [(case, case.lowered()) for path in options.reports for case in cases_of(json.loads(path.read_text()))]

    def is_fitted(case: Case) -> bool:
        return options.fit_ranks in (None, case.ranks) and case.operation in (options.fit_operation or [case.operation])

    fitted = [one for one in cases if is_fitted(one[0])]
    if not fitted:
        parser.error("the reports have no such calls")
    machine = fit(fitted, START, options.seconds, options.seed)
    machine["source"] = f"fitted to {len(fitted)} of {len(cases)} calls"
    rows = []
    for (case, _), error in zip(cases, errors_of(cases, machine), strict=True):
        rows.append({**case._asdict(), "predicted_us": round(case.measured_us * (1 + error), 3),
                     "error": round(error, 4), "is_fitted": is_fitted(case)})  # fmt: skip
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    header = {
        "command": shlex.join(["tools/fit_machine.py", *sys.argv[1:]]),
        "commit": commit.strip(),
        "reports": [str(path) for path in options.reports],
        "fit": {"ranks": options.fit_ranks, "operations": options.fit_operation, "seconds": options.seconds},
        "description": machine,
    }
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    text = json.dumps(header, indent=1).removesuffix("\n}")
    options.output.write_text(f'{text},\n "calls": [\n  {lines}\n ]\n}}\n')
    for name in (True, False):
        errors = [abs(row["error"]) for row in rows if row["is_fitted"] is name]
        if errors:
            print(
                f"{'fitted' if name else 'left out'}: {len(errors)} calls, {sum(one <= 0.15 for one in errors)} within"
                f" 15%, median {statistics.median(errors):.1%}, largest {max(errors):.1%}"
            )


if __name__ == "__main__":
    main()
