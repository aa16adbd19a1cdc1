"""Predicted times against measured ones, of the machines that have been measured."""

from __future__ import annotations

import functools
import json
import sys
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import narrowcast
import pytest
from narrowcast import plan
from narrowcast._comm.explain import changes

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "tools"))
import fit_machine  # noqa: E402
import measured_calls  # noqa: E402

RESULTS = ROOT / "bench" / "results"
MACHINE = json.loads((Path(narrowcast.__file__).with_name("data") / "machines" / "4xh200.json").read_text())
#: Of each file, how many of the calls that were not measured again later are predicted within 15%, of how many, and the
#: largest error. The descriptions are fitted to the files of FITTED.
FITTED = {
    "2xh200/2026-11-24_tune.costs": (132, 132, 0.14),
    "2xh200/2026-11-23_collectives_ctas.json": (36, 36, 0.12),
    "2xh200/2026-11-24_collectives_normal.json": (16, 16, 0.1),
    "4xh200/2026-11-26_two_commits.json": (9, 9, 0.1),
    "2xh200/2026-11-26_clusters.json": (14, 14, 0.1),
    "2xh200/2026-11-27_plan_bench.json": (13, 13, 0.07),
}
HELD_OUT = {
    "2xh100/2026-11-25_plan_bench.json": (22, 22, 0.13),
    "2xh100/2026-11-25_two_commits.json": (64, 64, 0.15),
    "2xh100/2026-11-26_collectives.json": (52, 52, 0.15),
    "4xh100/2026-11-26_collectives.json": (58, 58, 0.14),
    "4xh200/2026-11-26_plan_bench_rings.json": (28, 28, 0.15),
    "2xh100/2026-11-27_collectives.json": (10, 10, 0.15),
    "2xh100/2026-11-27_plan_bench.json": (12, 12, 0.09),
    "2xh200/2026-11-27_collectives.json": (2, 2, 0.06),
    "2xh200/2026-11-27_collectives_sums.json": (8, 8, 0.1),
    "4xh100/2026-11-27_collectives.json": (10, 10, 0.11),
    "4xh100/2026-11-27_plan_bench.json": (6, 6, 0.14),
    "4xh200/2026-11-27_collectives.json": (30, 30, 0.13),
    "2xh200/2026-11-27_collectives_weights.json": (60, 60, 0.12),
    "4xh200/2026-11-27_collectives_weights.json": (60, 60, 0.15),
    "4xh200/2026-11-27_plan_bench.json": (16, 16, 0.13),
}
MEASURED = FITTED | HELD_OUT


@functools.cache
def predictions() -> dict[str, list[tuple[measured_calls.Case, float]]]:
    """The current calls of each file, with their predicted times."""
    found: dict[str, list[tuple[measured_calls.Case, float]]] = defaultdict(list)
    for case in measured_calls.current(case for name in MEASURED for case in measured_calls.cases_of(RESULTS / name)):
        found[case.file.removeprefix("bench/results/")].append((case, case.predict(MACHINE)))
    return found


@pytest.mark.parametrize("name", MEASURED)
def test_calls_are_predicted(name: str) -> None:
    errors = [round(abs(predicted / case.measured_us - 1), 4) for case, predicted in predictions()[name]]
    within, calls, largest = MEASURED[name]
    assert (sum(error <= 0.15 for error in errors), len(errors)) == (within, calls)
    assert max(errors) <= largest


@pytest.mark.parametrize("name", MEASURED)
def test_ways_are_ranked_as_measured(name: str) -> None:
    """Two ways to run a call, of which one is a plan or another codec, whose measured times differ by more than 15%."""
    times: dict[tuple[object, ...], list[tuple[measured_calls.Case, float]]] = defaultdict(list)
    for case, predicted in predictions()[name]:
        times[case.operation, case.ranks, case.ctas, case.nbytes].append((case, predicted))
    pairs, wrong = 0, set[tuple[str, str, str]]()
    for call in times.values():
        for (one, predicted), (other, predicted_other) in combinations(call, 2):
            if not 1 / 1.15 <= one.measured_us / other.measured_us <= 1.15:
                pairs += 1
                if (one.measured_us < other.measured_us) != (predicted < predicted_other):
                    wrong.add((f"{one.operation} {one.nbytes >> 20} MiB", *sorted([name_of(one), name_of(other)])))
    assert not wrong
    assert pairs > 5 or len(predictions()[name]) < 40


def name_of(case: measured_calls.Case) -> str:
    return f"{case.plan} {case.way}".strip()


def test_measurements_are_superseded_by_later_ones_of_the_same_call() -> None:
    """On machines of the same kind, with values that encoding shrinks as much."""
    first, *_, last = measured_calls.COMMITS
    case = measured_calls.Case("4xh200/a.json", first, "reduce", 4, "window", 64, 1 << 20, 0.697, 20)
    later = case._replace(file="4xh200/b.json", commit=last, ratio=0.698)
    assert measured_calls.current([case, later]) == [later]
    assert measured_calls.current([case, case]) == [case, case]
    for different in ({"file": "2xh200/b.json"}, {"ctas": 32}, {"nbytes": 2 << 20}, {"plan": "ring"}, {"ratio": 0.8}):
        other = later._replace(**different)
        assert measured_calls.current([case, other]) == [case, other]


def test_long_gathers_by_packets_between_two_ranks_have_become_faster() -> None:
    first, last = measured_calls.COMMITS[0], measured_calls.COMMITS[-1]
    gather = measured_calls.Case("2xh200/a.json", first, "all_gather", 2, "packets", 64, 2 << 20, 16 / 15, 6.3)

    def is_faster(case: measured_calls.Case) -> bool:
        return case._replace(commit=last).predict(MACHINE) < case.predict(MACHINE)

    assert is_faster(gather)
    for other in (gather._replace(nbytes=1 << 20), gather._replace(ranks=4), gather._replace(operation="all_to_all")):
        assert not is_faster(other)


def test_the_shipped_descriptions_are_the_fitted_one() -> None:
    for name in plan.machines():
        machine = json.loads((ROOT / "python" / "narrowcast" / "data" / "machines" / f"{name}.json").read_text())
        keys = {*fit_machine.START, *fit_machine.FIXED}
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
