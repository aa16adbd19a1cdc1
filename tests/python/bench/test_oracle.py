"""The NumPy oracle, checked with exhaustive patterns and an independent library."""

from __future__ import annotations

import numpy as np
import pytest
from narrowcast._bench import oracle
from narrowcast.types import value_type

NARROW = ["bfloat16", "float16", "float8_e4m3", "float8_e5m2"]


@pytest.mark.parametrize("name", NARROW)
def test_every_pattern_survives_widening_and_narrowing(name):
    kind = value_type(name)
    bits = np.arange(1 << 8 * kind.bytes, dtype=np.uint32).astype(kind.numpy if name != "float16" else np.uint16)
    values = bits.view(kind.numpy)
    back = oracle.narrow(oracle.widen(values, kind), kind)
    assert oracle.count_wrong(back, values, kind) == 0


@pytest.mark.parametrize("name", NARROW)
def test_rounding_agrees_with_ml_dtypes(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    theirs = {
        "bfloat16": ml_dtypes.bfloat16,
        "float16": np.float16,
        "float8_e4m3": ml_dtypes.float8_e4m3fn,
        "float8_e5m2": ml_dtypes.float8_e5m2,
    }[name]
    kind = value_type(name)
    random = np.random.default_rng(0)
    values = np.concatenate(
        [
            random.integers(0, 1 << 32, 200_000, np.uint32).view(np.float32),
            (random.standard_normal(100_000) * 10.0 ** random.integers(-8, 8, 100_000)).astype(np.float32),
            # Ties: halfway between neighbours of 8-bit floats.
            (np.arange(-4096, 4096) / 64).astype(np.float32),
            np.array([464, 465, 448, 61440, 61439, 65504, 65520, np.inf, -np.inf, 0.0, -0.0, np.nan], np.float32),
        ]
    )
    with np.errstate(all="ignore"):
        expected = values.astype(theirs).view(kind.numpy)
    assert oracle.count_wrong(oracle.narrow(values, kind), expected, kind) == 0


def test_differences_of_one_bit_are_counted_and_zeros_have_signs():
    kind = value_type("float32")
    a = np.array([0.0, 1.0, np.nan, np.nan], np.float32)
    b = np.array([-0.0, 1.0, -np.nan, 1.0], np.float32)
    assert oracle.count_wrong(a, b, kind) == 2


def test_minus_zero_is_smaller_than_zero():
    kind = value_type("float32")
    zeros = [np.array([0.0, -0.0], np.float32), np.array([-0.0, 0.0], np.float32)]
    assert np.signbit(oracle.reduce(zeros, "min", kind)).tolist() == [True, True]
    assert np.signbit(oracle.reduce(zeros, "max", kind)).tolist() == [False, False]


def test_integer_averages_truncate_toward_zero():
    kind = value_type("int32")
    ranks = [np.array(values, np.int32) for values in ([7, -7, 6], [0, 0, 0], [0, 0, 0])]
    assert oracle.reduce(ranks, "avg", kind).tolist() == [2, -2, 2]
