"""The sample that codecs are fitted to, and what `auto` makes of it."""

from __future__ import annotations

import math

import narrowcast
import numpy as np
import pytest
from narrowcast import store
from narrowcast._store import sources
from store_tables import CODECS, most_for_auto, table, write_safetensors

ROWS = 6000


def numbered(rows: int, columns: int = 4) -> np.ndarray:
    """Rows that contain their index."""
    return np.repeat(np.arange(rows, dtype=np.int32)[:, None], columns, axis=1)


def weights(rng, rows: int = ROWS) -> np.ndarray:
    return rng.standard_normal((rows, 64), np.float32) * 0.02


def sampled(source, **options) -> np.ndarray:
    """The indices of the rows in the sample of numbered rows."""
    content = sources.source_of(source, options.get("dtype"), options.get("tensor")).sample.owner
    return content.view(np.int32)[:, 0]


def report_of(source, *arguments, **options) -> store.BuildReport:
    reports: list[store.BuildReport] = []
    store.build(source, *arguments, report=reports.append, threads=1, **options).close()
    return reports[0]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (1, 1),
        (512, 512),  # the table
        (513, 512),
        (5119, 512),
        (5120, 512),  # from here on at most a tenth
        (5129, 512),
        (20_000, 2000),
        (123_456, 12_345),
    ],
)
def test_a_tenth_of_the_rows_is_sampled_or_512(rows, expected):
    found = sampled(numbered(rows))
    assert len(found) == expected
    assert rows < 5120 or len(found) <= rows / 10


@pytest.mark.parametrize("kind", ["array", "npy", "safetensors", "stream"])
def test_the_sample_is_from_all_parts_of_the_table(kind, tmp_path):
    values = numbered(20_000)
    source = values
    if kind == "npy":
        source = tmp_path / "rows.npy"
        np.save(source, values)
    elif kind == "safetensors":
        source = tmp_path / "rows.safetensors"
        write_safetensors(source, {"rows": ("I32", values)})
    elif kind == "stream":
        source = (values[first : first + 700] for first in range(0, len(values), 700))
    found = sampled(source)
    assert len(np.unique(found)) == len(found) == 2000
    assert np.diff(np.sort(found)).max() < len(values) / 50
    assert found.min() < 1000
    assert found.max() > 19_000 - 400


def test_a_sample_is_limited_in_bytes(monkeypatch):
    monkeypatch.setattr(sources, "_SAMPLE_BYTES", 1 << 16)
    assert sources.source_of(np.zeros((100, 1 << 14), np.uint8), None, None).sample.number == 4
    assert sources.source_of(np.zeros((100, 1 << 17), np.uint8), None, None).sample.number == 1
    assert len(sampled(numbered(1_000_000))) == (1 << 16) // 16


def test_only_the_first_bytes_of_a_stream_are_read_before_the_codec_is_chosen(monkeypatch):
    monkeypatch.setattr(sources, "_SAMPLE_BYTES", 16 * 8000)
    given = []

    def blocks():
        for first in range(0, 20_000, 1000):
            given.append(first)
            yield numbered(20_000)[first : first + 1000]

    source = sources.source_of(blocks(), None, None)
    assert given == list(range(0, 8000, 1000))
    assert source.rows is None
    found = source.sample.owner.view(np.int32)[:, 0]
    assert len(found) == 800
    assert found.max() < 8000
    assert sum(block.number for block in source.blocks) == 20_000


def test_the_number_of_rows_of_a_short_stream_is_known():
    assert sources.source_of(iter([numbered(300), numbered(400)]), None, None).rows == 700


@pytest.mark.parametrize("is_stream", [False, True])
def test_reports_count_the_rows_of_the_table_and_of_the_sample(is_stream):
    values = weights(np.random.default_rng(0), 40_000).reshape(20_000, 128)
    fit = report_of(iter(np.split(values, 10)) if is_stream else values).fit
    assert (fit["rows"], fit["sampled_rows"], fit["row_bytes"]) == (20_000, 2000, 512)
    assert fit["candidates"][0]["codec"] == "raw"
    assert fit["codec"] in [one["codec"] for one in fit["candidates"]]
    assert "of the raw bytes" in fit["reason"]


@pytest.mark.parametrize(
    ("values", "arguments", "layout", "reason"),
    [
        (table(rows=700), ("auto", "stride"), "stride", "asked for"),
        (table(rows=700), ("auto", "packed"), "packed", "asked for"),
        (table(rows=700), ("auto", "blocks"), "blocks", "asked for"),
        (weights(np.random.default_rng(0), 700).reshape(-1, 128), (), "stride", "slots store 0."),
        (np.ones((700, 23), np.float32), (), "packed", "payloads end to end store 0."),
        (weights(np.random.default_rng(0), 700), ("window",), "stride", "slots store 1.0"),  # others straddle lines
        (table(rows=700), ("raw",), "stride", "raw rows have one size"),
        (table(rows=3, shape=(40_000,)), (), "blocks", "a row has more than 64 KiB"),
        (table(rows=700, shape=()), (), "blocks", "a row is a single value"),
    ],
)
def test_reports_say_why_the_layout_was_chosen(values, arguments, layout, reason):
    report = report_of(values, *arguments)
    assert report.layout == report.fit["layout"] == layout
    assert report.fit["layout_reason"].startswith(reason)


