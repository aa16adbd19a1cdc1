"""Reading a table is indexing an array of NumPy with the same rows."""

from __future__ import annotations

import narrowcast
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_tables import ROWS, same

indices = st.lists(st.integers(0, ROWS - 1), max_size=300)


@given(picked=indices, wide=st.booleans())
def test_gather_is_indexing(opened, rows, picked, wide):
    index = np.array(picked, np.int64 if wide else np.int32)
    assert same(opened.gather(index), rows[index])
    assert same(opened[index], rows[index])


@given(first=st.integers(0, ROWS - 1), step=st.integers(-5, 5).filter(bool), data=st.data())
def test_fetch_is_slicing(opened, rows, first, step, data):
    most = (ROWS - 1 - first) // step + 1 if step > 0 else first // -step + 1
    count = data.draw(st.integers(0, most))
    expected = rows[[first + i * step for i in range(count)]]
    assert same(opened.fetch(first, count, step), expected)
    out = np.empty_like(expected)
    opened.fetch(first, count, step, out=out)
    assert same(out, expected)


ends = st.none() | st.integers(-ROWS - 3, ROWS + 3)


@given(begin=ends, end=ends, step=st.none() | st.integers(-7, 7).filter(bool))
def test_slices_are_those_of_numpy(opened, rows, begin, end, step):
    assert same(opened[begin:end:step], rows[begin:end:step])
    assert same(opened.fetch(slice(begin, end, step)), rows[begin:end:step])


@given(index=st.integers(-ROWS, ROWS - 1))
def test_single_rows_are_those_of_numpy(opened, rows, index):
    assert same(opened[index], rows[index])


@given(picked=indices.filter(bool), bad=st.sampled_from([-1, ROWS, 1 << 31, -(1 << 40)]), data=st.data())
def test_a_bad_index_is_named_and_nothing_is_written(opened, picked, bad, data):
    place = data.draw(st.integers(0, len(picked)))
    index = np.array([*picked[:place], bad, *picked[place:]], np.int64)
    out = np.full((len(index), *opened.row_shape), 7, np.float32)
    with pytest.raises(IndexError, match=str(bad)) as caught:
        opened.gather(index, out=out)
    assert isinstance(caught.value, narrowcast.InvalidArgumentError)
    assert f"indices[{place}] is {bad}" in str(caught.value)
    assert (out == 7).all()


def test_a_slice_to_the_end_begins_in_the_table_or_at_its_end(opened):
    assert len(opened.fetch(len(opened))) == 0
    for first in (-1, len(opened) + 1):
        with pytest.raises(IndexError, match="not among"):
            opened.fetch(first)


@pytest.mark.parametrize("index", [True, np.False_])
def test_a_single_bool_is_not_an_index(opened, index):
    with pytest.raises(TypeError, match="bool"):
        opened[index]


def test_slices_out_of_range_are_errors(opened):
    for first, count, step in ((ROWS, 1, 1), (0, ROWS + 1, 1), (5, 7, -1), (-1, 1, 1)):
        with pytest.raises((IndexError, ValueError)):
            opened.fetch(first, count, step)
    for bad in (ROWS, -ROWS - 1):
        with pytest.raises(IndexError):
            opened[bad]


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_any_number_of_threads_has_the_same_result(opened, rows, threads):
    index = np.random.default_rng(1).integers(0, ROWS, 5000)
    assert same(opened.gather(index, threads=threads), rows[index])


def test_outputs_of_another_size_or_type_are_errors(opened):
    for out in (np.empty((3, 24), np.float32), np.empty((2, 24), np.float64), np.empty((2, 25), np.float32)):
        with pytest.raises((ValueError, TypeError), match="out"):
            opened.gather([1, 2], out=out)
    out = np.empty((2, 24), np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        opened.gather([1, 2], out=out)


def test_an_error_leaves_an_output_with_gaps_as_it_was(opened):
    out = np.full((2, 48), 7, np.float32)
    for read in (opened.gather, opened.fetch):
        with pytest.raises(TypeError, match="threads"):
            read(*([[0, 1]] if read == opened.gather else [0, 2]), out=out[:, ::2], threads="x")
    assert (out == 7).all()


@pytest.mark.parametrize("bad", [[1.5], ["a"], [True, False], np.zeros(3, np.complex64)])
def test_indices_that_are_not_integers_are_errors(opened, bad):
    with pytest.raises((TypeError, ValueError, IndexError)):
        opened.gather(np.array(bad))


def test_a_stream_needs_a_gpu(opened):
    with pytest.raises((ValueError, TypeError, narrowcast.NarrowcastError)):
        opened.gather([1], stream=1)
