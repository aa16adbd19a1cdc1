"""Predicted times against measured ones, of the machines that have been measured."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import narrowcast
import pytest
from narrowcast import plan
from narrowcast._comm.explain import changes

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "tools"))
import fit_machine  # noqa: E402

RESULTS = ROOT / "bench" / "results"
MACHINE = json.loads((Path(narrowcast.__file__).with_name("data") / "machines" / "4xh200.json").read_text())
#: Of each file, how many calls are predicted within 15%, of how many, the largest error, and how many pairs of ways to
#: run a call are not ranked as measured. The descriptions are fitted to the files of FITTED.
FITTED = {
    "2xh200/2026-11-23_collectives_ctas.json": (32, 32, 0.15, 0),
    "2xh200/2026-11-24_collectives_normal.json": (32, 32, 0.14, 0),
    "2xh200/2026-11-24_tune.costs": (180, 181, 0.18, 0),
    "4xh200/2026-11-26_two_commits.json": (121, 128, 0.23, 0),
}
HELD_OUT = {
    "2xh100/2026-11-25_collectives_normal.json": (80, 80, 0.15, 0),
    "2xh100/2026-11-25_plan_bench.json": (46, 48, 0.18, 0),
    "2xh100/2026-11-25_two_commits.json": (253, 256, 0.16, 0),
    "2xh100/2026-11-26_collectives.json": (47, 48, 0.16, 0),
    "2xh200/2026-11-23_collectives.json": (55, 58, 0.18, 0),
    "2xh200/2026-11-26_collectives.json": (57, 58, 0.16, 0),
    "2xh200/2026-11-26_clusters.json": (129, 132, 0.19, 0),
    "4xh100/2026-11-26_collectives.json": (46, 48, 0.18, 0),
    "4xh200/2026-11-22_collectives.json": (62, 68, 0.21, 0),
    "4xh200/2026-11-26_plan_bench.json": (37, 40, 0.20, 0),
}
MEASURED = FITTED | HELD_OUT


def predictions(name: str) -> list[tuple[fit_machine.Case, float]]:
    """The calls of a file of at least 1 MiB, with their predicted times."""
    return [(case, case.predict(lowered, MACHINE)) for case, lowered in fit_machine.cases_of(RESULTS / name)]


@pytest.mark.parametrize("name", MEASURED)
def test_calls_are_predicted(name: str) -> None:
    found = predictions(name)
    errors = [round(abs(predicted / case.measured_us - 1), 4) for case, predicted in found]
    within, calls, largest, _ = MEASURED[name]
    assert (sum(error <= 0.15 for error in errors), len(errors)) == (within, calls)
    assert max(errors) <= largest


@pytest.mark.parametrize("name", MEASURED)
def test_ways_are_ranked_as_measured(name: str) -> None:
    """Two ways to run a call whose measured times differ by more than 15%."""
    times: dict[tuple[str, int, int, int], list[tuple[float, float]]] = defaultdict(list)
    for case, predicted in predictions(name):
        times[case.operation, case.ranks, case.ctas, case.nbytes].append((case.measured_us, predicted))
    pairs = wrong = 0
    for call in times.values():
        for one, other in pairwise(call):
            if not 1 / 1.15 <= one[0] / other[0] <= 1.15:
                pairs += 1
                wrong += (one[0] < other[0]) != (one[1] < other[1])
    assert pairs > 5
    assert wrong == MEASURED[name][3]


def test_the_shipped_descriptions_are_the_fitted_one() -> None:
    for name in plan.machines():
        machine = json.loads((ROOT / "python" / "narrowcast" / "data" / "machines" / f"{name}.json").read_text())
        keys = {*fit_machine.START, "ctas"}
        assert {key: machine[key] for key in keys} == {key: MACHINE[key] for key in keys}


def test_one_shot_and_two_shots_are_ranked_as_measured() -> None:
    """Between four H200 two shots were measured to be faster from a size that the selection of kernels knows."""

    def shots(count: int) -> int | None:
        return narrowcast.explain("all_reduce", count, dtype="int8", ranks=4, codec="raw").shots

    ((_, first), (switch, second)) = changes(shots, 1 << 14, 1 << 20)
    assert (first, second) == (1, 2)

    def microseconds(name: str, nbytes: int) -> float:
        return plan.build(name, "all_reduce", 4).simulate(nbytes, machine="4xh200").repeated_us

    for nbytes in (1 << 12, 1 << 14, 1 << 16, switch // 2):
        assert microseconds("one_shot", nbytes) < microseconds("two_shot", nbytes)
    for nbytes in (2 * switch, 1 << 20, 4 << 20):
        assert microseconds("two_shot", nbytes) < microseconds("one_shot", nbytes)