@pytest.mark.parametrize(
    ("values", "codec", "chosen", "reason"),
    [
        (table(rows=700), "window", "window", "asked for"),
        (table(rows=700), "auto", "window", "no other codec is tried"),
        (table("int32", rows=700), "auto", "raw", "window does not support the type"),
    ],
)
def test_reports_say_why_blocks_have_their_codec(values, codec, chosen, reason):
    fit = report_of(values, codec, "blocks").fit
    assert fit["codec"] == chosen
    assert fit["reason"].startswith(reason)
    assert (fit["rows"], fit["sampled_rows"], fit["candidates"]) == (700, 0, [])


def sparse(rng) -> np.ndarray:
    """More rows than others have, so that the sample contains some of the few that need more than the smallest slot."""
    values = weights(rng, 2 * ROWS)
    values[rng.random(values.shape) < 0.9] = 0
    return values


def sizes(rng) -> np.ndarray:
    """Rows with few to many values."""
    values = weights(rng)
    values[np.arange(64) >= rng.integers(0, 65, (ROWS, 1))] = 0
    return values


def integers(rng) -> np.ndarray:
    return rng.integers(-20, 50, (ROWS, 64), np.int32)


def clusters(rng) -> np.ndarray:
    """Rows that differ from one of four in some bits."""
    noise = np.bitwise_and.reduce(rng.integers(0, 1 << 32, (4, ROWS, 32), np.uint32))
    return rng.integers(0, 1 << 32, (4, 32), np.uint32)[rng.integers(0, 4, ROWS)] ^ noise


def columns(rng) -> np.ndarray:
    """Most elements are 0; the others have bits that depend on the column."""
    values = rng.integers(0, 1 << 12, (ROWS, 64), np.uint32) | rng.integers(0, 1 << 20, 64, np.uint32) << np.uint32(12)
    values[rng.random(values.shape) < 0.6] = 0
    return values


def random_bytes(rng) -> np.ndarray:
    return rng.integers(0, 256, (ROWS, 128), np.uint8)


def sorted_by_size(rng) -> np.ndarray:
    """The first rows are unlike the last ones."""
    values = weights(rng)
    return values * np.exp2(np.arange(ROWS) // (ROWS // 8) * 4).astype(np.float32)[:, None]


@pytest.mark.parametrize("layout", ["stride", "packed"])
@pytest.mark.parametrize("make", [weights, sparse, sizes, integers, clusters, columns, random_bytes, sorted_by_size])
def test_auto_stores_at_most_a_percent_more_than_the_best_codec(make, layout):
    """But for stages in front of `invariant`, see most_for_auto."""
    values = make(np.random.default_rng(1))

    def stored(codec: str) -> float:
        try:
            report = report_of(values, "plain" if codec == "raw" and layout == "packed" else codec, layout)
        except narrowcast.InvalidArgumentError:
            assert "window" in codec
            assert values.dtype.kind in "iu"
            return math.inf
        assert report.fit["sampled_rows"] == len(values) // 10
        return report.stored_bytes

    assert stored("auto") <= min(most_for_auto(codec, stored(codec)) for codec in CODECS)


def counts(rng) -> np.ndarray:
    """How often words occur: most of them rarely, a few of them often."""
    means = np.where(np.arange(256) % 16 == 0, 200, 0.3)
    return rng.poisson(means, (ROWS, 256)) * (rng.random((ROWS, 256)) < 0.5)


def words(rng) -> np.ndarray:
    """Whether words occur. Those that neither of a pair does, a chunk of 8 bytes, takes a bit instead of two."""
    return (rng.random((ROWS, 1434)) < 1 / 28).astype(np.float32)


@pytest.mark.parametrize(("make", "is_expected"), [(counts, True), (words, False)])
def test_auto_takes_stages_in_front_of_invariant_if_they_save_an_eighth(make, is_expected):
    values = make(np.random.default_rng(2))
    fit = report_of(values, "auto", "packed").fit
    ratios = {True: 1.0, False: 1.0}
    for one in fit["candidates"]:
        ratios["+invariant" in one["codec"]] = min(ratios["+invariant" in one["codec"]], one["packed_ratio"])
    assert ratios[True] < ratios[False]
    assert (ratios[True] <= ratios[False] * 7 / 8) == is_expected
    assert ("+invariant" in fit["codec"]) == is_expected
    if not is_expected:
        assert "GPUs decode it much faster than trim+invariant:chunk=8" in fit["reason"]
