"""Finds the period of a sequence of calls: a program that trains, or generates tokens, repeats them every step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]

#: A period is found if it repeats this often.
LEAST_REPEATS = 5
#: Calls up to this size, such as those for norms, losses and barriers, are left out where others have a period.
SMALL_BYTES = 4096
# Of the calls after the first repetition, this part must belong to repetitions.
_LEAST_COVERED = 0.6
# Shorter periods are preferred to longer ones if they explain nearly as many calls.
_ENOUGH_OF_BEST = 0.85
# Of a long run, only the last calls are looked at: enough for ten steps of any program, and a second of work.
_MOST_CALLS = 200_000
# Lengths of the sequences of calls that may begin a step.
_BEGINNINGS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Pattern:
    """The calls of a step, in a form that finds them in the calls of other runs, too."""

    has_counts: bool
    """Calls are told apart by their counts. If not, only by operation, type and peer: counts vary between steps."""
    has_small: bool
    """Small calls belong to the step."""
    calls: int
    """Number of calls of a step."""
    first_calls: int
    """Number of calls that begin a step, and nowhere else within it occur one after another."""
    first: int
    """Their hash."""
    content: int
    """The sum of the keys of all calls, so that calls may change places, as those of several threads do."""


@dataclass(frozen=True)
class Calls:
    """The calls of a communicator, in the order in which they were made."""

    operations: npt.NDArray[np.uint8]
    dtypes: npt.NDArray[np.uint8]
    peers: npt.NDArray[np.int32]
    counts: npt.NDArray[np.uint64]
    sizes: npt.NDArray[np.uint64]
    """In bytes."""

    def last(self, count: int) -> Calls:
        return Calls(*(values[-count:] for values in vars(self).values()))


def find(calls: Calls) -> Pattern | None:
    """The period of calls; None if they have none.

    Calls before the first step, steps with more or fewer calls, and other calls between steps do not matter if most
    steps are alike. If the pattern changes for good, it is one that most of the calls after its first step follow.
    """
    calls = calls.last(_MOST_CALLS)
    for has_counts in (True, False):
        # A step of a single call, of any size, would be found in any sequence of calls of one operation.
        least_calls = 1 if has_counts else 2
        trivial = None
        for has_small in (False, True):
            found = _find(_keys(calls, has_counts, has_small)[0], least_calls)
            if found is None:
                continue
            pattern = Pattern(has_counts, has_small, *found)
            if pattern.calls > 1:
                return pattern
            trivial = trivial or pattern
        if trivial is not None:
            return trivial
    return None


def steps(calls: Calls, pattern: Pattern) -> tuple[Indices, Indices]:
    """The indices of the calls at which the steps with this pattern begin, and of the first calls after each."""
    keys, places = _keys(calls, pattern.has_counts, pattern.has_small)
    if len(keys) <= pattern.first_calls:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    begins = np.flatnonzero(_hashes(keys, pattern.first_calls) == np.uint64(pattern.first))
    sums = _prefix_sums(keys)
    are_steps = sums[begins[1:]] - sums[begins[:-1]] == np.uint64(pattern.content)
    return places[begins[:-1][are_steps]], places[begins[1:][are_steps]]


def _keys(calls: Calls, has_counts: bool, has_small: bool) -> tuple[Keys, Indices]:
    """A number for each call that is the same for equal calls of any run, and the indices of these calls."""
    keys = calls.operations.astype(np.uint64) | calls.dtypes.astype(np.uint64) << np.uint64(8)
    keys = _mixed(keys | calls.peers.astype(np.uint32).astype(np.uint64) << np.uint64(16))
    if has_counts:
        keys = _mixed(keys + calls.counts)
    places = np.arange(len(keys)) if has_small else np.flatnonzero(calls.sizes > SMALL_BYTES)
    return keys[places], places


def _mixed(words: Keys) -> Keys:
    """The finalizer of SplitMix64."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ words >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ words >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed: Keys = words ^ words >> np.uint64(31)
    return mixed


def _hashes(keys: Keys, length: int) -> Keys:
    """The hash of the `length` calls from each place on."""
    hashes, hashed = keys, 1
    while hashed < length:
        hashes = hashes[:-hashed] * np.uint64(0xD1342543DE82EF95) + _mixed(hashes[hashed:])
        hashed *= 2
    return hashes


def _prefix_sums(keys: Keys) -> Keys:
    return np.concatenate([np.zeros(1, np.uint64), np.cumsum(keys, dtype=np.uint64)])


def _find(keys: Keys, least_calls: int) -> tuple[int, int, int, int] | None:
    """The last four fields of a pattern.

    A candidate is any sequence of calls that begins a step. The calls between two of its occurrences are the step if
    they are the same most of the time. Longer beginnings are needed where no single call occurs once a step.
    """
    candidates: list[tuple[int, int, int, int, int, int]] = []
    sums = _prefix_sums(keys)
    for length in _BEGINNINGS:
        if len(keys) <= length * LEAST_REPEATS:
            break
        hashes = _hashes(keys, length)
        order = np.argsort(hashes, kind="stable")
        is_same = hashes[order[1:]] == hashes[order[:-1]]
        begins, ends = order[:-1][is_same], order[1:][is_same]
        contents = sums[ends] - sums[begins]
        _, firsts, repeats = np.unique(_mixed(hashes[begins]) + contents, return_index=True, return_counts=True)
        for place in np.flatnonzero(repeats >= LEAST_REPEATS):
            begin = begins[firsts[place]]
            count = int(ends[firsts[place]] - begin)
            covered, followed = int(repeats[place]) * count, len(keys) - int(begin)
            if count >= least_calls and covered >= _LEAST_COVERED * followed:
                content = int(contents[firsts[place]])
                candidates.append((covered, count, length, int(begin), int(hashes[begin]), content))
    if not candidates:
        return None
    enough = _ENOUGH_OF_BEST * max(covered for covered, *_ in candidates)
    eligible = [one for one in candidates if one[0] >= enough]
    # Where every step has many equal calls and another one, these calls alone would be found as the shortest period.
    eligible = [one for one in eligible if one[1] > 1] or eligible
    # A call that occurs twice in a step has a part of the step between its occurrences. It explains less than the step.
    shortest = min(count for _, count, *_ in eligible)
    eligible = [one for one in eligible if one[1] < 2 * shortest]
    _, count, length, _, first, content = max(eligible, key=lambda one: (one[0], -one[2], -one[3]))
    return count, length, first, content
