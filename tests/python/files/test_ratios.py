"""Ratios are those of the frames, and are compared with the entropy of exponents."""

from __future__ import annotations

import json
import zlib

import narrowcast
import numpy as np
import pytest
from narrowcast.ratios import exponent_counts, exponent_entropy, tensor_ratios
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


def test_the_entropy_of_exponents_is_no_bound_of_other_codecs(tmp_path):
    # Values of bfloat16 in float32: half of the bits are zeros.
    values = normal("float32", 1 << 14).view(np.uint32) & 0xFFFF0000
    path = tmp_path / "values"
    path.write_bytes(values.tobytes())
    (row,) = tensor_ratios(path, dtype="float32")
    assert len(zlib.compress(values.tobytes(), 1)) / values.nbytes < row.exponent_entropy <= row.ratio
    assert row.as_json()["exponent_entropy"] == row.exponent_entropy


def test_rows_agree_with_the_frames(slices):
    rows = list(tensor_ratios(slices))
    assert [row.tensor for row in rows] == _names(slices)
    for row in rows:
        assert row.codec == "window"
        assert 0 < row.exponent_entropy <= row.ratio < 1
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
