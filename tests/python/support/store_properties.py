"""Properties of tables, the same on the host and on GPUs: reading one is indexing an array of NumPy with the same rows.

Modules that import * have these tests, and provide the fixtures `opened` (a table), `rows` (its rows) and `reads` (a
`Reads`).
"""

from __future__ import annotations

from typing import Any, Protocol

import narrowcast
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from narrowcast import store
from store_tables import ROWS, same, table


class Reads(Protocol):
    """Where indices and results are."""

    checks_indices: bool  #: before anything is written; otherwise rows of bad indices are zeros, and are counted
    options: dict[str, Any]  #: of calls

    def indices(self, values: np.ndarray) -> Any: ...

    def out(self, shape: tuple[int, ...], gap: int = 0) -> Any:
        """Memory for float32 rows, all 7, with a number of values between rows of one dimension."""

    def content(self, out: Any) -> np.ndarray:
        """What has been written. The values between rows are still 7."""


def without_gaps(whole: np.ndarray, columns: int) -> np.ndarray:
    assert (whole[..., columns:] == 7).all()
    return whole[..., :columns]


def skip_unless_gathered(opened: store.Store, reads: Reads) -> None:
    if opened.layout == "blocks" and not reads.checks_indices:
        pytest.skip("tables of blocks take indices of the host")


# The first and the last row occur often.
picked_rows = st.lists(st.sampled_from([0, ROWS - 1]) | st.integers(0, ROWS - 1), max_size=200)
ends = st.none() | st.integers(-ROWS - 3, ROWS + 3)
steps = st.integers(-7, 7).filter(bool)


@given(picked=picked_rows, wide=st.booleans(), columns=st.integers(1, 3), gap=st.integers(0, 9))
def test_gather_is_indexing(opened, rows, reads, picked, wide, columns, gap):
    skip_unless_gathered(opened, reads)
    index = np.array(picked, np.int64 if wide else np.int32)
    if columns > 1:
        index, gap = index[: len(index) // columns * columns].reshape(-1, columns), 0
    out = reads.out((*index.shape, *opened.row_shape), gap)
    assert opened.gather(reads.indices(index), out=out, **reads.options) is out
    assert same(reads.content(out), rows[index])
    opened.check()


@given(first=st.integers(0, ROWS - 1), step=steps, gap=st.integers(0, 9), data=st.data())
def test_fetch_is_slicing(opened, rows, reads, first, step, gap, data):
    most = (ROWS - 1 - first) // step + 1 if step > 0 else first // -step + 1
    count = data.draw(st.integers(0, most))
    out = reads.out((count, *opened.row_shape), gap)
    assert opened.fetch(first, count, step, out=out, **reads.options) is out
    assert same(reads.content(out), rows[[first + i * step for i in range(count)]])
    opened.check()


@given(begin=ends, end=ends, step=st.none() | steps)
def test_slices_are_those_of_numpy(opened, rows, reads, begin, end, step):
    cut = slice(begin, end, step)
    out = reads.out(rows[cut].shape)
    opened.fetch(cut, out=out, **reads.options)
    assert same(reads.content(out), rows[cut])


@given(picked=picked_rows, bad=st.sampled_from([-1, ROWS, (1 << 31) - 1, 1 << 31, -(1 << 40)]), data=st.data())
def test_a_bad_index_is_reported_and_has_no_row(opened, rows, reads, picked, bad, data):
    skip_unless_gathered(opened, reads)
    kind = data.draw(st.sampled_from([np.int32, np.int64]))
    assume(np.iinfo(kind).min <= bad <= np.iinfo(kind).max)
    place = data.draw(st.integers(0, len(picked)))
    index = np.array([*picked[:place], bad, *picked[place:]], kind)
    out = reads.out((len(index), *opened.row_shape))
    if reads.checks_indices:
        with pytest.raises(store.RowIndexError, match=rf"indices\[{place}\] is {bad}") as caught:
            opened.gather(reads.indices(index), out=out, **reads.options)
        assert isinstance(caught.value, IndexError)
        assert isinstance(caught.value, narrowcast.InvalidArgumentError)
        assert (reads.content(out) == 7).all()
        return
    before = opened.counters().bad_indices
    opened.gather(reads.indices(index), out=out, **reads.options)
    with pytest.raises(store.RowIndexError):
        opened.check()
    opened.check()
    assert opened.counters().bad_indices == before + 1
    expected = rows[np.where(index == bad, 0, index)]
    expected[index == bad] = 0
    assert same(reads.content(out), expected)


@pytest.mark.parametrize("first", [-1, ROWS, ROWS - 1])
def test_slices_out_of_range_are_rejected_before_anything_is_written(opened, reads, first):
    out = reads.out((2, *opened.row_shape))
    with pytest.raises(store.RowIndexError, match="not all among"):
        opened.fetch(first, 2, out=out, **reads.options)
    assert (reads.content(out) == 7).all()


@given(
    changes=st.lists(st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=40), max_size=8),
    layout=st.sampled_from(["stride", "packed"]),
    codec=st.sampled_from(["auto", "raw", "window", "invariant"]),
    seed=st.integers(0, 1000),
)
def test_updates_are_assignments(reads, changes, layout, codec, seed):
    layout = "stride" if codec == "raw" else layout  # raw rows cannot be packed
    rng, expected = np.random.default_rng(seed), table()
    everything = np.arange(ROWS)
    with store.build(expected, codec=codec, layout=layout, spare=ROWS) as made:
        for index in changes:
            new = table(rows=len(index), seed=int(rng.integers(1 << 30)))
            if rng.random() < 0.5:  # rows that do not follow the model
                new = np.frombuffer(rng.bytes(new.nbytes), np.float32).reshape(new.shape)
            made.update(index, new)
            for place, row in zip(index, new, strict=True):  # the last of several counts
                expected[place] = row
            fetched, gathered = reads.out(expected.shape), reads.out(expected.shape)
            made.fetch(0, out=fetched, **reads.options)
            made.gather(reads.indices(everything), out=gathered, **reads.options)
            assert same(reads.content(fetched), expected)
            assert same(reads.content(gathered), expected)


__all__ = [name for name in dir() if name.startswith("test_")]
