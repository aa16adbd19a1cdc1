"""Files of small tensors hardly grow, whatever their values, and are processed without work per tensor."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import numpy as np
import pytest
from narrowcast.files import decode_file, encode_file, frames_of
from narrowcast.ratios import tensor_ratios
from sample_values import normal

BYTES = {"F32": 4, "BF16": 2, "F16": 2, "F64": 8, "I64": 8, "BOOL": 1, "F8_E4M3": 1}


def write(path: Path, kinds: list[str], counts: list[int], tensors: int, *, data: bytes | None = None) -> None:
    """A safetensors file of tensors whose types and counts take turns. data: random by default."""
    header, at = {}, 0
    for i in range(tensors):
        kind, count = kinds[i % len(kinds)], counts[i % len(counts)]
        end = at + BYTES[kind] * count
        header[f"t{i}"] = {"dtype": kind, "shape": [count], "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    content = np.random.default_rng(0).bytes(at) if data is None else (data * (at // len(data) + 1))[:at]
    path.write_bytes(len(text).to_bytes(8, "little") + text + content)


@pytest.mark.parametrize("kinds", [["F32"], ["BF16", "F32", "I64"], ["BF16", "F16"], list(BYTES)], ids=",".join)
@pytest.mark.parametrize(
    ("counts", "tensors"),
    [([1], 20_000), ([0, 1, 7], 5000), ([600, 2600], 2000), ([2049], 1000), ([5000, 1], 1000), ([33_000], 60)],
)
def test_files_of_random_values_grow_by_at_most_half_a_percent(tmp_path, kinds, counts, tensors):
    path = tmp_path / "model.safetensors"
    write(path, kinds, counts, tensors)
    encoded, decoded = io.BytesIO(), io.BytesIO()
    totals = encode_file(path, encoded)
    assert totals.wire_bytes <= 1.005 * totals.raw_bytes + 4096
    encoded.seek(0)
    decode_file(encoded, decoded)
    assert decoded.getvalue() == path.read_bytes()


def test_small_tensors_that_shrink_keep_their_frames_among_others(tmp_path):
    path = tmp_path / "model.safetensors"
    # 10 KB of bfloat16 that shrink, between counters that do not.
    write(path, ["BF16", "I64"], [5000, 10], 100, data=normal("bfloat16", 5000).tobytes() + bytes(80))
    totals = encode_file(path, tmp_path / "encoded")
    assert totals.wire_bytes < 0.85 * totals.raw_bytes
    frames = list(frames_of(tmp_path / "encoded"))
    assert sum(frame.info.dtype == "bfloat16" for frame in frames) == 50
    assert [frame.info.more for frame in frames] == [True] * (len(frames) - 1) + [False]


def test_ratios_of_many_small_tensors_are_one_row_per_type(tmp_path):
    path = tmp_path / "model.safetensors"
    write(path, ["F32", "BF16", "BOOL"], [1], 100_000)
    begin = time.process_time()
    rows = list(tensor_ratios(path))
    seconds = time.process_time() - begin
    assert [(row.tensor, row.tensors, row.dtype, row.elems) for row in rows] == [
        ("33,334 tensors below 4 KiB", 33_334, "float32", 33_334),
        ("33,333 tensors below 4 KiB", 33_333, "bfloat16", 33_333),
        ("33,333 tensors below 4 KiB", 33_333, "bool", 33_333),
    ]
    assert all(row.wire_bytes < 1.005 * row.raw_bytes + 64 + 16 for row in rows)
    # 54 s before they shared frames, about 1 s now.
    assert seconds < 20


def test_ratios_of_small_tensors_are_those_of_their_values(tmp_path):
    path = tmp_path / "model.safetensors"
    write(path, ["BF16", "F32"], [1000, 9000], 60, data=normal("bfloat16", 1000).tobytes() + bytes(36_000))
    small, *large = tensor_ratios(path)
    assert (small.tensors, small.raw_bytes) == (30, 60_000)
    assert small.exponent_entropy <= small.ratio < 0.75
    assert [row.tensor for row in large] == [f"t{i}" for i in range(1, 60, 2)]
