"""Ratios are those of the frames, and are compared with the entropy of exponents."""

from __future__ import annotations

import json

import narrowcast
import numpy as np
import pytest
from narrowcast.ratios import TotalRatio, exponent_counts, exponent_entropy, tensor_ratios, trailing_zero_bits
from narrowcast.types import VALUE_TYPES, value_type
from sample_values import normal


def test_the_entropy_of_known_distributions():
    kind = value_type("bfloat16")
    one, four = np.zeros(256, np.int64), np.zeros(256, np.int64)
    one[7] = 100
    four[:4] = 25
    assert exponent_entropy(one, kind) == 8 / 16
    assert exponent_entropy(four, kind) == 10 / 16
    assert exponent_entropy(np.full(2048, 3), value_type("float64")) == 1
    assert exponent_entropy(np.zeros(1, np.int64), value_type("int32")) == 1


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_exponents_are_counted_as_by_numpy(name):
    kind = value_type(name)
    values = normal(name, 5000)
    values = values[np.isfinite(values) & (np.abs(values) >= np.finfo(name).tiny)]
    bias = (1 << (kind.exponent_bits - 1)) - 1
    expected = np.bincount(np.frexp(values)[1] - 1 + bias, minlength=1 << kind.exponent_bits)
    assert np.array_equal(exponent_counts(values.view(np.uint8), kind), expected)


@pytest.mark.parametrize("kind", [kind for kind in VALUE_TYPES if kind.is_float], ids=lambda kind: kind.name)
def test_window_approaches_the_entropy_of_normal_values(tmp_path, kind):
    path = tmp_path / "values"
    path.write_bytes(normal(kind.name, 1 << 18).tobytes())
    (row,) = tensor_ratios(path, dtype=kind.name)
    # In types of one byte the overhead of codes is larger.
    slack = 1.12 if kind.bytes == 1 else 1.08
    assert row.exponent_entropy <= row.ratio <= slack * row.exponent_entropy


@pytest.mark.parametrize(
    ("name", "zeros"), [("float64", 29), ("float64", 45), ("float32", 13), ("float32", 16), ("float16", 3)]
)
def test_values_of_a_narrower_type_shrink_as_that_type_does(tmp_path, name, zeros):
    kind = value_type(name)
    values = normal(name, 1 << 16).view(f"uint{8 * kind.bytes}") >> zeros << zeros
    path = tmp_path / "values"
    path.write_bytes(values.tobytes())
    (row,) = tensor_ratios(path, dtype=name)
    assert row.trailing_zeros == pytest.approx(1 - zeros / (8 * kind.bytes), abs=0.001)
    assert row.bound == row.exponent_entropy + row.trailing_zeros - 1
    assert row.bound <= row.ratio <= 1.08 * row.bound
    assert row.as_json()["trailing_zeros"] == row.trailing_zeros
    assert TotalRatio.of([row, row]).bound == pytest.approx(row.bound)


def test_trailing_zeros_are_those_of_all_values_of_a_block():
    kind = value_type("float32")
    bits = np.full(2500, 0x3F800000, np.uint32)  # 1.0: no mantissa
    assert trailing_zero_bits(bits.view(np.uint8), kind) == 23 * 2500
    bits[1030] |= 1 << 5
    assert trailing_zero_bits(bits.view(np.uint8), kind) == 23 * (2500 - 1024) + 5 * 1024
    assert trailing_zero_bits(bits.view(np.uint8), value_type("int32")) == 0
    assert trailing_zero_bits(np.zeros(0, np.uint8), kind) == 0


def test_rows_agree_with_the_frames(slices):
    rows = list(tensor_ratios(slices))
    assert [row.tensor for row in rows] == _names(slices)
    for row in rows:
        assert row.codec == "window"
        assert 0 < row.bound <= row.ratio < 1
        assert 0 < row.escape_share < 0.1
    (raw_row, *_) = tensor_ratios(slices, codec="raw")
    assert (raw_row.codec, raw_row.widths) == ("raw", {})
    assert raw_row.ratio == pytest.approx(1, abs=1e-3)


def _names(path):
    header = path.read_bytes()
    length = int.from_bytes(header[:8], "little")
    entries = json.loads(header[8 : 8 + length])
    return [name for name in entries if name != "__metadata__"]


def test_the_checksum_does_not_change_the_size():
    values = normal("bfloat16", 5000)
    sizes = {narrowcast.encode(values, dtype="bfloat16", checksum=on).size for on in (True, False)}
    assert len(sizes) == 1
