"""Whether programs are faster with Narrowcast than with NCCL alone, from the step times of alternating runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import exp, inf, log, sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: The probability of a wrong difference between any two profiles that are alike.
_ERROR = 0.02
#: Differences that the comparison has to resolve: half the width of an interval.
RESOLUTION = 0.015
# Profiles are as fast if a larger difference is out of the question.
_LEAST_DIFFERENCE = 1.5 * RESOLUTION
# Noise beyond this number of standard deviations is cut off.
_HUBER = 1.5
_MEDIAN_TO_SIGMA = 1.4826
_FIT_ROUNDS = 20
_MOST_MARGIN = 5.0  # of logarithms: too few runs to know any
#: Rounds before which nothing is decided: two runs may be alike by accident.
LEAST_ROUNDS = 3


class Answer(str, Enum):
    """What the runs say about a profile, or about all of them."""

    FASTER = "faster"
    SLOWER = "slower"
    AS_FAST = "as fast"
    UNKNOWN = "unknown"
    """The runs vary too much."""


@dataclass(frozen=True)
class Difference:
    """The time of a step with one profile, compared with another one."""

    ratio: float
    """The estimate: below 1 if the profile is faster."""
    low: float
    high: float
    """With a probability of about 98%, all ratios of a comparison are between their `low` and `high`."""

    @property
    def margin(self) -> float:
        """Half the width of the interval, relative to the ratio."""
        return sqrt(self.high / self.low) - 1

    @property
    def may_be_faster(self) -> bool:
        """Whether the profile may be faster by more than the comparison resolves."""
        return self.low < 1 - _LEAST_DIFFERENCE

    @property
    def answer(self) -> Answer:
        if self.high < 1:
            return Answer.FASTER
        if self.low > 1:
            return Answer.SLOWER
        return Answer.AS_FAST if self.margin <= _LEAST_DIFFERENCE else Answer.UNKNOWN

    @property
    def is_settled(self) -> bool:
        """Whether more runs would not change the answer: it is precise, or the difference is beyond all doubt."""
        return self.margin <= RESOLUTION or abs(log(self.ratio)) > 2 * log(1 + self.margin)


class Comparison:
    """The runs so far.

    Logarithms of step times are the sum of an effect of the profile, one of the round, which is that of a machine that
    becomes warmer or busier, and noise, whose size all profiles share. So few runs of each suffice to know the noise.
    """

    def __init__(self, rounds: Sequence[Mapping[str, float]], comparisons: int) -> None:
        """rounds: the seconds of a step by profile; a profile may miss rounds.

        comparisons: number of profiles to compare with NCCL, also of those without runs.
        """
        names = list(dict.fromkeys(name for one in rounds for name in one))
        self._places = {name: place for place, name in enumerate(names)}
        runs = [
            (number, self._places[name], log(value)) for number, one in enumerate(rounds) for name, value in one.items()
        ]
        design = np.zeros((len(runs), len(names) + len(rounds) - 1))
        for row, (number, place, _) in enumerate(runs):
            design[row, place] = 1
            if number:
                design[row, len(names) + number - 1] = 1
        values = np.array([value for _, _, value in runs])
        solve = np.linalg.pinv(design).astype(np.float64)
        self._freedom = len(runs) - int(np.linalg.matrix_rank(design))
        self._effects, self._variance = _robust_fit(design, solve, values, self._freedom)
        self._inverse = solve @ solve.T
        self._quantile = _student(1 - _ERROR / comparisons / 2, self._freedom) if self._freedom else inf

    def difference(self, profile: str, other: str) -> Difference:
        contrast = np.zeros(len(self._effects))
        contrast[self._places[profile]] += 1
        contrast[self._places[other]] -= 1
        estimate = float(contrast @ self._effects)
        spread = float(contrast @ self._inverse @ contrast)
        half = self._quantile * sqrt(self._variance * spread) if self._freedom else inf
        half = min(half, _MOST_MARGIN)
        return Difference(exp(estimate), exp(estimate - half), exp(estimate + half))


def _robust_fit(design: Floats, solve: Floats, values: Floats, freedom: int) -> tuple[Floats, float]:
    """The effects and the variance of the noise, by an M-estimate of Huber: disturbed runs count little.

    solve: the pseudo-inverse of the design.
    """
    effects = solve @ values
    if not freedom:
        return effects, inf
    for _ in range(_FIT_ROUNDS):
        noise = values - design @ effects
        limit = _HUBER * _MEDIAN_TO_SIGMA * sqrt(len(values) / freedom) * float(np.median(np.abs(noise)))
        clipped = np.clip(noise, -limit, limit)
        effects = effects + solve @ clipped
    kept = float(np.mean(np.abs(noise) <= limit))
    return effects, float(clipped @ clipped) / freedom / kept**2


def _student(probability: float, freedom: int) -> float:
    """A quantile of Student's distribution, by the expansion of Cornish and Fisher (Abramowitz and Stegun, 26.7.5)."""
    z = NormalDist().inv_cdf(probability)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return float(sum(term / freedom**power for power, term in enumerate(terms)))


@dataclass(frozen=True)
class Verdict:
    answer: Answer
    best: str | None
    """The profile to use; None: NCCL alone."""
    differences: dict[str, Difference]
    """Of each profile from NCCL alone."""


def judge(rounds: Sequence[Mapping[str, float]], nccl: str, profiles: Sequence[str]) -> Verdict:
    """The verdict about the profiles that have runs, of those that are compared with NCCL alone; without any, as fast.

    Of the profiles that are faster than NCCL, the best is the first that is not slower than the fastest of them.
    """
    present = [name for name in profiles if any(name in one for one in rounds)]
    if not present:
        return Verdict(Answer.AS_FAST, None, {})
    comparison = Comparison(rounds, len(profiles))
    differences = {name: comparison.difference(name, nccl) for name in present}
    faster = [name for name in present if differences[name].answer is Answer.FASTER]
    if faster:
        fastest = min(faster, key=lambda name: differences[name].ratio)
        best = next(name for name in faster if comparison.difference(name, fastest).answer is not Answer.SLOWER)
        return Verdict(Answer.FASTER, best, differences)
    answer = Answer.AS_FAST
    if any(one.answer is Answer.UNKNOWN and one.may_be_faster for one in differences.values()):
        answer = Answer.UNKNOWN
    elif all(one.answer is Answer.SLOWER for one in differences.values()):
        answer = Answer.SLOWER
    return Verdict(answer, None, differences)


def needs_runs(rounds: Sequence[Mapping[str, float]], nccl: str, profiles: Sequence[str]) -> list[str]:
    """The profiles, of those that have runs, that another round should run; empty: the verdict will not change."""
    present = [name for name in profiles if any(name in one for one in rounds)]
    if len(rounds) < LEAST_ROUNDS or not present:
        return present
    comparison = Comparison(rounds, len(profiles))
    differences = {name: comparison.difference(name, nccl) for name in present}
    open_ = [name for name in present if not (differences[name].is_settled)]
    if not open_:
        return []
    # A profile that is surely slower than NCCL need not run again.
    return [
        name for name in present if not (differences[name].is_settled and differences[name].answer is Answer.SLOWER)
    ]
