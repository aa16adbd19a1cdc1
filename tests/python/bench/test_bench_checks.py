"""Counts of `narrowcast bench`, and how it checks results."""

from __future__ import annotations

import numpy as np
import pytest
from narrowcast._bench import operations, oracle, samples, tolerance
from narrowcast.types import value_type

BF16 = value_type("bfloat16")


def test_counts_and_sizes_follow_nccl_tests():
    assert operations.count_of("all_gather", 1000, BF16, 3) == 160
    assert operations.count_of("gather", 20, BF16, 3) == 3
    assert operations.count_of("all_reduce", 1001, BF16, 3) == 500
    assert operations.count_of("scatter", 1, BF16, 3) == 1
    assert operations.size_of("scatter", 160, BF16, 3) == 960
    assert [operations.bus_factor(name, 4) for name in ("all_reduce", "gather", "reduce", "sendrecv")] == [
        1.5,
        0.75,
        1,
        1,
    ]


def test_moved_data_is_compared_bit_for_bit():
    sample = samples.sample("random", "float32")
    call = operations.Call("all_gather", value_type("float32"), 3000, 1, 2)
    whole = np.concatenate([call.sent(sample, rank, 7) for rank in range(2)])
    assert call.count_wrong(whole, sample, 7) == 0
    assert call.count_wrong(whole, sample, 8) > 5900
    nan = np.full(6000, np.nan, np.float32)
    other = nan.copy()
    other.view(np.uint32)[5] ^= 1
    assert call.count_wrong(other, nan) == 1


def test_inputs_longer_than_the_sample_repeat_it():
    kind = value_type("float32")
    sample = samples.sample("normal", "float32")[:1000]
    call = operations.Call("reduce_scatter", kind, 3500, 1, 2)
    parts = [call.sent(sample, rank, 3)[3500:] for rank in range(2)]
    assert call.count_wrong(oracle.reduce(parts, "sum", kind), sample, 3) == 0


def _rounded_backwards(inputs, kind):
    total = inputs[-1]
    for bits in inputs[-2::-1]:
        total = oracle.reduce([total, bits], "sum", kind)
    return total


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64", "float8_e4m3"])
def test_sums_in_any_order_are_accepted_and_other_values_rejected(dtype):
    kind = value_type(dtype)
    inputs = [samples.of_rank(samples.sample("normal", dtype), rank, 5000) for rank in range(8)]
    found = _rounded_backwards(inputs, kind)
    twice = np.concatenate([found, found[:100]])
    assert tolerance.count_outside(twice, inputs, "sum", kind) == 0
    sign = 1 << (8 * kind.bytes - 1)
    unsigned = f"uint{8 * kind.bytes}"
    exact = oracle.widen(found, kind)
    large = np.flatnonzero(np.abs(exact) > 6)
    broken = found.copy()
    broken.view(unsigned)[large] ^= np.array(sign, unsigned)
    assert large.size > 5
    assert tolerance.count_outside(broken, inputs, "sum", kind) > 0.5 * large.size
    if kind.name != "float8_e4m3":
        assert tolerance.count_outside(broken, inputs, "sum", kind) == large.size


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max", "avg"])
def test_exact_results_are_within_the_tolerance(kind, op):
    for data in ("normal", "random"):
        inputs = [samples.of_rank(samples.sample(data, kind.name), rank, 3000) for rank in range(3)]
        assert tolerance.count_outside(oracle.reduce(inputs, op, kind), inputs, op, kind) == 0
