"""Fits the description of a machine to measured collectives, and says how well it predicts others.

    fit_machine.py FILE... [--predict FILE]... [--start DESCRIPTION] -o RESULT

FILE is a report of `narrowcast bench`, a cost model of `narrowcast tune`, or a report of `narrowcast plan bench` for
plans of tools/gpu/sample_plans.py. The search begins with rounded numbers of
an earlier one. It minimizes the errors of the predictions (fourth powers, so that large errors count) of all calls of
at least 1 MiB that plans describe. Predictions are not smooth, so it goes on from places around the best one
(--restarts), and at last tries random changes of a few numbers (--changes), which are kept if they make errors smaller
or more calls predicted within 15%.
Calls of the files of --predict are predicted and not fitted. RESULT gets the description and every call with its
prediction; with `--rounds 0 --restarts 0 --changes 0`, of the description of --start. Needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from narrowcast import plan
from narrowcast._native.operations import describe
from narrowcast._native.plan import NativePlan

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools" / "gpu"))
import sample_plans  # noqa: E402

SMALLEST_BYTES = 1 << 20  # of the larger buffer
MOST_CTAS = 64
MOST_ERROR = 0.15
#: Weights that shrink as bfloat16 weights do, of which the curves of cost models are.
CURVES_RATIO = 0.6976
#: Where the search begins: rounded numbers of an earlier search.
START = {
    "link_gbps": 342, "link_response_share": 0.032, "link_packets_gbps": 333, "link_packets_response_share": 0.35,
    "link_latency_us": 0.88, "cta_move_gbps": 123, "cta_reduce_gbps": 110, "cta_encode_gbps": 34.2,
    "cta_decode_gbps": 143, "reducing_codec_share": 0.65, "slot_latency_us": 1.36, "coded_latency_us": 1.54,
    "reduce_latency_us": 1.77, "step_us": 0.68, "launch_us": 0.14, "slots_launch_us": 1.9,
}  # fmt: skip
Vector = npt.NDArray[np.float64]


class Case(NamedTuple):
    """A measured call."""

    file: str
    operation: str
    ranks: int
    way: str  #: packets, raw or window: values in packets, or blocks in slots with this codec
    ctas: int
    nbytes: int  #: of the larger buffer
    ratio: float  #: wire bytes / raw bytes
    measured_us: float
    is_one_shot: bool = False  #: a generated kernel runs the plan of tools/gpu/sample_plans.py

    def lowered(self) -> NativePlan:
        """The plan that the kernel implements, in the form in which it runs it."""
        codec = "window" if self.way == "window" else "raw"
        by_blocks = self.way != "packets"
        reduces = self.operation in ("reduce", "reduce_scatter", "all_reduce")
        relays = by_blocks and (self.operation == "reduce" or (self.operation == "broadcast" and self.ranks > 2))
        if self.is_one_shot:
            model = json.loads(sample_plans.one_shot(self.ranks, codec))
        else:
            name = "relay" if relays else "all_pairs"
            model = json.loads(plan.build(name, self.operation, self.ranks, codec=codec).json())
        for channel in model["channels"]:
            channel["packets"] = not by_blocks
            channel["depth"] = 8
        if by_blocks and reduces:  # every warp does everything
            for rank in model["ranks"]:
                rank["groups"] = [{"steps": [step for group in rank["groups"] for step in group["steps"]]}]
        if by_blocks and not reduces and not relays:  # every message is encoded, by a warp of its own
            model["in_place"] = "no"
            for rank in model["ranks"]:
                rank["groups"] = [{"steps": [{**step, "to": [to]}]} for group in rank["groups"]
                                  for step in group["steps"] for to in step["to"]]  # fmt: skip
        return NativePlan.read(json.dumps(model)).lower()

    def predict(self, lowered: NativePlan, machine: dict[str, Any]) -> float:
        """The time of a call in a row of calls, in microseconds."""
        parts = self.ranks if describe(self.operation).parted else 1
        text = json.dumps({**machine, "ctas": self.ctas})
        report = lowered.simulate(text, piece_bytes=self.nbytes // parts, ratio=min(1, self.ratio))
        return float(report["repeated_us"])


def is_described(operation: str) -> bool:
    """Whether calls of an operation have a plan."""
    return operation not in ("send", "sendrecv", "all_to_all_v")


def cases_of_report(name: str, report: dict[str, Any]) -> Iterable[Case]:
    for run in report["runs"]:
        if not is_described(run["operation"]):
            continue
        for row in run["rows"]:
            if row["contender"] == "narrowcast" and row["codec"] in ("raw", "window"):
                way = "packets" if row["ratio"] > 1 else row["codec"]  # packets are larger than their values
                yield Case(name, run["operation"], run["ranks"], way, run["ctas"] or MOST_CTAS, row["size_bytes"],
                           row["ratio"], row["time_us"])  # fmt: skip


def cases_of_plan_report(name: str, report: dict[str, Any]) -> Iterable[Case]:
    ranks = int(Path(name).parent.name[0])
    for measured in report["plans"]:
        built, _, codec = measured["plan"].rpartition("_")
        operation = "all_gather" if built == "all_gather" else "all_reduce"
        for row in measured["rows"]:
            way = "packets" if row["built_in"] == "packets" else codec
            ratio = CURVES_RATIO if way == "window" else 1.0
            case = Case(name, operation, ranks, way, MOST_CTAS, row["bytes"], ratio, row["built_in_microseconds"])
            yield case
            # The kernels of these operations implement the other plans.
            yield case._replace(measured_us=row["plan_microseconds"], is_one_shot=built == "one_shot")


def cases_of_costs(name: str, text: str) -> Iterable[Case]:
    ways = {"packets": "packets", "blocks:raw": "raw", "blocks:window": "window"}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 5 or fields[2] != "nvlink" or fields[3] not in ways or not is_described(fields[0]):
            continue
        operation, ranks, way = fields[0], int(fields[1]), ways[fields[3]]
        parts = ranks if describe(operation).parted else 1
        for point in fields[4:]:
            piece_bytes, microseconds = point.split(":")
            ratio = CURVES_RATIO if way == "window" else 1.0
            yield Case(name, operation, ranks, way, MOST_CTAS, int(piece_bytes) * parts, ratio, float(microseconds))


def cases_of(path: Path) -> list[tuple[Case, NativePlan]]:
    """The calls of a file that are long enough, with their plans."""
    text = path.read_text()
    name = str(path.resolve().relative_to(ROOT)) if path.resolve().is_relative_to(ROOT) else path.name
    if path.suffix == ".costs":
        found = cases_of_costs(name, text)
    else:
        report = json.loads(text)
        found = cases_of_plan_report(name, report) if "plans" in report else cases_of_report(name, report)
    return [(case, case.lowered()) for case in found if case.nbytes >= SMALLEST_BYTES]


def machine_of(values: dict[str, float], ranks: int) -> dict[str, Any]:
    return {"narrowcast_machine": 1, "hosts": 1, "gpus_per_host": ranks, "ctas": MOST_CTAS, **values}


def values_of(logarithms: Vector) -> dict[str, float]:
    values = {key: float(value) for key, value in zip(START, np.exp(logarithms), strict=True)}
    return values | {"reducing_codec_share": min(1.0, values["reducing_codec_share"])}


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


def fit(
    cases: list[tuple[Case, NativePlan]], start: dict[str, float], rounds: int, restarts: int, changes: int
) -> dict[str, float]:
    """The best description that was found."""
    ranks = max(case.ranks for case, _ in cases)

    def errors_of(logarithms: Vector) -> Vector:
        machine = machine_of(values_of(logarithms), ranks)
        return np.array([np.log(case.predict(lowered, machine) / case.measured_us) for case, lowered in cases])

    found = search(errors_of, np.log(np.array([start[key] for key in START])), rounds, restarts)
    found = refine(errors_of, found, changes)
    return {key: float(f"{value:.4g}") for key, value in values_of(found).items()}


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
    fitted = [one for path in options.files for one in cases_of(path)]
    others = [one for path in options.predict for one in cases_of(path)]
    if not fitted:
        parser.error("the files have no such calls")
    start = START if options.start is None else json.loads(options.start.read_text())
    start = {key: start[key] for key in START}
    values = fit(fitted, start, options.rounds, options.restarts, options.changes)
    machine = machine_of(values, max(case.ranks for case, _ in fitted + others))
    rows = []
    for is_fitted, cases in ((True, fitted), (False, others)):
        for case, lowered in cases:
            predicted = case.predict(lowered, machine)
            rows.append({**case._asdict(), "predicted_us": round(predicted, 3),
                         "error": round(predicted / case.measured_us - 1, 4), "is_fitted": is_fitted})  # fmt: skip
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
    for name in dict.fromkeys(row["file"] for row in rows):
        errors = [abs(row["error"]) for row in rows if row["file"] == name]
        print(
            f"{name}: {len(errors)} calls, {sum(one <= MOST_ERROR for one in errors)} within 15%,"
            f" median {statistics.median(errors):.1%}, largest {max(errors):.1%}"
        )


if __name__ == "__main__":
    main()
