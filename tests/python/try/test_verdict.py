"""The verdict about step times: right for differences of 3%, and no difference where there is none."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from narrowcast._try.verdict import LEAST_ROUNDS, Answer, judge, needs_runs

ROUNDS = 8
PROFILES = ("default", "ctas-64", "ctas-16", "raw")
# Standard deviations of runs, and the part of runs that something disturbs for a while.
QUIET, BUSY, DISTURBED = (0.004, 0.0), (0.01, 0.0), (0.006, 0.08)


def tried(generator, factors, noise, disturbed):
    """Rounds of runs as `narrowcast try` makes them, of a machine that also changes between rounds."""
    rounds = []
    names = list(factors)
    while names and len(rounds) < ROUNDS:
        of_round = generator.normal(0, noise)
        rounds.append({})
        for name in ["nccl", *names]:
            logarithm = of_round + generator.normal(0, noise)
            if generator.random() < disturbed:
                logarithm += generator.exponential(0.06)
            rounds[-1][name] = 0.06 * factors.get(name, 1) * np.exp(logarithm)
        names = needs_runs(rounds, "nccl", list(factors))
    return rounds


def answers(factors, noise, repetitions=100):
    """How often each answer, with the best profile, was given; and the mean number of runs."""
    generator = np.random.default_rng(7)
    counts, runs = Counter(), 0
    for _ in range(repetitions):
        rounds = tried(generator, factors, *noise)
        runs += sum(map(len, rounds))
        found = judge(rounds, "nccl", list(factors))
        counts[found.answer, found.best] += 1
    return {answer: count / repetitions for answer, count in counts.items()}, runs / repetitions


@pytest.mark.parametrize("noise", [QUIET, BUSY, DISTURBED])
@pytest.mark.parametrize("profiles", [PROFILES[:1], PROFILES])
def test_a_profile_that_is_3_percent_faster_is_found(profiles, noise):
    found, _ = answers({name: 0.97 if name == profiles[-1] else 1.0 for name in profiles}, noise)
    assert found[Answer.FASTER, profiles[-1]] >= 0.9


@pytest.mark.parametrize("noise", [QUIET, BUSY, DISTURBED])
@pytest.mark.parametrize("profiles", [PROFILES[:1], PROFILES])
def test_no_difference_is_claimed_where_there_is_none(profiles, noise):
    found, _ = answers(dict.fromkeys(profiles, 1.0), noise)
    assert found.get((Answer.AS_FAST, None), 0) + found.get((Answer.UNKNOWN, None), 0) >= 0.95
    if noise is QUIET:
        assert found[Answer.AS_FAST, None] >= 0.95


@pytest.mark.parametrize("noise", [QUIET, BUSY])
def test_nccl_that_is_3_percent_faster_is_found(noise):
    found, _ = answers({"default": 1.03, "ctas-64": 1.03, "ctas-16": 1.08, "raw": 1.05}, noise)
    assert found[Answer.SLOWER, None] >= 0.9


def test_a_quiet_machine_needs_few_runs_and_a_clear_loser_is_dropped():
    _, runs = answers(dict.fromkeys(PROFILES, 1.0), QUIET, 50)
    assert runs < (LEAST_ROUNDS + 1) * (1 + len(PROFILES))
    generator = np.random.default_rng(8)
    rounds = tried(generator, {"default": 0.995, "ctas-16": 1.3}, 0.01, 0)
    assert sum("ctas-16" in one for one in rounds) == LEAST_ROUNDS < len(rounds)


def test_of_profiles_that_are_alike_the_first_is_the_best():
    found, _ = answers({"default": 0.95, "ctas-64": 0.949, "ctas-16": 0.93, "raw": 0.99}, QUIET, 50)
    assert found[Answer.FASTER, "ctas-16"] >= 0.9
    found, _ = answers({"default": 0.95, "ctas-64": 0.949}, QUIET, 50)
    assert found[Answer.FASTER, "default"] >= 0.9


def test_two_rounds_of_runs_that_vary_give_no_answer():
    rounds = [{"nccl": 1.0, "default": 1.1}, {"nccl": 1.2, "default": 0.9}]
    assert needs_runs(rounds, "nccl", ["default"]) == ["default"]
    found = judge(rounds, "nccl", ["default"])
    assert (found.answer, found.best) == (Answer.UNKNOWN, None)


def test_the_intervals_contain_the_true_ratio():
    generator = np.random.default_rng(9)
    inside = 0
    for _ in range(200):
        rounds = [
            {name: factor * np.exp(generator.normal(0, 0.02)) for name, factor in (("nccl", 1), ("default", 0.9))}
            for _ in range(5)
        ]
        difference = judge(rounds, "nccl", ["default"]).differences["default"]
        inside += difference.low <= 0.9 <= difference.high
        assert difference.low < difference.ratio < difference.high
    assert 190 <= inside < 200
