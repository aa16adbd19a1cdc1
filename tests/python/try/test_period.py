"""The period of sequences of calls."""

from __future__ import annotations

import numpy as np
import pytest
from narrowcast._try import period

# A call is (operation, count); 4-byte values.
REDUCE, GATHER, SCATTER = 9, 6, 8
GRADIENTS = [(REDUCE, 100_000), (REDUCE, 100_000), (REDUCE, 70_000)]
NORM, LOSS = (REDUCE, 1), (REDUCE, 2)
START_UP = [(1, 5000 + number) for number in range(40)]


def calls_of(sequence, dtype=7):
    operations, counts = zip(*sequence, strict=True)
    counts = np.array(counts, np.uint64)
    return period.Calls(
        operations=np.array(operations, np.uint8),
        dtypes=np.full(len(counts), dtype, np.uint8),
        peers=np.zeros(len(counts), np.int32),
        counts=counts,
        sizes=counts * np.uint64(4),
    )


def found(sequence):
    """The number of calls of a step, and of steps."""
    calls = calls_of(sequence)
    pattern = period.find(calls)
    if pattern is None:
        return None
    begins, ends = period.steps(calls, pattern)
    assert len(begins) == len(ends)
    assert (begins < ends).all()
    assert (ends[:-1] <= begins[1:]).all()
    return pattern.calls, len(begins)


# A step ends where the next one begins, so the last one, and that before a gap, may not be found.


def test_equal_steps_are_found_after_the_start():
    assert found(START_UP + GRADIENTS * 50) == (3, 49)


def test_a_step_may_be_a_single_call():
    assert found([(REDUCE, 1 << 20)] * 50) == (1, 49)


def test_small_calls_belong_to_the_step_if_there_are_no_others():
    assert found([NORM, LOSS] * 50) == (2, 49)


def test_a_norm_in_every_step_and_a_loss_in_some_do_not_change_the_step():
    sequence = []
    for number in range(60):
        sequence += [*GRADIENTS, NORM]
        if number % 7 == 0:
            sequence.append(LOSS)
    assert found(sequence) == (3, 59)


def test_large_calls_of_every_tenth_step_do_not_change_the_step():
    sequence = []
    for number in range(200):
        sequence += [*GRADIENTS, *[(GATHER, 50_000)] * (number % 10 == 9)]
    length, steps = found(sequence)
    assert length == 3
    assert 179 <= steps <= 180


def test_steps_of_many_equal_calls_and_another_one_are_whole():
    assert found(([(REDUCE, 8192)] * 64 + [(GATHER, 9000)]) * 20)[0] == 65


def test_no_call_needs_to_be_unique_in_a_step():
    step = [(REDUCE, 5000), (GATHER, 6000), (REDUCE, 5000), (REDUCE, 5000), (GATHER, 6000), (GATHER, 6000)]
    assert found(step * 40)[0] == 6


def test_gradients_that_accumulate_over_micro_batches_are_one_step():
    micro = [(GATHER, 40_000), (GATHER, 40_000)]
    assert found((micro * 4 + [(SCATTER, 40_000), (SCATTER, 30_000)]) * 30) == (10, 29)


def test_an_evaluation_between_steps_is_left_out():
    sequence = []
    for _ in range(4):
        sequence += GRADIENTS * 25 + [(GATHER, 90_000)] * 10
    length, steps = found(sequence)
    assert length == 3
    assert 90 <= steps <= 100


def test_skipped_and_additional_calls_cost_only_their_steps():
    generator = np.random.default_rng(1)
    sequence = []
    for _ in range(200):
        step = list(GRADIENTS)
        if generator.random() < 0.05:
            step.pop(int(generator.integers(len(step))))
        if generator.random() < 0.05:
            step.insert(int(generator.integers(len(step))), (GATHER, 12_345))
        sequence += step
    length, steps = found(sequence)
    assert length == 3
    assert 160 <= steps <= 199


def test_calls_may_change_places_within_a_step():
    generator = np.random.default_rng(2)
    sequence = []
    for _ in range(60):
        between = [(GATHER, 20_000), (SCATTER, 20_000), (GATHER, 30_000)]
        generator.shuffle(between)
        sequence += [(REDUCE, 100_000), *map(tuple, between)]
    assert found(sequence) == (4, 59)


def test_a_pattern_that_changes_for_good_is_followed():
    other = [(GATHER, 50_000), (SCATTER, 60_000)]
    assert found(GRADIENTS * 30 + other * 100) == (2, 99)


def test_sizes_may_vary_if_the_operations_have_a_period():
    generator = np.random.default_rng(3)
    sequence = []
    for _ in range(50):
        tokens = int(generator.integers(10_000, 90_000))
        sequence += [(GATHER, tokens), (REDUCE, tokens), (SCATTER, tokens)]
    assert found(sequence) == (3, 49)


def test_steps_of_thousands_of_calls_are_found():
    counts = np.random.default_rng(6).integers(5000, 5050, 10_000)
    assert found([(REDUCE, int(count)) for count in counts] * 30)[0] == 10_000


@pytest.mark.parametrize(
    "sequence",
    [
        [LOSS],
        GRADIENTS * 3,
        START_UP,
        [(REDUCE, int(count)) for count in np.random.default_rng(4).integers(5000, 90_000, 500)],
        [(int(one), 5000) for one in np.random.default_rng(5).integers(0, 9, 2000)],
    ],
    ids=["one call", "too few steps", "start only", "random sizes", "random operations"],
)
def test_calls_without_a_period_have_none(sequence):
    assert found(sequence) is None


def test_the_pattern_of_one_run_finds_the_steps_of_another():
    calls = calls_of(START_UP + GRADIENTS * 50)
    pattern = period.find(calls)
    other = calls_of(START_UP[:7] + GRADIENTS * 4 + [(GATHER, 7777)] + GRADIENTS * 4)
    begins, _ = period.steps(other, pattern)
    assert begins[0] in (7, 8, 9)
    assert len(begins) == 6
    assert len(period.steps(calls_of([(GATHER, 9000)] * 40), pattern)[0]) == 0
